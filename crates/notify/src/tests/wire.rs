//! Deliveries over real sockets: to servers of the test's own, on this machine.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use placet_egress::Trust;
use placet_identity::{SecretSource, Secrets};
use placet_types::clock::Timestamp;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use super::support::{NINE, read};
use crate::{
    message::{Letter, Message},
    sender::{Failure, MessageSender as _, Post},
    signature::SigningKey,
};

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD_KEY: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A request that arrived: its head in lower case, and its body.
#[derive(Debug, Clone)]
struct Asked {
    head: String,
    body: String,
}

impl Asked {
    fn header(&self, name: &str) -> &str {
        let start = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(&start)).unwrap()
    }
}

/// A server that answers every request with the same bytes.
async fn server(answer: &'static str) -> (u16, Arc<Mutex<Vec<Asked>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let asked = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let one = request(stream, answer).await;
            asked.lock().push(one);
        }
    });
    (port, seen)
}

async fn request(stream: TcpStream, answer: &str) -> Asked {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        stream.read_line(&mut head).await.unwrap();
    }
    // Values keep their case.
    let head: String = head
        .lines()
        .map(|line| match line.split_once(": ") {
            Some((name, value)) => format!("{}: {value}\n", name.to_ascii_lowercase()),
            None => format!("{line}\n"),
        })
        .collect();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
    Asked { head, body: String::from_utf8(body).unwrap() }
}

fn post(to: Value, secrets: &[(&str, &str)]) -> Post {
    let config = read(json!({ "channels": { "ops": { "to": to } } }));
    let sources = secrets.iter().map(|(name, value)| {
        let value = SecretString::from(*value);
        ((*name).to_owned(), SecretSource::Env(value))
    });
    let secrets = Secrets::new(sources.collect::<BTreeMap<_, _>>());
    Post::new(&config, Arc::new(secrets), None, Vec::new(), &Trust::default()).unwrap()
}

async fn deliver(post: &Post) -> Result<String, Failure> {
    let channel = "ops".parse().unwrap();
    let now = Timestamp::from_ms(NINE);
    post.deliver(&channel, &Letter::from(Message::test(&channel, now)), now).await
}

#[tokio::test]
async fn a_webhook_is_signed_over_what_is_sent_with_both_keys() {
    let (port, seen) = server("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
    let url = format!("http://127.0.0.1:{port}/hook?x=1");
    let to = json!({ "type": "webhook", "url": url, "key": "new", "old_key": "old" });
    let post = post(to, &[("new", KEY), ("old", OLD_KEY)]);
    assert_eq!(deliver(&post).await.unwrap(), "HTTP 204");
    assert_eq!(deliver(&post).await.unwrap(), "HTTP 204");
    let seen = seen.lock().clone();
    let asked = &seen[0];
    assert!(asked.head.starts_with("POST /hook?x=1 "), "{}", asked.head);
    let (id, time) = (asked.header("webhook-id"), asked.header("webhook-timestamp"));
    assert_eq!(time.parse::<i64>().unwrap(), NINE / 1000);
    let signed = [KEY, OLD_KEY].map(|key| {
        let key = SigningKey::read(&SecretString::from(key)).unwrap();
        key.sign(id, NINE / 1000, asked.body.as_bytes())
    });
    assert_eq!(asked.header("webhook-signature"), signed.join(" "));
    assert_eq!(seen[1].header("webhook-id"), id, "the same message has another name");
    assert_eq!(serde_json::from_str::<Value>(&asked.body).unwrap()["type"], "test");
}

#[tokio::test]
async fn what_a_receiver_answers_is_not_repeated_and_a_redirect_is_not_followed() {
    for (answer, why, is_permanent, after) in [
        (
            "HTTP/1.1 500 No\r\ncontent-length: 6\r\nconnection: close\r\n\r\nCANARY",
            "HTTP 500",
            false,
            None,
        ),
        (
            "HTTP/1.1 429 No\r\nretry-after: 7\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "HTTP 429",
            false,
            Some(7_000),
        ),
        (
            "HTTP/1.1 410 No\r\ncontent-length: 6\r\nconnection: close\r\n\r\nCANARY",
            "HTTP 410",
            true,
            None,
        ),
        (
            "HTTP/1.1 302 No\r\nlocation: http://127.0.0.1:1/CANARY\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "redirect",
            false,
            None,
        ),
    ] {
        let (port, seen) = server(answer).await;
        let url = format!("http://127.0.0.1:{port}/hook");
        let failure =
            deliver(&post(json!({ "type": "slack", "url": url }), &[])).await.unwrap_err();
        assert!(failure.why.contains(why) && !failure.why.contains("CANARY"), "{failure:?}");
        assert_eq!((failure.is_permanent, failure.retry_after_ms), (is_permanent, after));
        assert_eq!(seen.lock().len(), 1);
    }
}

#[tokio::test]
async fn nobody_listening_is_a_failure_that_may_pass() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let url = format!("http://127.0.0.1:{port}/hook");
    let failure = deliver(&post(json!({ "type": "teams", "url": url }), &[])).await.unwrap_err();
    assert!(!failure.is_permanent && failure.why.contains("no connection"), "{failure:?}");
}

#[tokio::test]
async fn an_address_in_a_secret_leads_to_its_origin_or_nowhere_and_is_in_no_error() {
    let (port, seen) =
        server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await;
    let origin = format!("http://127.0.0.1:{port}");
    let to = json!({ "type": "slack", "url": { "secret": "hook", "origin": origin } });
    let secret = format!("{origin}/services/CANARY");
    assert_eq!(deliver(&post(to.clone(), &[("hook", &secret)])).await.unwrap(), "HTTP 200");
    assert!(seen.lock()[0].head.starts_with("POST /services/CANARY "));
    for wrong in ["https://elsewhere.example/CANARY", "CANARY", "http://127.0.0.1:1/CANARY"] {
        let failure = deliver(&post(to.clone(), &[("hook", wrong)])).await.unwrap_err();
        assert!(!failure.why.contains("CANARY") && failure.why.contains("hook"), "{failure:?}");
    }
    assert_eq!(seen.lock().len(), 1);
}

#[tokio::test]
async fn a_key_that_is_none_signs_nothing() {
    let (port, seen) = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let url = format!("http://127.0.0.1:{port}/hook");
    let to = json!({ "type": "webhook", "url": url, "key": "new" });
    let failure = deliver(&post(to, &[("new", "CANARY")])).await.unwrap_err();
    assert!(failure.why.contains("`new`") && !failure.why.contains("CANARY"), "{failure:?}");
    assert!(seen.lock().is_empty());
}

/// A mail server without TLS that sends these lines, one after each line it receives, and records what it received.
async fn mail_server(lines: &'static [&'static str]) -> (u16, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut heard = String::new();
        for line in lines {
            stream.get_mut().write_all(line.as_bytes()).await.unwrap();
            if line.starts_with("354") {
                while !heard.ends_with("\r\n.\r\n") {
                    stream.read_line(&mut heard).await.unwrap();
                }
            } else if stream.read_line(&mut heard).await.unwrap() == 0 {
                break;
            }
        }
        heard
    });
    (port, heard)
}

fn email(port: u16, security: &str) -> Value {
    json!({
        "type": "email", "host": "127.0.0.1", "port": port, "security": security, "private_network": true,
        "from": "Placet <placet@example.com>", "to": "Änne <anne@example.com>",
    })
}

#[tokio::test]
async fn a_mail_says_who_it_is_for_and_that_nobody_answers_it() {
    let (port, heard) = mail_server(&[
        "220 hello\r\n",
        "250 hello\r\n",
        "250 ok\r\n",
        "250 ok\r\n",
        "354 go on\r\n",
        "250 taken\r\n",
        "221 bye\r\n",
    ])
    .await;
    assert_eq!(deliver(&post(email(port, "plain"), &[])).await.unwrap(), "SMTP 250");
    let heard = heard.await.unwrap();
    for word in [
        "MAIL FROM:<placet@example.com>",
        "RCPT TO:<anne@example.com>",
        "Auto-Submitted: auto-generated",
        "Message-ID: <msg_",
        "Subject: [Placet] A test",
        "Date: Sun, 22 Nov 2026 09:00:00",
    ] {
        assert!(heard.contains(word), "`{word}` is not in:\n{heard}");
    }
}

#[tokio::test]
async fn a_permanent_refusal_of_a_mail_server_is_not_retried() {
    let secrets = [("password", "CANARY-password")];
    let signing_in = |port| {
        let mut to = email(port, "plain");
        to["user"] = json!("placet");
        to["password"] = json!("password");
        to
    };
    let hello = ["220 hello\r\n", "250-hello\r\n250 AUTH PLAIN\r\n"];
    let data = ["235 ok\r\n", "250 ok\r\n", "250 ok\r\n", "354 go on\r\n"];
    let sent = [&hello[..], &data[..]].concat();
    for (step, before) in [
        ("greeting", &[][..]),
        ("sign-in", &hello[..]),
        ("sender", &sent[..3]),
        ("recipient", &sent[..4]),
        ("mail", &sent[..5]),
        ("mail", &sent[..]),
    ] {
        for (code, is_permanent) in [(554, true), (451, false)] {
            let refusal = format!("{code} CANARY\r\n");
            let lines = [before, &[refusal.leak(), "221 bye\r\n"]].concat();
            let (port, _heard) = mail_server(lines.leak()).await;
            let failure = deliver(&post(signing_in(port), &secrets)).await.unwrap_err();
            assert_eq!(failure.is_permanent, is_permanent, "{step}: {failure:?}");
            assert!(failure.why.contains(&format!("{code} to the {step}")), "{failure:?}");
            assert!(!failure.why.contains("CANARY"), "{failure:?}");
        }
    }
}

#[tokio::test]
async fn a_mail_server_that_offers_no_tls_gets_nothing_where_tls_is_wanted() {
    let (port, heard) =
        mail_server(&["220 hello\r\n", "250-hello\r\n250 SIZE 1000\r\n", "250 ok\r\n"]).await;
    let failure = deliver(&post(email(port, "starttls"), &[])).await.unwrap_err();
    assert!(failure.why.contains("does not offer starttls"), "{failure:?}");
    let heard = heard.await.unwrap();
    assert_eq!(heard, "EHLO localhost\r\n");
}

#[tokio::test]
async fn what_is_said_behind_the_answer_to_starttls_is_not_taken_as_said_under_tls() {
    let (port, heard) = mail_server(&[
        "220 hello\r\n",
        "250-hello\r\n250 STARTTLS\r\n",
        "220 go on\r\n250 injected\r\n250 injected\r\n",
        "250 injected\r\n",
    ])
    .await;
    let failure = deliver(&post(email(port, "starttls"), &[])).await.unwrap_err();
    assert!(failure.why.contains("tls"), "{failure:?}");
    drop(heard);
}

#[tokio::test]
async fn what_a_mail_server_says_is_not_repeated_and_has_a_bound() {
    let (port, heard) =
        mail_server(&["220 hello\r\n", "250 hello\r\n", "550 CANARY\r\n", "221 bye\r\n"]).await;
    let failure = deliver(&post(email(port, "plain"), &[])).await.unwrap_err();
    assert!(failure.why.contains("550") && !failure.why.contains("CANARY"), "{failure:?}");
    drop(heard);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let endless = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut said = 0_usize;
        while stream.write_all(&[b'x'; 8192]).await.is_ok() {
            said += 8192;
            assert!(said < 64 * 1024 * 1024, "it listens for ever");
        }
    });
    let failure = deliver(&post(email(port, "plain"), &[])).await.unwrap_err();
    assert!(failure.why.contains("broke off at the greeting"), "{failure:?}");
    endless.await.unwrap();
}
