//! The links of the development sign-in: which were used, and which browsers may choose a person because they used one.
//!
//! Owns both lists, in the memory of this process. Invariants: a link counts once, and lets one browser choose once; both within the
//! link's own time.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

use placet_identity::SignInCode;
use placet_types::{clock::Timestamp, digest::Digest};

/// The most links that are remembered. Only who has the development key can use one up.
const LINKS_MAX: usize = 1_024;

/// The used links that have not expired.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<BTreeMap<[u8; 16], Used>>);

#[derive(Debug)]
struct Used {
    until: Timestamp,
    /// The browser that used it and has not chosen yet.
    browser: Option<Digest>,
}

impl Links {
    /// Uses a link in a browser. False where it was used before.
    pub(super) fn follow(&self, code: SignInCode, browser: &str, now: Timestamp) -> bool {
        let mut used = self.used(now);
        if used.len() >= LINKS_MAX || used.contains_key(&code.id) {
            return false;
        }
        let browser = Some(Digest::of(browser.as_bytes()));
        used.insert(code.id, Used { until: code.expires_at, browser });
        true
    }

    /// Whether a browser may choose who signs in.
    pub(super) fn may_choose(&self, browser: &str, now: Timestamp) -> bool {
        let browser = Some(Digest::of(browser.as_bytes()));
        self.used(now).values().any(|used| used.browser == browser)
    }

    /// Takes a browser's choice. False where it had none.
    pub(super) fn choose(&self, browser: &str, now: Timestamp) -> bool {
        let browser = Some(Digest::of(browser.as_bytes()));
        let mut used = self.used(now);
        let mut of_browser = used.values_mut().filter(|used| used.browser == browser);
        of_browser.next().map(|used| used.browser = None).is_some()
    }

    /// The used links that have not expired: expired ones are no longer valid codes anyway.
    fn used(&self, now: Timestamp) -> MutexGuard<'_, BTreeMap<[u8; 16], Used>> {
        let mut used = self.0.lock();
        used.retain(|_, used| used.until > now);
        used
    }
}

#[cfg(test)]
mod tests {
    use placet_identity::SignInCode;
    use placet_types::clock::Timestamp;

    use super::{LINKS_MAX, Links};

    fn code(number: u64) -> SignInCode {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        SignInCode { id, expires_at: Timestamp::from_ms(1_000) }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    #[test]
    fn a_link_lets_one_browser_choose_once() {
        let links = Links::default();
        assert!(!links.may_choose("a", at(0)) && !links.choose("a", at(0)));
        assert!(links.follow(code(1), "a", at(0)));
        assert!(!links.follow(code(1), "b", at(0)), "it was used");
        assert!(links.may_choose("a", at(0)) && !links.may_choose("b", at(0)));
        assert!(!links.choose("b", at(0)));
        assert!(links.choose("a", at(0)));
        assert!(!links.choose("a", at(0)), "it has chosen");
        assert!(!links.follow(code(1), "a", at(0)), "it stays used");
    }

    #[test]
    fn a_choice_ends_with_its_link_and_nothing_is_kept() {
        let links = Links::default();
        assert!(links.follow(code(1), "a", at(0)));
        assert!(links.may_choose("a", at(999)) && !links.may_choose("a", at(1_000)));
        assert!(links.0.lock().is_empty());
    }

    #[test]
    fn the_number_of_links_has_a_limit() {
        let links = Links::default();
        for number in 0..u64::try_from(LINKS_MAX).unwrap() {
            assert!(links.follow(code(number), "a", at(0)));
        }
        assert!(!links.follow(code(u64::MAX), "a", at(0)));
    }
}
