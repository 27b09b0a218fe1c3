//! Names, times and states in words.
//!
//! Owns how the console speaks. Times are UTC, and say so.

use std::collections::BTreeSet;

use maud::{Markup, html};
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    ids::AdapterName,
    mode::ApprovalMode,
    principal::{Principal, PrincipalChain, PrincipalKind},
    taint::Taint,
    text::visible,
};

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 86_400;

/// The appearance of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Note,
    Good,
    Warn,
    Bad,
}

impl Tone {
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Plain => "mark",
            Self::Note => "mark note",
            Self::Good => "mark good",
            Self::Warn => "mark warn",
            Self::Bad => "mark bad",
        }
    }
}

/// A word, styled by its tone.
pub(super) fn mark(tone: Tone, word: &str) -> Markup {
    html! { span class=(tone.class()) { (word) } }
}

/// What a run may have in its context, for people.
pub(super) const fn taint(taint: Taint) -> &'static str {
    match taint {
        Taint::UntrustedContent => "untrusted content",
        Taint::Secret => "a secret",
        Taint::Pii => "data about persons",
        Taint::ExternalEgress => "something of it went outside",
    }
}

/// A person's display name, with the id where it differs.
pub(super) fn person(principal: &Principal) -> Markup {
    html! {
        @match &principal.display {
            Some(display) if *display != principal.id.as_str() => { (visible(display)) " " span.soft.small { "(" (principal.id) ")" } }
            Some(_) | None => { (principal.id) }
        }
    }
}

/// What somebody wrote, as a quotation.
pub(super) fn quotation(words: &str) -> Markup {
    html! { blockquote { (visible(words)) } }
}

/// Who calls, for whom.
pub(super) fn chain(chain: &PrincipalChain) -> Markup {
    html! {
        @if chain.actor.kind != PrincipalKind::User { span.soft { (chain.actor.kind.as_str()) " " } }
        (person(&chain.actor))
        @if let Some(user) = &chain.on_behalf_of { span.soft { " for " } (person(user)) }
    }
}

/// How strong a call is, in a word for people.
pub(super) fn mode(mode: ApprovalMode) -> Markup {
    let (tone, word, hint) = mode_words(mode);
    html! { span class=(tone.class()) title=(hint) { (word) } }
}

/// What a mode means.
pub(super) const fn mode_hint(mode: ApprovalMode) -> &'static str {
    mode_words(mode).2
}

const fn mode_words(mode: ApprovalMode) -> (Tone, &'static str, &'static str) {
    match mode {
        ApprovalMode::ReadOnly => (Tone::Plain, "reads", "It only reads."),
        ApprovalMode::LocalWrite => (Tone::Plain, "writes here", "It writes inside this service."),
        ApprovalMode::Network => {
            (Tone::Note, "other system", "It changes something in another system.")
        }
        ApprovalMode::Delegated => {
            (Tone::Warn, "as a user", "It acts in another system with a user's own authority.")
        }
        ApprovalMode::Destructive => (Tone::Bad, "destructive", "It cannot be undone."),
    }
}

/// How an approval stands.
pub(super) fn state(name: &str) -> Markup {
    let (tone, word) = match name {
        "pending" => (Tone::Note, "waits"),
        "approved" => (Tone::Note, "approved, not sent yet"),
        "running" => (Tone::Note, "running"),
        "succeeded" => (Tone::Good, "succeeded"),
        "failed" => (Tone::Bad, "failed"),
        "unknown" => (Tone::Warn, "outcome unknown"),
        "sent" => (Tone::Plain, "was sent"),
        "denied" => (Tone::Bad, "denied"),
        "withdrawn" => (Tone::Plain, "withdrawn"),
        "expired" => (Tone::Warn, "expired"),
        "void" => (Tone::Warn, "void"),
        "active" => (Tone::Good, "in force"),
        "scheduled" => (Tone::Note, "scheduled"),
        "proposed" => (Tone::Note, "proposed"),
        "used_up" => (Tone::Plain, "used up"),
        "ended" => (Tone::Plain, "ended"),
        "reviewed" => (Tone::Plain, "reviewed"),
        other => (Tone::Plain, other),
    };
    mark(tone, word)
}

/// The tense in which a page describes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tense {
    /// It waits, or is approved and will be sent.
    Ahead,
    /// It is being made.
    Now,
    /// It was made.
    Past,
    /// It was not made and will not be.
    Never,
}

impl Tense {
    /// The tense of a call in this state.
    pub(super) fn of(state: &str) -> Self {
        match state {
            "pending" | "approved" => Self::Ahead,
            "running" => Self::Now,
            "denied" | "withdrawn" | "expired" | "void" => Self::Never,
            _ => Self::Past,
        }
    }
}

/// How a call ended that is no longer decided on, as a sentence.
pub(super) fn end(name: &str) -> &'static str {
    match name {
        "approved" => "It is approved, and was not sent yet.",
        "running" => "It is approved and runs now.",
        "succeeded" => "It ran and succeeded.",
        "failed" => "It was approved and sent, and it failed.",
        "unknown" => "It was approved and sent. Nobody knows whether it took effect.",
        "denied" => "It was denied and did not run.",
        "withdrawn" => "It was withdrawn and did not run.",
        "expired" => "Nobody decided in time. It did not run.",
        "void" => "The approval became void. It did not run.",
        _ => "It was approved and sent.",
    }
}

/// A time as it is, for machines and for those who want it exactly.
pub(super) fn exact(at: Timestamp) -> Markup {
    html! { time datetime=(at) { (minute(at)) } }
}

/// A time relative to now; the script keeps it up to date.
pub(super) fn relative(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(at) title=(minute(at)) data-relative { (from_now(at, now)) } }
}

/// `2026-11-22 06:04 UTC`.
pub(super) fn minute(at: Timestamp) -> String {
    let text = at.to_string();
    let (day, time) = text.split_once('T').unwrap_or((&text, ""));
    let time: String = time.chars().take(5).collect();
    format!("{day} {time} UTC")
}

/// `in 3 h`, `12 min ago`.
pub(super) fn from_now(at: Timestamp, now: Timestamp) -> String {
    let ms = at.since_ms(now);
    let text = seconds(ms.saturating_abs().saturating_add(500).div_euclid(1_000));
    if ms >= 0 { format!("in {text}") } else { format!("{text} ago") }
}

/// A length of time in milliseconds.
pub(super) fn length(ms: u64) -> String {
    let whole = i64::try_from(ms).unwrap_or(i64::MAX);
    if whole < 1_000 {
        return format!("{whole} ms");
    }
    seconds(whole.div_euclid(1_000))
}

/// In the largest unit that gives at least one and a half, the same rule as in the script.
fn seconds(seconds: i64) -> String {
    for (unit, size) in [("d", DAY_S), ("h", HOUR_S), ("min", MINUTE_S)] {
        if seconds.saturating_mul(2) >= size.saturating_mul(3) {
            let rounded = seconds.saturating_add(size.div_euclid(2)).div_euclid(size);
            return format!("{rounded} {unit}");
        }
    }
    format!("{seconds} s")
}

/// A digest, shortened for reading and complete for copying.
pub(super) fn digest(digest: &Digest) -> Markup {
    html! { code title=(digest) { (digest.short()) } }
}

/// What a lockdown stops: every call, or those of some adapters.
pub(super) fn lockdown(adapters: &BTreeSet<AdapterName>) -> String {
    let names: Vec<&str> = adapters.iter().map(AdapterName::as_str).collect();
    if names.is_empty() {
        "Lockdown: no call runs".to_owned()
    } else {
        format!("Lockdown: no call of {} runs", names.join(", "))
    }
}

/// A number of people, with their noun.
pub(super) fn people(count: u32) -> String {
    if count == 1 { "1 person".to_owned() } else { format!("{count} people") }
}

/// A number of things.
pub(super) fn count(count: usize, one: &str, more: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {more}") }
}

/// A message of the engine as a sentence: with a capital letter and a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let Some(first) = letters.next() else { return String::new() };
    let mut whole: String = first.to_uppercase().chain(letters).collect();
    if !whole.ends_with(['.', '!', '?', ':']) {
        whole.push('.');
    }
    whole
}

/// A text with the parts between backticks as code.
pub(super) fn with_code(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (visible(part)) } } @else { (visible(part)) }
        }
    }
}

/// `snake_case` as words.
pub(super) fn spaced(name: &str) -> String {
    sentence(&name.replace('_', " ")).trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use placet_types::clock::Timestamp;

    use super::{from_now, length, minute, sentence};

    #[test]
    fn times_are_said_in_the_unit_that_fits() {
        let now = Timestamp::from_ms(1_000_000_000);
        for (ms, text) in [
            (0, "in 0 s"),
            (-89_000, "89 s ago"),
            (-90_000, "2 min ago"),
            (3 * 3_600_000, "in 3 h"),
            (-86_400_000, "24 h ago"),
            (2 * 86_400_000, "in 2 d"),
        ] {
            assert_eq!(from_now(now.plus_ms(ms), now), text);
        }
        assert_eq!((length(20).as_str(), length(61_000).as_str()), ("20 ms", "61 s"));
        assert_eq!(minute(Timestamp::from_ms(951_782_400_000)), "2000-02-29 00:00 UTC");
    }

    #[test]
    fn a_message_becomes_a_sentence() {
        assert_eq!(sentence("the reason is missing"), "The reason is missing.");
        assert_eq!(sentence("Really?"), "Really?");
        assert_eq!(sentence(""), "");
    }
}
