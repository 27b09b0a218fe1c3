//! What a running server reads again: policies, contracts, pins, the directory and the issuers of the configuration.
//!
//! Owns which keys of the configuration are applied by a reload, and that a set of files is taken only as a whole. Invariant: what is read
//! passes the checks of a start, with the settings of the start for every key that is not applied.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use placet_engine::reload::{Files, Loaded};
use placet_identity::Verifier;
use placet_types::digest::{Digest, DigestBuilder};

use crate::{
    config::{file::ConfigFile, load::Config},
    environment::Environment,
    failure::{Attempted as _, Failure},
    issuers,
    world::{self, World, refused},
    yaml,
};

/// The keys of the configuration that a reload applies.
const APPLIED: [&str; 4] = ["contracts", "directory", "issuers", "policies"];
/// How often files that change while being read are read again, and the pause in between.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// The files that the configuration of this process names.
#[derive(Debug, Clone)]
pub(crate) struct ConfiguredFiles {
    started: Arc<Started>,
}

#[derive(Debug)]
struct Started {
    config: Config,
    environment: Environment,
    verifier: Verifier,
    own_listeners: Vec<SocketAddr>,
}

impl ConfiguredFiles {
    /// Those of `config`, for the issuers of `verifier`.
    pub(crate) fn new(config: &Config, verifier: &Verifier, own_listeners: &[SocketAddr]) -> Self {
        Self {
            started: Arc::new(Started {
                config: config.clone(),
                environment: Environment::of_this_process(),
                verifier: verifier.clone(),
                own_listeners: own_listeners.to_vec(),
            }),
        }
    }
}

impl Files for ConfiguredFiles {
    fn read(&self) -> BoxFuture<'_, Result<Loaded, Vec<String>>> {
        async {
            for _ in 0..TRIES {
                let started = Arc::clone(&self.started);
                let reading = tokio::task::spawn_blocking(move || started.read_whole());
                match reading.await.map_err(|error| vec![error.to_string()])? {
                    Some(read) => return read,
                    None => tokio::time::sleep(PAUSE).await,
                }
            }
            Err(vec!["the files kept changing while they were read: try once more".to_owned()])
        }
        .boxed()
    }
}

impl Started {
    /// The configuration of the start with the keys of `now` that are applied.
    fn with(&self, now: &Config) -> Config {
        let is_as_before = self.config.written.development_tokens == now.written.development_tokens;
        let development_tokens =
            if is_as_before { now.development_tokens } else { self.config.development_tokens };
        let mut config = self.config.clone();
        config.contracts.clone_from(&now.contracts);
        config.policies.clone_from(&now.policies);
        config.directory.clone_from(&now.directory);
        config.identity.issuers.clone_from(&now.identity.issuers);
        config.development_tokens = development_tokens;
        config.written.clone_from(&now.written);
        config
    }

    fn fingerprint(&self) -> Result<Digest, Failure> {
        let now = Config::read(self.config.origin.clone(), &self.environment)?;
        fingerprint(&self.with(&now))
    }

    /// Reads everything; `None` if a file changed meanwhile: what was read may then be neither the old nor the new version.
    fn read_whole(&self) -> Option<Result<Loaded, Vec<String>>> {
        let before = self.fingerprint().ok();
        let read = self.read();
        let is_torn = read.is_ok() && (before.is_none() || before != self.fingerprint().ok());
        (!is_torn).then_some(read)
    }

    fn read(&self) -> Result<Loaded, Vec<String>> {
        let now = Config::read(self.config.origin.clone(), &self.environment);
        let now = now.map_err(|failure| failure.lines())?;
        let needs_restart = needs_restart(&self.config.written, &now.written);
        self.check_next_start(&now).map_err(|failure| failure.lines())?;
        self.load(&now, &needs_restart).map_err(|failure| {
            let mut lines = failure.lines();
            // What a file names may be there, and not be known before a restart.
            if let (Some(last), false) = (lines.last_mut(), needs_restart.is_empty()) {
                last.push_str("; if it is about what was changed in the configuration under `");
                last.push_str(&needs_restart.join("`, `"));
                last.push_str("`, restart: a reload does not apply that");
            }
            lines
        })
    }

    /// Refuses keys that a reload does not apply, and that the next start would refuse. Addresses of the command line stay.
    fn check_next_start(&self, now: &Config) -> Result<(), Failure> {
        let (started, mut next) = (&self.config, now.clone());
        if now.written.listen == started.written.listen {
            next.server.listen = started.server.listen;
        }
        if now.written.admin_listen == started.written.admin_listen {
            next.server.admin_listen = started.server.admin_listen;
        }
        next.check_listeners()?;
        next.check_secrets()
    }

    fn load(&self, now: &Config, needs_restart: &[String]) -> Result<Loaded, Failure> {
        let config = self.with(now);
        config.check_listeners()?;
        let name = config.origin.as_deref().unwrap_or(Path::new("the defaults"));
        let console = config.console.check(name, &config.identity.issuers, &config.secrets);
        console.attempted("the issuers cannot be used")?;
        let world = World::load(&config)?;
        let policies = world.compile(&world.bundle, &config).map_err(|found| refused(&found))?;
        let issuers =
            issuers::next_issuers(&self.verifier, &config, &world.directory, &self.own_listeners)?;
        Ok(Loaded {
            contracts: world.checked(),
            policies: Arc::new(policies),
            directory: Arc::new(world.directory),
            issuers,
            issuers_digest: issuers::issuers_digest(&config),
            needs_restart: needs_restart.to_vec(),
        })
    }
}

/// What is read from the files that a configuration names, none of which changed meanwhile.
pub(crate) fn read_unchanged<T>(
    config: &Config,
    read: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let before = fingerprint(config).ok();
    let read = read()?;
    if before.is_none() || before != fingerprint(config).ok() {
        return Err(Failure::new("the files changed while they were read")
            .try_this("start again once all of them are in place"));
    }
    Ok(read)
}

/// A digest over names and bytes of the configuration file and of all files that it names for policies, contracts and the directory.
fn fingerprint(config: &Config) -> Result<Digest, Failure> {
    let listed = |folder: &Path, extensions: &[&str]| {
        let what = || format!("the files in `{}` cannot be listed", folder.display());
        world::files_of(folder, extensions).map_err(|error| Failure::new(what()).because(error))
    };
    let mut paths: Vec<PathBuf> = config.origin.iter().chain(&config.directory).cloned().collect();
    if let Some(root) = &config.contracts {
        let folder = root.join(config.environment.as_str());
        paths.extend(listed(&folder, &["yaml", "yml"])?);
    }
    if let Some(folder) = &config.policies {
        paths.extend(listed(folder, &["cedar"])?);
    }
    let mut builder = DigestBuilder::new("placet.files.v1");
    for path in paths {
        let text = yaml::read_text(&path).attempted("a configured file cannot be read")?;
        builder = builder.field("name", path.as_os_str().as_encoded_bytes());
        builder = builder.field("text", text.as_bytes());
    }
    Ok(builder.finish())
}

/// The keys that differ and that a reload does not apply.
fn needs_restart(before: &ConfigFile, now: &ConfigFile) -> Vec<String> {
    let keys = |file: &ConfigFile| match serde_json::to_value(file) {
        Ok(serde_json::Value::Object(keys)) => keys,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    let (before, now) = (keys(before), keys(now));
    let changed = now.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    let changed = changed.map(|(key, _)| key.clone());
    changed.filter(|key| !APPLIED.contains(&key.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::needs_restart;
    use crate::config::file::ConfigFile;

    #[test]
    fn only_keys_that_a_reload_does_not_apply_need_a_restart() {
        let before = ConfigFile::default();
        let mut now = ConfigFile { policies: Some("policies".into()), ..before.clone() };
        assert_eq!(needs_restart(&before, &now), Vec::<String>::new());
        now.audience = "other".to_owned();
        now.http.body_bytes_max.0 = 2;
        assert_eq!(needs_restart(&before, &now), ["audience", "http"]);
    }
}
