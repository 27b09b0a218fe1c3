//! Mail over SMTP, on a connection from `placet-egress`.
//!
//! Owns the start of TLS (STARTTLS) and the limit on a server's output; the conversation itself is lettre's, which never opens a
//! socket here. Invariants: with `starttls` only the request for TLS is sent in the clear, and a server that does not offer it gets no
//! mail; no text of the server is kept; a permanent refusal (5xx) is not retried.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, UNIX_EPOCH},
};

use lettre::{
    Message as Letter,
    message::{Mailbox, header},
    transport::smtp::{
        authentication::{Credentials, Mechanism},
        client::{AsyncSmtpConnection, AsyncTokioStream},
        commands::{Data, Mail as Sender, Rcpt},
        extension::ClientId,
    },
};
use placet_egress::{EgressClient, EgressError, EgressStream};
use placet_types::clock::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    io::{
        AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, Chain, ReadBuf, ReadHalf,
        Take, WriteHalf, split,
    },
    net::TcpStream,
    time::timeout,
};

use crate::{
    config::{EmailTarget, MailSecurity},
    outbox::Failure,
    render::Mail,
};

/// The most bytes from a server in one conversation.
const SAID_BYTES_MAX: u64 = 64 * 1024;
/// The longest line of a server, in bytes (RFC 5321 section 4.5.3.1.5 has 512).
const LINE_BYTES_MAX: usize = 2_048;
/// The most lines of one answer.
const LINES_MAX: usize = 100;
/// How long one conversation may take.
const TALK: Duration = Duration::from_secs(60);
/// Stands in for the greeting, which a server sends only once, before TLS.
const GREETING: &[u8] = b"220 tls\r\n";
/// Our name in EHLO: we receive no mail, so it is of no interest to others.
const OWN_NAME: &str = "localhost";

/// Sends a mail.
///
/// # Errors
/// [`Failure`] when the server did not take it.
pub(crate) async fn send(
    egress: &EgressClient,
    target: &EmailTarget,
    password: Option<SecretString>,
    id: &str,
    mail: &Mail,
    now: Timestamp,
) -> Result<String, Failure> {
    let letter = letter(target, id, mail, now)?;
    let talk = async {
        let stream =
            open(egress, target).await.map_err(|error| Failure::passing(error.to_string()))?;
        talk(stream, target, password, &letter).await
    };
    timeout(TALK, talk)
        .await
        .unwrap_or_else(|_elapsed| Err(Failure::passing("the mail server took too long")))
}

fn letter(target: &EmailTarget, id: &str, mail: &Mail, now: Timestamp) -> Result<Letter, Failure> {
    let mailbox = |text: &str| {
        text.parse::<Mailbox>()
            .map_err(|_invalid| Failure::passing("an address is no mail address"))
    };
    let from = mailbox(&target.from)?;
    let message_id = format!("<{id}@{}>", from.email.domain());
    let seconds = u64::try_from(now.as_ms().div_euclid(1_000)).unwrap_or(0);
    let date = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH);
    let letter = Letter::builder()
        .from(from)
        .to(mailbox(&target.to)?)
        .subject(mail.subject.clone())
        .message_id(Some(message_id))
        .date(date)
        .header(AutoSubmitted)
        .header(header::ContentType::TEXT_PLAIN)
        .body(mail.body.clone());
    letter.map_err(|_unfit| Failure::passing("no mail can be made of it"))
}

/// Suppresses automatic absence replies (RFC 3834 section 5).
#[derive(Debug, Clone, Copy)]
struct AutoSubmitted;

impl header::Header for AutoSubmitted {
    fn name() -> header::HeaderName {
        header::HeaderName::new_from_ascii_str("Auto-Submitted")
    }

    fn parse(_: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self)
    }

    fn display(&self) -> header::HeaderValue {
        header::HeaderValue::new(Self::name(), "auto-generated".to_owned())
    }
}

async fn talk(
    stream: Bounded,
    target: &EmailTarget,
    password: Option<SecretString>,
    letter: &Letter,
) -> Result<String, Failure> {
    let name = ClientId::Domain(OWN_NAME.to_owned());
    let step =
        |what: &'static str| move |error: lettre::transport::smtp::Error| refused(what, &error);
    let mut connection = AsyncSmtpConnection::connect_with_transport(Box::new(stream), &name)
        .await
        .map_err(step("greeting"))?;
    if let (Some(user), Some(password)) = (&target.user, &password) {
        let credentials = Credentials::new(user.clone(), password.expose_secret().to_owned());
        let mechanisms = [Mechanism::Plain, Mechanism::Login];
        connection.auth(&mechanisms, &credentials).await.map_err(step("sign-in"))?;
    }
    let given = give(&mut connection, letter).await;
    // The mail is taken or not; how the conversation ends changes nothing.
    drop(connection.quit().await);
    given
}

async fn give(connection: &mut AsyncSmtpConnection, letter: &Letter) -> Result<String, Failure> {
    let envelope = letter.envelope();
    let mail = Sender::new(envelope.from().cloned(), Vec::new());
    connection.command(mail).await.map_err(|error| refused("sender", &error))?;
    for to in envelope.to() {
        let recipient = Rcpt::new(to.clone(), Vec::new());
        connection.command(recipient).await.map_err(|error| refused("recipient", &error))?;
    }
    connection.command(Data).await.map_err(|error| refused("mail", &error))?;
    let given = connection.message(&letter.formatted()).await;
    given.map_err(|error| refused("mail", &error))?;
    Ok("SMTP 250".to_owned())
}

/// A failure in our words: lettre's contain the server's.
fn refused(what: &str, error: &lettre::transport::smtp::Error) -> Failure {
    let why = match error.status() {
        Some(code) => format!("the mail server answered {} to the {what}", u16::from(code)),
        None => format!("the conversation with the mail server broke off at the {what}"),
    };
    Failure { is_permanent: error.is_permanent(), ..Failure::passing(why) }
}

async fn open(egress: &EgressClient, target: &EmailTarget) -> Result<Bounded, EgressError> {
    let unusable =
        |_error| EgressError::UrlUnusable { reason: "the mail server's host is no host" };
    let url = target.url().map_err(unusable)?;
    match target.security {
        MailSecurity::Tls | MailSecurity::Plain => {
            Ok(Bounded::new(egress.connect(&url).await?, &[]))
        }
        MailSecurity::Starttls => {
            let host = target.host.clone();
            let stream = egress.connect_upgraded(&url, |stream| agree(stream, host)).await?;
            Ok(Bounded::new(stream, GREETING))
        }
    }
}

/// Requests TLS (RFC 3207), and reads exactly the server's answer to that: a byte more would count as received under TLS.
async fn agree(mut stream: TcpStream, host: String) -> Result<TcpStream, EgressError> {
    let failed =
        |reason: &'static str| EgressError::TlsFailed { destination: host.clone(), reason };
    let broken = |_error: io::Error| failed("the mail server broke off before tls");
    answer(&mut stream, "220").await.map_err(broken)?;
    stream.write_all(format!("EHLO {OWN_NAME}\r\n").as_bytes()).await.map_err(broken)?;
    let offered = answer(&mut stream, "250").await.map_err(broken)?;
    if !offered.iter().any(|word| word.eq_ignore_ascii_case("STARTTLS")) {
        return Err(failed("the mail server does not offer starttls"));
    }
    stream.write_all(b"STARTTLS\r\n").await.map_err(broken)?;
    answer(&mut stream, "220").await.map_err(broken)?;
    Ok(stream)
}

/// Reads one answer with this code, of one or more lines; answers the texts.
async fn answer(stream: &mut TcpStream, code: &str) -> io::Result<Vec<String>> {
    let mut texts = Vec::new();
    while texts.len() < LINES_MAX {
        let line = line(stream).await?;
        let rest = line.strip_prefix(code).ok_or(io::ErrorKind::InvalidData)?;
        let (is_last, text) = match rest.strip_prefix('-') {
            Some(text) => (false, text),
            None => (true, rest.trim_start()),
        };
        texts.push(text.trim().to_owned());
        if is_last {
            return Ok(texts);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Reads one line, byte by byte, so that nothing behind it is taken.
async fn line(stream: &mut TcpStream) -> io::Result<String> {
    let mut line = Vec::new();
    while line.len() < LINE_BYTES_MAX {
        match stream.read_u8().await? {
            b'\n' => return Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
            byte => line.push(byte),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// A connection with a limit on the server's output.
#[derive(Debug)]
struct Bounded {
    read: Take<Chain<&'static [u8], ReadHalf<EgressStream>>>,
    write: WriteHalf<EgressStream>,
}

impl Bounded {
    fn new(stream: EgressStream, greeting: &'static [u8]) -> Self {
        let (read, write) = split(stream);
        Self { read: greeting.chain(read).take(SAID_BYTES_MAX), write }
    }
}

impl AsyncTokioStream for Bounded {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().read).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().write).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_shutdown(cx)
    }
}
