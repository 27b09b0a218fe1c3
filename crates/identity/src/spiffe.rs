//! SPIFFE ids, parsed strictly by their standard.
//!
//! Owns the form of an id and of a trust domain's name. Knows no keys. Invariant: an id that two parsers could take for different ones
//! (upper case, dots, empty segments, queries, ports) is refused.

/// The prefix of every SPIFFE id. The ids name their trust domain, so they are unique across issuers.
pub(crate) const SPIFFE_SCHEME: &str = "spiffe://";

const ID_BYTES_MAX: usize = 2_048;
const TRUST_DOMAIN_BYTES_MAX: usize = 255;

/// A SPIFFE id of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpiffeId<'a> {
    text: &'a str,
    trust_domain: &'a str,
    path: &'a str,
}

impl<'a> SpiffeId<'a> {
    /// Reads an id. That of a trust domain itself has no path and is no workload's.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix(SPIFFE_SCHEME).filter(|_| text.len() <= ID_BYTES_MAX)?;
        let (trust_domain, path) = rest.split_at_checked(rest.find('/')?)?;
        let segments = path.strip_prefix('/')?;
        let sound = is_trust_domain(trust_domain) && segments.split('/').all(is_segment);
        sound.then_some(Self { text, trust_domain, path })
    }

    pub(crate) const fn text(&self) -> &'a str {
        self.text
    }

    pub(crate) const fn trust_domain(&self) -> &'a str {
        self.trust_domain
    }

    /// With its first slash.
    pub(crate) const fn path(&self) -> &'a str {
        self.path
    }
}

/// Whether a text is the name of a trust domain.
pub(crate) fn is_trust_domain(text: &str) -> bool {
    let allowed =
        |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
    (1..=TRUST_DOMAIN_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

fn is_segment(segment: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !matches!(segment, "" | "." | "..") && segment.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::SpiffeId;

    #[test]
    fn an_id_has_a_trust_domain_and_a_path() {
        let id = SpiffeId::parse("spiffe://prod.example/ns/x/agent-1").unwrap();
        assert_eq!((id.trust_domain(), id.path()), ("prod.example", "/ns/x/agent-1"));
    }

    #[test]
    fn what_two_readers_could_read_differently_is_no_id() {
        for text in [
            "spiffe://prod.example",
            "spiffe://prod.example/",
            "spiffe:///agent",
            "spiffe://PROD.example/agent",
            "SPIFFE://prod.example/agent",
            "https://prod.example/agent",
            "spiffe://prod.example/a//b",
            "spiffe://prod.example/a/",
            "spiffe://prod.example/../agent",
            "spiffe://prod.example/a/./b",
            "spiffe://prod.example/a%2fb",
            "spiffe://prod.example:443/agent",
            "spiffe://user@prod.example/agent",
            "spiffe://prod.example/agent?x=1",
            "spiffe://prod.example/agent#x",
            "spiffe://prod.example/\u{e4}gent",
            " spiffe://prod.example/agent",
        ] {
            assert_eq!(SpiffeId::parse(text), None, "{text}");
        }
        let long = format!("spiffe://prod.example/{}", "a".repeat(2_048));
        assert_eq!(SpiffeId::parse(&long), None);
    }
}
