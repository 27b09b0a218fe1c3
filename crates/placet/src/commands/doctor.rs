//! `placet doctor`: looks at everything a start needs, leaves nothing behind, and says for each thing what to do.
//!
//! Owns the list of checks; others are in [`folder`] and [`servers`]. They are independent: one that fails does not hide the others.

mod folder;
mod running;
mod servers;

use std::{
    collections::BTreeSet,
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use clap::Args as ClapArgs;
use placet_adapter_mcp::connector::not_confined;
use placet_api::tls::EXPIRES_SOON_MS;
use placet_identity::{DevKey, SvidKeeper, Verifier};
use placet_store::postgres::{Inspection, PostgresConfig, inspect};
use placet_types::{
    clock::Clock,
    digest::Digest,
    directory::Directory,
    ids::{GroupId, TenantId},
};
use serde::Serialize;

use crate::{
    clock::SystemClock,
    commands::adapters::state_of,
    compose,
    config::{
        ledger::Choice,
        load::{Config, LocalArgs},
    },
    descriptors,
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    issuers, notices, output, sealing, storage, svids,
    world::{self, World},
};

/// Check the whole setup.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  placet doctor\n  placet doctor -f placet.yaml --json")]
pub(crate) struct Args {
    /// Which configuration, and in which form.
    #[command(flatten)]
    local: LocalArgs,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warn,
    Fail,
}

/// One check.
#[derive(Debug, Clone, Serialize)]
struct Check {
    about: &'static str,
    level: Level,
    found: String,
    todo: Option<String>,
}

impl Check {
    fn ok(about: &'static str, found: impl Into<String>) -> Self {
        Self { about, level: Level::Ok, found: found.into(), todo: None }
    }

    fn warn(about: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { about, level: Level::Warn, found: found.into(), todo: Some(todo.into()) }
    }

    fn fail(about: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { about, level: Level::Fail, found: found.into(), todo: Some(todo.into()) }
    }

    fn of(about: &'static str, failure: &Failure) -> Self {
        Self {
            about,
            level: Level::Fail,
            found: failure.in_a_line(),
            todo: Some(failure.remedy()).filter(|todo| !todo.is_empty()),
        }
    }
}

/// Checks everything.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let mut checks = Vec::new();
    match args.local.load(environment) {
        // Without a configuration there is nothing to check the rest against.
        Err(failure) => checks.push(Check::of("configuration", &failure)),
        Ok(config) => {
            checks.push(configuration(&config));
            checks.extend(
                descriptors::shortage(&config)
                    .map(|found| Check::warn("open files", found, descriptors::REMEDY)),
            );
            checks.extend(folder::checks(&config));
            checks.push(ledger(&config).await);
            checks.extend(failing("sealing key", sealing::check_key(&config, &config.data)));
            checks.extend(failing("telemetry", compose::check_telemetry(&config)));
            checks.extend(contracts(&config));
            if let Ok(entries) = world::contracts(&config) {
                checks.extend(servers::checks(&entries, &config).await);
            }
            let (policies, found) = policies_and_issuers(&config).await;
            checks.extend(found);
            let (found, _svids) = secrets(&config).await;
            checks.push(found);
            checks.extend(channels(&config).await);
            let running = running::check(&config, policies).await;
            // That a port is taken is no finding where the server of this configuration runs.
            let ports = ports(&config).into_iter();
            checks.extend(ports.filter(|port| running.is_none() || port.level != Level::Warn));
            checks.extend(running);
        }
    }
    let failed = checks.iter().any(|check| check.level == Level::Fail);
    let warned = checks.iter().any(|check| check.level == Level::Warn);
    output::answer(args.local.json, &checks, |checks| {
        checks.iter().for_each(print_report);
        output::line(if failed {
            "fix what failed before `placet serve` can start"
        } else if warned {
            "look at what is marked `warn`; nothing else that was looked at keeps `placet serve` from starting; the journal was not read"
        } else {
            "nothing that was looked at keeps `placet serve` from starting; the journal was not read"
        });
    })?;
    Ok(if failed { Exit::Findings } else { Exit::Ok })
}

fn print_report(check: &Check) {
    let mark = match check.level {
        Level::Ok => "ok  ",
        Level::Warn => "warn",
        Level::Fail => "FAIL",
    };
    output::line(format!("{mark}  {:<14} {}", check.about, check.found));
    if let Some(todo) = &check.todo {
        output::line(format!("      {:<14} → {todo}", ""));
    }
}

/// A check that is worth a line only if it fails.
fn failing(about: &'static str, checked: Result<(), Failure>) -> Option<Check> {
    checked.err().map(|failure| Check::of(about, &failure))
}

fn configuration(config: &Config) -> Check {
    let origin = config
        .origin
        .as_ref()
        .map_or_else(|| "the defaults".to_owned(), |path| path.display().to_string());
    match config.check_listeners() {
        Ok(()) => {
            Check::ok("configuration", format!("{origin}, environment `{}`", config.environment))
        }
        Err(failure) => Check::of("configuration", &failure),
    }
}

/// Whether the configured ledger can be used; for a database, that it answers and is durable as it claims.
async fn ledger(config: &Config) -> Check {
    let about = "ledger";
    let postgres = match storage::choice(config, &config.data) {
        Ok(Choice::Embedded) => {
            let usable = storage::check_finished(&config.data)
                .and_then(|()| storage::check_own(&config.data));
            return match usable {
                Ok(()) => Check::ok(
                    about,
                    "in the data folder, for one process; `placet ledger fsck` looks into it",
                ),
                Err(failure) => Check::of(about, &failure),
            };
        }
        Ok(Choice::Postgres(postgres)) => postgres,
        Err(failure) => return Check::of(about, &failure),
    };
    let found = postgres.url.to_string();
    let witness = Some(storage::witness_folder(&config.data));
    match inspect(&PostgresConfig { witness, ..*postgres }).await {
        Ok(Inspection { nodes: Some(nodes), .. }) => {
            Check::ok(about, format!("{found}: safe settings, {nodes} nodes at work"))
        }
        Ok(Inspection { nodes: None, .. }) => Check::ok(
            about,
            format!("{found}: safe settings, no tables yet; the first start makes them"),
        ),
        Err(error) => {
            let todo = "fix the database or its address under `ledger:`; until then nothing starts";
            Check::fail(about, error.to_string(), todo)
        }
    }
}

fn contracts(config: &Config) -> Vec<Check> {
    let about = "contracts";
    let entries = match world::contracts(config) {
        Err(problem) => {
            return vec![Check::fail(
                about,
                problem.to_string(),
                "`placet schema contract` prints every key",
            )];
        }
        Ok(entries) => entries,
    };
    let mut checks = Vec::new();
    let all: Vec<_> =
        entries.iter().flat_map(|entry| entry.contract.capabilities.values()).collect();
    let callable = all.iter().filter(|capability| capability.is_callable()).count();
    checks.push(Check::ok(
        about,
        format!(
            "{}, {}, {callable} callable",
            output::counted(entries.len(), "adapter", "adapters"),
            output::counted(all.len(), "tool", "tools")
        ),
    ));
    for entry in &entries {
        let gaps = not_confined(&entry.contract.transport);
        if !gaps.is_empty() {
            let found = format!(
                "nothing confines of the child process of `{}`: {}",
                entry.contract.adapter,
                gaps.join(", ")
            );
            let todo = "a kernel with Landlock (Linux 6.7 or later) enforces it; else confine it by means of the system, and say `process: { network: unconfined }` for TCP";
            checks.push(Check::warn("child process", found, todo));
        }
    }
    for capability in
        all.iter().filter(|capability| capability.enabled && !capability.is_callable())
    {
        let todo = if capability.pin.is_none() {
            format!(
                "`placet adapters diff {0}`, then `placet adapters pin {0}`",
                capability.id.adapter()
            )
        } else {
            "it cannot be called as its server describes it: change it there, or set `enabled: false` in the contract"
                .to_owned()
        };
        checks.push(Check::warn(
            "tool",
            format!("`{}` is {}", capability.id.tool_name(), state_of(capability)),
            todo,
        ));
    }
    checks
}

/// Whether policies and issuers can be used, and the digest of the policies.
async fn policies_and_issuers(config: &Config) -> (Option<Digest>, Vec<Check>) {
    let world = match World::load(config) {
        Ok(world) => world,
        Err(failure) => return (None, vec![Check::of("policies", &failure)]),
    };
    let compiled = world.compile(&world.bundle, config);
    let digest = compiled.as_ref().ok().map(|snapshot| snapshot.digest());
    let mut checks = vec![match compiled {
        Ok(snapshot) => Check::ok(
            "policies",
            format!("{} policies, {}", snapshot.policies().count(), snapshot.digest().short()),
        ),
        Err(problems) => {
            let first = problems.first().map(ToString::to_string).unwrap_or_default();
            Check::fail(
                "policies",
                format!(
                    "{}, the first: {first}",
                    output::counted(problems.len(), "problem", "problems")
                ),
                "`placet policy check` lists them",
            )
        }
    }];
    checks.extend(issuers(config, &world).await);
    (digest, checks)
}

async fn issuers(config: &Config, world: &World) -> Vec<Check> {
    let about = "issuers";
    if config.development_tokens && !DevKey::path(&config.data).try_exists().unwrap_or(false) {
        return vec![Check::ok(about, "the development key, made at the first start")];
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let verifier = match issuers::verifier(config, &world.directory, &[], &clock) {
        Ok(verifier) => verifier,
        Err(failure) => return vec![Check::of(about, &failure)],
    };
    let mut checks: Vec<Check> = tls(config, &verifier).into_iter().collect();
    let failures = verifier.refresh().await;
    if let Some((issuer, cause)) = failures.first() {
        let found = format!("the keys of `{issuer}` cannot be had: {cause}");
        let todo = "check its `keys`; nobody with its tokens can call";
        checks.push(Check::fail(about, found, todo));
        return checks;
    }
    let development = if config.development_tokens { ", and the development key" } else { "" };
    let configured = [
        config.identity.issuers.len(),
        config.identity.trust_domains.len(),
        config.identity.client_authorities.len(),
    ];
    let configured = configured.into_iter().fold(0, usize::saturating_add);
    let issuers = config.identity.issuers.iter().map(|issuer| &issuer.tenant);
    let domains = config.identity.trust_domains.iter().map(|domain| &domain.tenant);
    let authorities = config.identity.client_authorities.iter().map(|authority| &authority.tenant);
    let mut tenants = issuers.chain(domains).chain(authorities);
    if let Some(tenant) = tenants.find(|tenant| !world.directory.tenants.contains_key(*tenant)) {
        let found = format!("tenant `{tenant}` is not in the directory");
        checks.push(Check::warn(
            about,
            found,
            "add it there, or fix the name; its callers may do nothing",
        ));
        return checks;
    }
    checks.push(Check::ok(about, format!("{configured} configured{development}")));
    checks
}

/// The certificate of the API, if callers speak TLS.
fn tls(config: &Config, verifier: &Verifier) -> Option<Check> {
    let settings = compose::tls_settings(config, verifier)?;
    Some(match settings.check() {
        Ok(until) => {
            let found = format!("certificate and key can be used, until {until}");
            if until < SystemClock.now().plus_ms(EXPIRES_SOON_MS) {
                Check::warn("tls", found, "renew it: when it ends, callers refuse every connection")
            } else {
                Check::ok("tls", found)
            }
        }
        Err(error) => Check::fail("tls", error.to_string(), "fix the file, or take `tls` out"),
    })
}

/// Whether every secret is available; with the keeper that renews those of the agent, which other checks need too.
async fn secrets(config: &Config) -> (Check, Option<SvidKeeper>) {
    const ABOUT: &str = "secrets";
    let count = config.secrets.names().count();
    if let Err(error) = config.secrets.check() {
        return (Check::fail(ABOUT, error.to_string(), "provide it, or take it out"), None);
    }
    match svids::open(config).await {
        Err(failure) => (Check::of(ABOUT, &failure), None),
        Ok(svids) => (Check::ok(ABOUT, format!("{count} can be read")), svids),
    }
}

/// Whether the channels have what they need; no message is sent.
async fn channels(config: &Config) -> Option<Check> {
    const ABOUT: &str = "notifications";
    if config.notifications.is_empty() {
        return None;
    }
    let post = match notices::post(config, None, &[]) {
        Ok(post) => post,
        Err(failure) => return Some(Check::of(ABOUT, &failure)),
    };
    for name in config.notifications.channels.keys() {
        if let Err(failure) = post.check(name).await {
            let todo = "fix the secret, or take the channel out";
            return Some(Check::fail(ABOUT, format!("`{name}`: {}", failure.why), todo));
        }
    }
    let count = output::counted(config.notifications.channels.len(), "channel", "channels");
    Some(match World::load(config).ok().and_then(|world| unmatched(config, &world.directory)) {
        Some(found) => Check::warn(ABOUT, found, "fix the name: nobody is told because of it"),
        None => Check::ok(ABOUT, format!("{count}; `placet notifications test` tries one")),
    })
}

/// What a route names that the directory does not have.
fn unmatched(config: &Config, directory: &Directory) -> Option<String> {
    config.notifications.routes.iter().find_map(|route| {
        let is_of = |id: &TenantId| route.tenant.as_ref().is_none_or(|tenant| tenant == id);
        let mut tenants = directory.tenants.iter().filter(|(id, _)| is_of(id)).peekable();
        if let (Some(tenant), None) = (&route.tenant, tenants.peek()) {
            return Some(format!(
                "a route is for the tenant `{tenant}`, which the directory lacks"
            ));
        }
        let groups: BTreeSet<&GroupId> = tenants.flat_map(|(_, one)| one.groups.keys()).collect();
        let group = route.groups.iter().find(|group| !groups.contains(group))?;
        Some(format!("a route is for the group `{group}`, which the directory lacks"))
    })
}

fn ports(config: &Config) -> Vec<Check> {
    [("listen", config.server.listen), ("admin listen", config.server.admin_listen)]
        .map(|(about, address)| port(about, address))
        .into()
}

fn port(about: &'static str, address: SocketAddr) -> Check {
    match TcpListener::bind(address) {
        Ok(listener) => {
            drop(listener);
            Check::ok(about, format!("{address} is free"))
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Check::warn(
            about,
            format!("{address} is taken"),
            "`placet serve` cannot start while it is: stop what listens there, or name another address in the configuration",
        ),
        Err(error) => Check::fail(
            about,
            format!("{address}: {error}"),
            "name another address in the configuration",
        ),
    }
}
