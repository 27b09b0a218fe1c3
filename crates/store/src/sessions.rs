//! Sessions of people at the console, in memory and in a folder.
//!
//! Owns one small file for each session, so that a restart signs nobody out. Sessions are not part of the ledger: no backup holds them, and
//! a person whose session is lost signs in again. Invariant: once an end was answered it survives a restart and a power cut.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use placet_types::clock::{Clock, Timestamp};
use placet_types::digest::Digest;
use placet_types::sessions::{
    KeptSession, SessionAnswer, SessionLimits, SessionStore, SessionsUnavailable,
};

use crate::journal::medium::{Disk, replace_file};

/// The largest file that is accepted as a session: the bytes of a sign-in are written as numbers.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most files that are read.
const FILES_MAX: usize = 200_000;
const OWNER_ONLY_FOLDER: u32 = 0o700;
const ENDING: &str = "session";

/// Keeps sessions for one process.
pub struct LocalSessions {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    folder: PathBuf,
    all: Mutex<BTreeMap<Digest, KeptSession>>,
    /// Held over every change, so that files and memory change in the same order.
    changing: Mutex<()>,
}

impl fmt::Debug for LocalSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSessions").field("folder", &self.inner.folder).finish_non_exhaustive()
    }
}

impl LocalSessions {
    /// The sessions of a folder, which is created if missing. Anything in it that is not a session is deleted.
    ///
    /// # Errors
    /// When the folder cannot be made or read.
    pub fn open(folder: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(OWNER_ONLY_FOLDER).create(folder)?;
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(folder)?.take(FILES_MAX) {
            let path = entry?.path();
            match read(&path) {
                Some(session) if path == path_of(folder, &session.key) => {
                    all.insert(session.key, session);
                }
                // It was being written when the process ended, or was altered: its person signs in again.
                Some(_) | None => fs::remove_file(&path)?,
            }
        }
        let (all, changing, folder) = (Mutex::new(all), Mutex::default(), folder.to_owned());
        Ok(Self { inner: Arc::new(Inner { clock, folder, all, changing }) })
    }

    /// A change, which may block on a file.
    fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Inner) -> io::Result<T> + Send + 'static,
    ) -> SessionAnswer<'_, T> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let changed = tokio::task::spawn_blocking(move || {
                let _changing = inner.changing.lock();
                change(&inner)
            });
            let changed = changed.await.map_err(|error| SessionsUnavailable(error.to_string()))?;
            changed.map_err(|error| SessionsUnavailable(error.to_string()))
        })
    }
}

impl SessionStore for LocalSessions {
    fn time(&self) -> Timestamp {
        self.inner.clock.now()
    }

    fn begin(&self, session: KeptSession, limits: SessionLimits) -> SessionAnswer<'_, bool> {
        self.change(move |inner| inner.begin(session, limits))
    }

    fn find(&self, key: Digest) -> SessionAnswer<'_, Option<KeptSession>> {
        let found = self.inner.all.lock().get(&key).cloned();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn used(&self, key: Digest, at: Timestamp) -> SessionAnswer<'_, ()> {
        self.change(move |inner| {
            let used = inner.all.lock().get(&key).cloned();
            let Some(session) = used.filter(|session| session.used_at < at) else { return Ok(()) };
            let session = KeptSession { used_at: at, ..session };
            inner.write(&session)?;
            drop(inner.all.lock().insert(key, session));
            Ok(())
        })
    }

    fn end(&self, key: Digest) -> SessionAnswer<'_, ()> {
        self.change(move |inner| inner.end(&[key]))
    }
}

impl Inner {
    fn begin(&self, session: KeptSession, limits: SessionLimits) -> io::Result<bool> {
        let (over, count) = {
            let all = self.all.lock();
            let mut over: Vec<Digest> = Vec::new();
            let mut own: Vec<(Timestamp, Digest)> = Vec::new();
            for (key, other) in &*all {
                if !limits.counts(other) {
                    over.push(*key);
                } else if other.person == session.person {
                    own.push((other.began_at, *key));
                }
            }
            own.sort_unstable();
            let too_many = own.len().saturating_add(1).saturating_sub(limits.per_person);
            over.extend(own.into_iter().take(too_many).map(|(_, key)| key));
            let count = all.len().saturating_sub(over.len());
            (over, count)
        };
        self.end(&over)?;
        if count >= limits.all {
            return Ok(false);
        }
        self.write(&session)?;
        drop(self.all.lock().insert(session.key, session));
        Ok(true)
    }

    /// Memory first: if the file cannot be deleted, this process at least has ended it, and the caller gets the error.
    fn end(&self, keys: &[Digest]) -> io::Result<()> {
        for key in keys {
            drop(self.all.lock().remove(key));
        }
        if keys.is_empty() {
            return Ok(());
        }
        for key in keys {
            match fs::remove_file(path_of(&self.folder, key)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        File::open(&self.folder)?.sync_all()
    }

    /// A file is a whole session or absent.
    fn write(&self, session: &KeptSession) -> io::Result<()> {
        let text = serde_json::to_vec(session).map_err(io::Error::other)?;
        replace_file(&Disk, &path_of(&self.folder, &session.key), &text)
    }
}

fn path_of(folder: &Path, key: &Digest) -> PathBuf {
    folder.join(hex::encode(key.as_bytes())).with_extension(ENDING)
}

/// The session of a file; `None` if it is not one.
fn read(path: &Path) -> Option<KeptSession> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use placet_testkit::clock::TestClock;

    use placet_types::clock::Timestamp;
    use placet_types::digest::Digest;
    use placet_types::sessions::{KeptSession, SessionLimits, SessionStore};

    use super::LocalSessions;

    const NOW: i64 = 1_790_000_000_000;

    fn session(secret: &str, person: &str, began_ms: i64) -> KeptSession {
        KeptSession {
            key: Digest::of(secret.as_bytes()),
            person: Digest::of(person.as_bytes()),
            began_at: Timestamp::from_ms(NOW).plus_ms(began_ms),
            used_at: Timestamp::from_ms(NOW).plus_ms(began_ms),
            sealed: secret.as_bytes().to_vec(),
        }
    }

    fn limits(since: i64) -> SessionLimits {
        let since = Timestamp::from_ms(NOW).plus_ms(since);
        SessionLimits { began_since: since, used_since: since, per_person: 2, all: 4 }
    }

    async fn is_there(store: &dyn SessionStore, secret: &str) -> bool {
        store.find(Digest::of(secret.as_bytes())).await.unwrap().is_some()
    }

    /// What every store of sessions does.
    pub(crate) async fn keeps_sessions(store: &dyn SessionStore) {
        for (place, secret) in ["a1", "a2", "a3"].into_iter().enumerate() {
            let began = i64::try_from(place).unwrap();
            assert!(store.begin(session(secret, "ana", began), limits(-10)).await.unwrap());
        }
        assert!(!is_there(store, "a1").await, "the oldest gave way");
        let found = store.find(Digest::of(b"a2")).await.unwrap().unwrap();
        assert_eq!(found, session("a2", "ana", 1));
        for person in ["ben", "cleo"] {
            assert!(store.begin(session(person, person, 5), limits(-10)).await.unwrap());
        }
        assert!(!store.begin(session("dora", "dora", 6), limits(-10)).await.unwrap(), "no room");
        assert!(!is_there(store, "dora").await);

        let later = Timestamp::from_ms(NOW).plus_ms(50);
        let (a2, nobody) = (Digest::of(b"a2"), Digest::of(b"nobody"));
        store.used(a2, later).await.unwrap();
        store.used(a2, Timestamp::from_ms(NOW)).await.unwrap();
        assert_eq!(store.find(a2).await.unwrap().unwrap().used_at, later, "use is not taken back");
        store.used(nobody, later).await.unwrap();
        assert!(store.find(nobody).await.unwrap().is_none());

        store.end(a2).await.unwrap();
        store.end(a2).await.unwrap();
        assert!(!is_there(store, "a2").await);
        // Expired ones make room.
        assert!(store.begin(session("emma", "emma", 9), limits(4)).await.unwrap());
        assert!(!is_there(store, "a3").await && is_there(store, "ben").await);
    }

    #[tokio::test]
    async fn sessions_are_few_for_a_person_bounded_together_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        keeps_sessions(&LocalSessions::open(folder.path(), TestClock::at(NOW)).unwrap()).await;
    }

    #[tokio::test]
    async fn a_restart_finds_what_there_was_and_nothing_that_was_ended_or_altered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions");
        let open = || LocalSessions::open(&path, TestClock::at(NOW)).unwrap();
        let first = open();
        for secret in ["kept", "ended", "altered", "moved"] {
            assert!(first.begin(session(secret, secret, 0), limits(-10)).await.unwrap());
        }
        first.used(Digest::of(b"kept"), Timestamp::from_ms(NOW).plus_ms(7)).await.unwrap();
        first.end(Digest::of(b"ended")).await.unwrap();
        drop(first);
        let file = |secret: &str| {
            path.join(hex::encode(Digest::of(secret.as_bytes()).as_bytes()))
                .with_extension("session")
        };
        std::fs::write(file("altered"), "{}").unwrap();
        std::fs::rename(file("moved"), file("another")).unwrap();
        std::fs::write(path.join("half.tmp"), "{").unwrap();
        let second = open();
        let kept = second.find(Digest::of(b"kept")).await.unwrap().unwrap();
        assert_eq!(kept.used_at, Timestamp::from_ms(NOW).plus_ms(7));
        for gone in ["ended", "altered", "moved", "another"] {
            assert!(!is_there(&second, gone).await, "{gone}");
        }
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(file("kept")).unwrap().permissions(),
        );
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
}
