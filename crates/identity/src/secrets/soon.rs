//! Reading a secret where nothing may block: on a thread for blocking, one reading at a time for each file, and with a limit of time.
//!
//! Owns the wait, and how old a value may be that is used because its file hangs. A hanging mount occupies one thread for each of its
//! secrets, however many calls there are. Invariant: a value returned in place of an answer was in the file within a bounded time.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{Entry, LiveSecret, SecretError, SecretSource, Secrets};

/// How long a file may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How old the last successful read of a hanging file may be.
const OLD_MAX: Duration = Duration::from_mins(5);

type Answer = Option<Result<LiveSecret, SecretError>>;

/// A read in progress.
#[derive(Debug, Clone)]
pub(super) struct Look {
    began_at: Instant,
    answer: watch::Receiver<Answer>,
}

impl Secrets {
    /// The current value of a secret, and the one before it, without blocking the thread. If a file does not answer within a second, as on
    /// a mount that hangs, the last value is returned for five minutes.
    ///
    /// # Errors
    /// As for [`Secrets::get`], and [`SecretError::TooSlow`] when the file hangs and no recent value is known.
    pub async fn live_soon(&self, name: &str) -> Result<LiveSecret, SecretError> {
        let entry = self.entry(name)?;
        let SecretSource::File(path) = &entry.source else { return self.live(name) };
        let mut look = self.look(entry, name);
        let until = look.began_at.checked_add(ANSWER_MAX).unwrap_or(look.began_at);
        let answered = timeout_at(until, look.answer.wait_for(Option::is_some)).await;
        if let Ok(Ok(answer)) = answered
            && let Some(answer) = answer.clone()
        {
            return answer;
        }
        let too_slow = || SecretError::TooSlow { name: name.to_owned(), path: path.clone() };
        let mut live = entry.live.lock();
        live.alarm(name, path, "it does not answer");
        let now = Instant::now();
        let is_young = live.seen_at.is_some_and(|seen| now.duration_since(seen) < OLD_MAX);
        if is_young { live.live(name, now) } else { Err(too_slow()) }
    }

    /// The read in progress, or a new one.
    fn look(&self, entry: &Arc<Entry>, name: &str) -> Look {
        let mut under_way = entry.look.lock();
        // One that was interrupted has no sender any more.
        if let Some(look) = &*under_way
            && look.answer.has_changed().is_ok()
            && look.answer.borrow().is_none()
        {
            return look.clone();
        }
        let (told, answer) = watch::channel(None);
        let look = Look { began_at: Instant::now(), answer };
        *under_way = Some(look.clone());
        let (secrets, name) = (self.clone(), name.to_owned());
        drop(tokio::task::spawn_blocking(move || {
            told.send_replace(Some(secrets.live(&name)));
        }));
        look
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use secrecy::ExposeSecret as _;

    use super::*;

    fn in_file(value: &str) -> (tempfile::NamedTempFile, Secrets) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), value).unwrap();
        let source = SecretSource::File(file.path().to_owned());
        (file, Secrets::new(BTreeMap::from([("api".to_owned(), source)])))
    }

    /// Makes the file hang until the returned sender is dropped.
    fn hang(secrets: &Secrets) -> watch::Sender<Answer> {
        let (stuck, answer) = watch::channel(None);
        let look = Look { began_at: Instant::now(), answer };
        *secrets.entries["api"].look.lock() = Some(look);
        stuck
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_hangs_gives_its_last_value_for_a_bounded_time_and_then_a_typed_refusal() {
        let (file, secrets) = in_file("first");
        assert_eq!(secrets.live_soon("api").await.unwrap().newest.value.expose_secret(), "first");
        let stuck = hang(&secrets);
        let asked_at = Instant::now();
        for _ in 0..100 {
            assert_eq!(
                secrets.live_soon("api").await.unwrap().newest.value.expose_secret(),
                "first"
            );
        }
        assert_eq!(asked_at.elapsed(), ANSWER_MAX, "only the first ones wait");
        tokio::time::advance(OLD_MAX).await;
        let refused = secrets.live_soon("api").await.unwrap_err();
        let path = file.path().to_owned();
        assert_eq!(refused, SecretError::TooSlow { name: "api".to_owned(), path });
        assert!(!refused.to_string().contains("first"));
        // The file answers again.
        drop(stuck);
        std::fs::write(file.path(), "second").unwrap();
        let live = secrets.live_soon("api").await.unwrap();
        assert_eq!(live.newest.value.expose_secret(), "second");
        assert_eq!(live.previous.unwrap().value.expose_secret(), "first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_never_answered_is_refused_in_time() {
        let (_file, secrets) = in_file("first");
        let _stuck = hang(&secrets);
        let asked_at = Instant::now();
        let refused = secrets.live_soon("api").await.unwrap_err();
        assert!(matches!(refused, SecretError::TooSlow { .. }), "{refused:?}");
        assert_eq!(asked_at.elapsed(), ANSWER_MAX);
    }

    #[test]
    fn what_was_live_is_known_without_a_look_even_when_it_was_taken_back() {
        let (file, secrets) = in_file("first");
        assert!(secrets.known("api").is_empty(), "nobody was given anything");
        for value in ["first", "second", "third"] {
            std::fs::write(file.path(), value).unwrap();
            secrets.get("api").unwrap();
        }
        file.close().unwrap();
        secrets.get("api").unwrap_err();
        let mut known: Vec<_> =
            secrets.known("api").iter().map(|one| one.expose_secret().to_owned()).collect();
        known.sort();
        assert_eq!(known, ["first", "second", "third"]);
        assert!(secrets.known("other").is_empty());
    }
}
