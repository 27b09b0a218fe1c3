//! Giving one mail to a server, for each recipient by itself.
//!
//! Owns the commands of one mail, and what becomes of recipients that are refused. Does not own the connection. Invariant: anyone who took the
//! mail does not get it again because another one did not.

use std::collections::BTreeSet;

use lettre::{
    Address, Message as Letter,
    transport::smtp::{
        Error,
        client::AsyncSmtpConnection,
        commands::{Data, Mail, Rcpt},
        extension::{Extension, MailBodyParameter, MailParameter},
    },
};

use super::refused;
use crate::outbox::Failure;

/// What the server says of the recipients.
#[derive(Debug, Default)]
struct Recipients {
    taken: BTreeSet<String>,
    /// Those that are refused for good.
    never: BTreeSet<String>,
    /// Those that are refused for now.
    later: usize,
    /// The last code that refused one.
    code: Option<u16>,
}

/// Gives the mail for everybody who is not served yet; answers what the server said.
///
/// # Errors
/// [`Failure`] when somebody does not have it who may get it later, or nobody has it.
pub(super) async fn give(
    connection: &mut AsyncSmtpConnection,
    letter: &Letter,
    served: &BTreeSet<String>,
) -> Result<String, Failure> {
    let bytes = letter.formatted();
    let envelope = letter.envelope();
    let options = options(connection, envelope.to(), &bytes)?;
    let mail = Mail::new(envelope.from().cloned(), options);
    connection.command(mail).await.map_err(|error| refused("sender", &error))?;
    let wanted = envelope.to().iter().enumerate();
    let wanted = wanted.filter(|(_, to)| !served.contains(AsRef::<str>::as_ref(*to)));
    let said = recipients(connection, wanted).await?;
    if said.taken.is_empty() {
        return said.by_nobody(served);
    }
    connection.command(Data).await.map_err(|error| refused("mail", &error))?;
    let taken = connection.message(&bytes).await.map_err(|error| refused("mail", &error))?;
    said.by_some(u16::from(taken.code()), served)
}

/// What a mail asks of the server, and whether the server can do it.
fn options(
    connection: &AsyncSmtpConnection,
    to: &[Address],
    bytes: &[u8],
) -> Result<Vec<MailParameter>, Failure> {
    let needs = [
        (
            to.iter().all(|to| AsRef::<str>::as_ref(to).is_ascii()),
            Extension::SmtpUtfEight,
            MailParameter::SmtpUtfEight,
        ),
        (
            bytes.is_ascii(),
            Extension::EightBitMime,
            MailParameter::Body(MailBodyParameter::EightBitMime),
        ),
    ];
    let mut options = Vec::new();
    for (is_plain, extension, option) in needs {
        if is_plain {
            continue;
        }
        if !connection.server_info().supports_feature(extension) {
            return Err(Failure::passing("the mail server takes no addresses beyond ASCII"));
        }
        options.push(option);
    }
    Ok(options)
}

async fn recipients(
    connection: &mut AsyncSmtpConnection,
    wanted: impl Iterator<Item = (usize, &Address)>,
) -> Result<Recipients, Failure> {
    let mut said = Recipients::default();
    for (place, to) in wanted {
        match connection.command(Rcpt::new(to.clone(), Vec::new())).await {
            Ok(_) => {
                said.taken.insert(to.to_string());
            }
            Err(error) => said.refuses(place, to, &error)?,
        }
    }
    Ok(said)
}

impl Recipients {
    fn refuses(&mut self, place: usize, to: &Address, error: &Error) -> Result<(), Failure> {
        let Some(code) = error.status().map(u16::from) else {
            return Err(refused("recipient", error));
        };
        self.code = Some(code);
        if error.is_permanent() {
            self.never.insert(to.to_string());
        } else {
            self.later = self.later.saturating_add(1);
        }
        tracing::warn!(place, code, "a mail server refuses a recipient");
        Ok(())
    }

    /// Nobody took it this time.
    fn by_nobody(self, served: &BTreeSet<String>) -> Result<String, Failure> {
        let code = self.code.unwrap_or(0);
        // Where some have it, and nobody else ever will, it is told.
        if self.later == 0 && !served.is_empty() {
            return Ok(format!("SMTP {code} for those who do not have it"));
        }
        let served = if served.is_empty() { BTreeSet::new() } else { self.never };
        let why = format!("the mail server answered {code} to the recipients");
        Err(Failure { served, ..Failure::passing(why) })
    }

    /// The server took the mail, for some or for all.
    fn by_some(self, code: u16, served: &BTreeSet<String>) -> Result<String, Failure> {
        let never = self.never.len();
        match (self.later, self.code) {
            (0, None) => Ok(format!("SMTP {code}")),
            (0, Some(refusal)) => {
                Ok(format!("SMTP {code}, but {refusal} for {never} of the recipients"))
            }
            (later, refusal) => {
                let refusal = refusal.unwrap_or(0);
                let why =
                    format!("the mail server answered {refusal} for {later} of the recipients");
                let mut served = served.clone();
                served.extend(self.taken);
                served.extend(self.never);
                Err(Failure { served, ..Failure::passing(why) })
            }
        }
    }
}
