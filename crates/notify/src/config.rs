//! The `notifications` section of the configuration: channels, and who is notified of what over them.
//!
//! Owns the forms, their defaults and their check. Reads no secret and opens nothing. Invariant: messages go only to hosts that are named
//! here, over TLS unless they are this machine.

use std::collections::{BTreeMap, BTreeSet};

use lettre::message::Mailbox;
use placet_egress::{Destination, PrivateRanges};
use placet_types::ids::{ChannelName, GroupId, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::{notice::NoticeKind, schedule::Quiet};

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;

/// A problem in the section.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {problem}")]
pub struct ConfigError {
    /// The key, below `notifications`.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

fn wrong<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError { key: key.into(), problem: problem.into() })
}

/// The channels for notifications, and who is notified of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyConfig {
    /// The channels, by name.
    pub channels: BTreeMap<ChannelName, ChannelConfig>,
    /// Which events go to which channels.
    pub routes: Vec<RouteConfig>,
    /// How long before its end a pending approval causes an `expiring` event, in milliseconds; at half of its time, if that is later.
    #[schemars(range(min = 1_000, max = 86_400_000))]
    pub expiring_ms: u64,
    /// How often the audit chain is read for new events, in milliseconds.
    #[schemars(range(min = 50, max = 60_000))]
    pub poll_ms: u64,
}

impl Default for NotifyConfig {
    fn default() -> Self {
        Self {
            channels: BTreeMap::new(),
            routes: Vec::new(),
            expiring_ms: 15 * MINUTE_MS,
            poll_ms: 1_000,
        }
    }
}

/// A channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChannelConfig {
    /// The receiver of messages.
    pub to: Target,
    /// What messages show of a call.
    #[serde(default)]
    pub show: Show,
    /// The interval over which messages are collected into one, in milliseconds. Absent: each is sent at once.
    #[serde(default)]
    #[schemars(range(min = 1_000, max = 86_400_000))]
    pub digest_every_ms: Option<u64>,
    /// Hours in which nothing is sent. Messages are collected, and sent as one at the end.
    #[serde(default)]
    pub quiet: Option<Quiet>,
    /// Events that are sent at once, regardless of the digest and the quiet hours.
    #[serde(default = "default_at_once")]
    pub at_once: BTreeSet<NoticeKind>,
    /// Tenants whose callers may ask to be notified over this channel when a held call has ended. Such a channel cannot be in a route.
    #[serde(default)]
    pub callbacks: BTreeSet<TenantId>,
    /// How undelivered messages are retried.
    #[serde(default)]
    pub retry: Retry,
}

fn default_at_once() -> BTreeSet<NoticeKind> {
    [NoticeKind::BreakGlass].into()
}

/// What messages show of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Show {
    /// Who wants to do what, and why the call is held; no arguments.
    #[default]
    Summary,
    /// Also the arguments as approvers see them, with fields marked `x-sensitive` masked.
    Preview,
}

/// How undelivered messages are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// The wait after the first failed attempt, in milliseconds. It doubles with each further one.
    #[schemars(range(min = 100, max = 3_600_000))]
    pub first_ms: u64,
    /// The longest wait between attempts, in milliseconds.
    #[schemars(range(min = 100, max = 86_400_000))]
    pub most_ms: u64,
    /// How long a message is retried before it is given up, in milliseconds. Counted from its event, or from when its digest was due, and
    /// across restarts.
    #[schemars(range(min = 1_000, max = 604_800_000))]
    pub give_up_after_ms: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { first_ms: 5_000, most_ms: 60 * MINUTE_MS, give_up_after_ms: DAY_MS }
    }
}

/// The receiver of a channel's messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    /// A signed webhook (Standard Webhooks).
    Webhook(WebhookTarget),
    /// A webhook that accepts messages in Slack's format.
    Slack(HookTarget),
    /// A Teams workflow that accepts adaptive cards.
    Teams(HookTarget),
    /// E-mail.
    Email(EmailTarget),
}

/// A signed webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookTarget {
    /// The URL of the webhook.
    pub url: HookUrl,
    /// The name of the secret with the signing key, `whsec_…`.
    pub key: String,
    /// The name of the secret with the previous signing key, during a rotation. Messages are then signed with both.
    #[serde(default)]
    pub old_key: Option<String>,
    /// Whether the host may have an address in a private range.
    #[serde(default)]
    pub private_network: bool,
}

/// A webhook whose URL is the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HookTarget {
    /// The URL of the webhook.
    pub url: HookUrl,
    /// Whether the host may have an address in a private range.
    #[serde(default)]
    pub private_network: bool,
}

/// The URL of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "an address is `https://…`, or `{ secret: name, origin: https://host }`"
)]
pub enum HookUrl {
    /// The URL itself.
    Plain(#[schemars(with = "String", extend("format" = "uri"))] Url),
    /// A URL in a secret.
    Secret {
        /// The name of the secret.
        secret: String,
        /// The scheme, host and port of the URL, which are not secret. The URL must have this origin.
        #[schemars(with = "String", extend("format" = "uri"))]
        origin: Url,
    },
}

impl HookUrl {
    fn origin(&self) -> &Url {
        match self {
            Self::Plain(url) => url,
            Self::Secret { origin, .. } => origin,
        }
    }

    fn secret(&self) -> Option<&String> {
        match self {
            Self::Plain(_) => None,
            Self::Secret { secret, .. } => Some(secret),
        }
    }
}

/// E-mail over SMTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmailTarget {
    /// The host name of the mail server.
    pub host: String,
    /// The port. Absent: 465 with `tls`, 587 with `starttls`, 25 with `plain`.
    #[serde(default)]
    pub port: Option<u16>,
    /// How the connection is encrypted.
    #[serde(default)]
    pub security: MailSecurity,
    /// The user name to sign in with. Absent: no sign-in.
    #[serde(default)]
    pub user: Option<String>,
    /// The name of the secret with the password.
    #[serde(default)]
    pub password: Option<String>,
    /// The sender, such as `Placet <placet@example.com>`.
    pub from: String,
    /// The recipient: a mailing list, if there are several. The address must be ASCII; its display name need not be.
    pub to: String,
    /// Whether the server may have an address in a private range.
    #[serde(default)]
    pub private_network: bool,
}

/// How a connection to a mail server is encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MailSecurity {
    /// TLS from the first byte.
    #[default]
    Tls,
    /// STARTTLS, before anything is sent. A server that does not offer it gets no mail.
    Starttls,
    /// No encryption. Only for a server on this machine.
    Plain,
}

impl EmailTarget {
    /// Where the server is, in the form of a URL: `https` stands for TLS.
    ///
    /// # Errors
    /// [`ConfigError`] when the host is invalid.
    pub fn url(&self) -> Result<Url, ConfigError> {
        let (scheme, default) = match self.security {
            MailSecurity::Tls => ("https", 465),
            MailSecurity::Starttls => ("https", 587),
            MailSecurity::Plain => ("http", 25),
        };
        let port = self.port.unwrap_or(default);
        let url = Url::parse(&format!("{scheme}://{}:{port}/", self.host));
        url.ok()
            .filter(|url| url.host_str().is_some_and(|host| host.eq_ignore_ascii_case(&self.host)))
            .ok_or_else(|| ConfigError { key: "host".to_owned(), problem: "is no host".to_owned() })
    }
}

/// Which events go to which channels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Only events of this tenant. Absent: of every tenant. If the tenant's groups are asked as external approvers, messages contain only
    /// their own part.
    #[serde(default)]
    pub tenant: Option<TenantId>,
    /// Only events for which one of these groups is asked: of requests and grants. Empty: all events.
    #[serde(default)]
    pub groups: BTreeSet<GroupId>,
    /// The events to send.
    #[serde(default = "NoticeKind::usual")]
    pub events: BTreeSet<NoticeKind>,
    /// The channels to send them to.
    pub channels: BTreeSet<ChannelName>,
}

impl NotifyConfig {
    /// Whether there are no notifications at all.
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Checks the section; `is_named` says what is wrong with a text that should be a secret's name.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first unusable key. It does not repeat a text in the place of a secret's name: it may be the secret.
    pub fn check(&self, is_named: impl Fn(&str) -> Result<(), String>) -> Result<(), ConfigError> {
        within("expiring_ms", self.expiring_ms, 1_000, DAY_MS)?;
        within("poll_ms", self.poll_ms, 50, MINUTE_MS)?;
        for (name, channel) in &self.channels {
            channel.check(&is_named).map_err(|error| ConfigError {
                key: format!("channels.{name}.{}", error.key),
                ..error
            })?;
        }
        for (place, route) in self.routes.iter().enumerate() {
            for name in &route.channels {
                let problem = match self.channels.get(name) {
                    None => "is not among `channels`",
                    Some(channel) if channel.callbacks.is_empty() => continue,
                    Some(_) => {
                        "tells callers (`callbacks`), who would hear what is for approvers: make one channel for each"
                    }
                };
                return wrong(
                    format!("routes[{place}].channels"),
                    format!("names `{name}`, which {problem}"),
                );
            }
            if route.channels.is_empty() || route.events.is_empty() {
                return wrong(format!("routes[{place}]"), "tells nobody of anything");
            }
            // Without `events`, a route with `groups` gets what concerns them.
            let names_events = route.events != NoticeKind::usual() && !route.groups.is_empty();
            let alone = route.events.iter().find(|kind| names_events && !kind.concerns_groups());
            if let Some(kind) = alone {
                return wrong(
                    format!("routes[{place}].events"),
                    format!(
                        "names `{kind}`, for which no group is asked: make a route without `groups` for it"
                    ),
                );
            }
        }
        Ok(())
    }

    /// The channels over which callers may ask to be notified, each with the tenants whose callers may.
    pub fn callbacks(&self) -> BTreeMap<ChannelName, BTreeSet<TenantId>> {
        let channels = self.channels.iter().filter(|(_, channel)| !channel.callbacks.is_empty());
        channels.map(|(name, channel)| (name.clone(), channel.callbacks.clone())).collect()
    }

    /// The targets of messages, for the egress client's allow-list.
    ///
    /// # Errors
    /// [`ConfigError`] when a target is invalid.
    pub fn destinations(&self) -> Result<Vec<Destination>, ConfigError> {
        self.channels.values().map(|channel| channel.to.destination()).collect()
    }
}

fn within(key: &str, number: u64, min: u64, max: u64) -> Result<(), ConfigError> {
    if (min..=max).contains(&number) {
        return Ok(());
    }
    wrong(key, format!("is {number}, and not between {min} and {max}"))
}

impl ChannelConfig {
    fn check(&self, is_named: &impl Fn(&str) -> Result<(), String>) -> Result<(), ConfigError> {
        if let Some(every) = self.digest_every_ms {
            within("digest_every_ms", every, 1_000, DAY_MS)?;
        }
        if self.quiet.is_some_and(|quiet| quiet.from == quiet.to) {
            return wrong("quiet", "begins when it ends");
        }
        within("retry.first_ms", self.retry.first_ms, 100, 60 * MINUTE_MS)?;
        within("retry.most_ms", self.retry.most_ms, self.retry.first_ms, DAY_MS)?;
        within("retry.give_up_after_ms", self.retry.give_up_after_ms, 1_000, 7 * DAY_MS)?;
        for (key, name) in self.to.secrets() {
            is_named(name).map_err(|problem| ConfigError { key: format!("to.{key}"), problem })?;
        }
        if let Target::Email(email) = &self.to {
            email.check()?;
        }
        self.to.destination().map(|_| ())
    }
}

impl EmailTarget {
    fn check(&self) -> Result<(), ConfigError> {
        if self.user.is_some() != self.password.is_some() {
            return wrong("to.password", "goes with `user`, and neither without the other");
        }
        for address in [&self.from, &self.to] {
            let email = address.parse::<Mailbox>().map(|mailbox| mailbox.email.to_string());
            if !email.is_ok_and(|email| email.is_ascii()) {
                return wrong("to", format!("has `{address}`, which is no mail address in ASCII"));
            }
        }
        Ok(())
    }
}

impl Target {
    fn secrets(&self) -> Vec<(&'static str, &str)> {
        let (url, named) = match self {
            Self::Webhook(target) => {
                let old_key = target.old_key.as_ref().map(|old| ("old_key", old));
                (Some(&target.url), [Some(("key", &target.key)), old_key])
            }
            Self::Slack(target) | Self::Teams(target) => (Some(&target.url), [None, None]),
            Self::Email(target) => {
                (None, [target.password.as_ref().map(|name| ("password", name)), None])
            }
        };
        let url = url.and_then(HookUrl::secret).map(|secret| ("url.secret", secret));
        let all = named.into_iter().flatten().chain(url);
        all.map(|(key, name)| (key, name.as_str())).collect()
    }

    /// The destination of the target.
    ///
    /// # Errors
    /// [`ConfigError`] when it is not permitted: plain HTTP to another machine, a user in the address.
    pub fn destination(&self) -> Result<Destination, ConfigError> {
        let (url, private_network, key) = match self {
            Self::Webhook(target) => {
                (target.url.origin().clone(), target.private_network, "to.url")
            }
            Self::Slack(target) | Self::Teams(target) => {
                (target.url.origin().clone(), target.private_network, "to.url")
            }
            Self::Email(target) => (target.url()?, target.private_network, "to.host"),
        };
        let local = is_loopback(&url);
        if url.scheme() != "https" && !local {
            return wrong(key, "leads to another machine without TLS");
        }
        let private =
            if private_network || local { PrivateRanges::Allowed } else { PrivateRanges::Refused };
        Destination::from_url(&url, private).or_else(|error| wrong(key, error.to_string()))
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
