//! `placet serve`: the engine and its listeners, until it is asked to stop.
//!
//! Owns what is printed at the start, the signals and the exit code. Invariant: a process whose engine cannot go on ends with
//! a nonzero code, so that a supervisor restarts it.

use std::{
    future::{self, Future},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use clap::{
    Args as ClapArgs,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use placet_adapter_files::files::FilesSettings;
use placet_engine::engine::Engine;
use placet_telemetry::export::LogFormat;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use url::Url;

use crate::{
    commands::console::{self, LINK_LIFE},
    compose::{self, Running},
    config::load::{Config, ConfigArgs},
    descriptors,
    development::{DEV_AGENT, DEV_TENANT},
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output, reload, sealing,
    shared_engine::{self, Announced},
    world::World,
    yaml,
};

/// Start the engine and its HTTP listeners.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Without a configuration file everything has a default: loopback, the data folder ./placet-data, the\n\
    files adapter in it, the shipped policies, a development directory and a development key.\n\n\
    Examples:\n  placet serve\n  placet serve -f placet.yaml --log json\n  placet serve --data /var/lib/placet --listen 127.0.0.1:7500\n\n\
    SIGHUP reads policies, contracts, directory and issuers again, as `placet reload` does; SIGTERM and Ctrl-C stop the server."
)]
pub(crate) struct Args {
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
    /// The address and port of the API; overrides the configuration file [default: 127.0.0.1:7411].
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,
    /// The address and port of health and metrics; overrides the configuration file [default: 127.0.0.1:7412].
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    admin_listen: Option<SocketAddr>,
    /// The format of log lines; overrides the configuration file.
    #[arg(
        long,
        value_name = "FORMAT",
        value_parser = PossibleValuesParser::new(LogFormat::ALL.map(LogFormat::as_str))
            .try_map(|word| word.parse::<LogFormat>())
    )]
    log: Option<LogFormat>,
    /// Print the addresses as one line of JSON instead of a greeting; without a sign-in link, which `placet console --json` prints.
    #[arg(long)]
    json: bool,
    /// Let policies, contracts and a directory that were active before replace those of this epoch; the error of the refused start names
    /// it. Only nodes that share a ledger need it. `placet reload --roll-back` does the same without a restart.
    #[arg(long, value_name = "EPOCH")]
    roll_back_policies: Option<u64>,
    /// Stop when no `placet mcp` and no `placet wrap` has used this data folder for this long, no call has come, and none waits for people.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    unused_stop_s: Option<u64>,
    /// Fault injection: hold the answer of a file write or delete back, to rehearse a crash in between.
    #[arg(long, value_name = "MS", hide = true, default_value_t = 0)]
    inject_pause_after_effect_ms: u64,
}

/// An address to listen on.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_not_one| yaml::AN_ADDRESS.to_owned())
}

/// Serves until asked to stop.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let mut config = Config::load(&args.config, environment)?;
    config.check_secrets()?;
    config.server.listen = args.listen.unwrap_or(config.server.listen);
    config.server.admin_listen = args.admin_listen.unwrap_or(config.server.admin_listen);
    config.telemetry.log_format = args.log.unwrap_or(config.telemetry.log_format);
    config.settings.ledger.rolls_back = args.roll_back_policies;
    let world = reload::read_unchanged(&config, || World::load(&config))?;
    let files = FilesSettings { pause_after_effect_ms: args.inject_pause_after_effect_ms };
    // Registered before anything is open, so that no signal is missed.
    let mut signals = Signals::listen()?;
    let running = tokio::select! {
        running = compose::start(&config, &world, files) => running?,
        () = signals.next() => return Ok(Exit::Ok),
    };
    config.secrets.warn_of_open_files();
    if let Some(shortage) = descriptors::shortage(&config) {
        tracing::warn!("{shortage}: {}", descriptors::REMEDY);
    }
    greet(args, &config, &world, &running, environment.program());
    let announced = announced(&config, &running).await?;
    let unused = unused(args, &config, running.engine.clone());
    let Running { engine, bound, telemetry, notary, svids: _svids, lock: _lock, .. } = running;
    let (asked, mut heard) = tokio::sync::watch::channel(false);
    let served = bound.serve(engine.clone(), async move {
        // The sender outlives the listeners; were it gone, stopping would be right as well.
        heard.wait_for(|asked| *asked).await.map(|_| ()).unwrap_or_default();
    });
    let hangups = signals.hangup.take();
    let reloading = tokio::spawn(reload_on_hangup(engine.clone(), hangups));
    let ended = tokio::select! {
        ended = until_stopped(served, unused, announced, &engine, &notary, &mut signals, &asked) => ended,
        reason = engine.stopped() => {
            Err(ended_by(&reason))
        }
    };
    reloading.abort();
    if let Err(error) = telemetry.shutdown().await {
        output::note(format!("note: {error}"));
    }
    ended.map(|()| Exit::Ok)
}

/// Tells clients of this data folder where the engine listens.
async fn announced(config: &Config, running: &Running) -> Result<Option<Announced>, Failure> {
    let scheme = if running.bound.is_tls() { "https" } else { "http" };
    let mut address = running.bound.address();
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let url = Url::parse(&format!("{scheme}://{address}")).attempted("it listens nowhere")?;
    Announced::at(&config.data, url).await
}

/// Returns when nobody has used the engine for the requested time, if one was given.
async fn unused(args: &Args, config: &Config, engine: Engine) {
    let Some(limit) = args.unused_stop_s.map(Duration::from_secs) else {
        return future::pending().await;
    };
    shared_engine::until_unused(&config.data, limit, || engine.use_made()).await;
}

/// The end of an engine that cannot go on.
fn ended_by(reason: &str) -> Failure {
    let failure = Failure::new("the engine cannot go on").because(reason);
    if reason.starts_with(crate::sealing::NOT_AFTER) {
        return failure
            .try_this("do not start it again as it is: it would not go on from there either")
            .try_this("`placet audit verify` says more; restore the newest copy: a ledger that forgets would execute again");
    }
    failure.try_this("fix what is named above, if it is still so, and start it again: it recovers what is recorded")
}

/// Reloads on every SIGHUP. The engine logs the result.
async fn reload_on_hangup(engine: Engine, hangup: Option<Signal>) {
    let Some(mut hangup) = hangup else { return };
    while hangup.recv().await.is_some() {
        tracing::info!("SIGHUP: policies, contracts, directory and issuers are read again");
        drop(engine.reload("SIGHUP").await);
    }
}

/// Serves, and on a signal lets open requests end; on a second one it ends at once.
async fn until_stopped(
    served: impl Future<Output = Result<(), placet_api::listen::ServerError>>,
    unused: impl Future<Output = ()>,
    announced: Option<Announced>,
    engine: &Engine,
    notary: &placet_store::notary::Notary,
    signals: &mut Signals,
    asked: &tokio::sync::watch::Sender<bool>,
) -> Result<(), Failure> {
    tokio::pin!(served);
    tokio::select! {
        served = &mut served => return served.attempted("a listener failed"),
        () = signals.next() => {}
        () = unused => tracing::info!("no client uses this data folder any more"),
    }
    // A client that looks for an engine from here on starts another.
    drop(announced);
    tracing::info!("stopping: nothing new is taken or sent, open calls get their time to end");
    engine.begin_stop();
    asked.send_replace(true);
    let stop = async {
        let served = served.await;
        sealing::at_stop(notary).await;
        engine.shutdown().await;
        served.attempted("a listener failed")
    };
    tokio::select! {
        stopped = stop => stopped,
        () = signals.next() => Err(Failure::new("stopped at once, because it was asked twice")),
    }
}

/// The signals that ask a process to stop or to reload.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Asks for a reload; taken out by the task that reloads.
    hangup: Option<Signal>,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let what = "signals cannot be listened for";
        Ok(Self {
            terminate: signal(SignalKind::terminate()).attempted(what)?,
            interrupt: signal(SignalKind::interrupt()).attempted(what)?,
            hangup: Some(signal(SignalKind::hangup()).attempted(what)?),
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn greet(args: &Args, config: &Config, world: &World, running: &Running, program: &str) {
    let (listen, admin) = (running.bound.address(), running.bound.admin_address());
    let scheme = if running.bound.is_tls() { "https" } else { "http" };
    let greeting = Greeting { args, config, scheme, listen, program };
    if args.json {
        return output::json_line(&json!({
            "listen": format!("{scheme}://{listen}"),
            "admin_listen": format!("http://{admin}"),
            "data": config.data,
            "version": env!("CARGO_PKG_VERSION"),
        }));
    }
    let tools = world.contracts.iter().map(|entry| entry.contract.capabilities.len());
    let tools = output::counted(tools.fold(0, usize::saturating_add), "tool", "tools");
    let adapters = output::counted(world.contracts.len(), "adapter", "adapters");
    let policies = config.policies.as_ref().map_or_else(
        || format!("the {} shipped files", world.bundle.files.len()),
        |folder| folder.display().to_string(),
    );
    output::line(format!(
        "Placet {} listens on {scheme}://{listen} (health and metrics: http://{admin})\n\
         data {} · {tools} of {adapters} · policies: {policies}\n{}",
        env!("CARGO_PKG_VERSION"),
        config.data.display(),
        running.recovered,
    ));
    let mut tenants = world.directory.tenants.iter();
    let local = tenants.find(|(tenant, _)| tenant.as_str() == DEV_TENANT);
    let has_agent =
        local.is_some_and(|(_, local)| local.agents.keys().any(|id| id.as_str() == DEV_AGENT));
    if config.development_tokens && has_agent {
        output::line(greeting.first_steps());
    }
    if config.development_tokens && config.console.enabled {
        output::line(greeting.console_link());
    }
}

/// What is printed at the start.
struct Greeting<'a> {
    args: &'a Args,
    config: &'a Config,
    scheme: &'a str,
    listen: SocketAddr,
    program: &'a str,
}

impl Greeting<'_> {
    /// The commands to type next, ready to copy.
    fn first_steps(&self) -> String {
        let Self { scheme, listen, program, .. } = self;
        let flags = self.flags();
        format!(
            "\nIn another terminal:\n  \
             export PLACET_URL={scheme}://{listen} PLACET_TOKEN=$({program} token agent {DEV_AGENT}{flags})\n  \
             {program} tools\n\
             Development tokens are accepted on loopback only. Stop with Ctrl-C.\n"
        )
    }

    /// The flags by which other commands find the same set-up.
    fn flags(&self) -> String {
        let Self { args, config, .. } = self;
        let data = if config.data == Path::new("placet-data") {
            String::new()
        } else {
            format!(" --data {}", config.data.display())
        };
        let file = args.config.config.as_ref().map(|file| format!(" -f {}", file.display()));
        data + &file.unwrap_or_default()
    }

    /// The way to the console for people: a link that signs in, once.
    fn console_link(&self) -> String {
        let Self { args, config, scheme, listen, program } = self;
        let own = || Url::parse(&format!("{scheme}://{listen}")).attempted("no address");
        let link = match &config.console.public_url {
            Some(url) => console::link(config, url),
            None => own().and_then(|url| console::link(config, &url)),
        };
        let is_usual = args.listen.is_none() && listen.port() == config.server.listen.port();
        let url = if is_usual { String::new() } else { format!(" --url {scheme}://{listen}") };
        let another = format!("{program} console{}{url}", self.flags());
        match link {
            Ok(link) => format!(
                "Decide in a browser: this link signs you in once, within {LINK_LIFE}; `{another}` prints another.\n  {link}\n"
            ),
            Err(failure) => format!("No sign-in link could be made: {}\n", failure.in_a_line()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::Greeting;
    use crate::{
        cli::{Cli, Command},
        config::load::{Config, ConfigArgs},
        environment::Environment,
    };

    #[test]
    fn every_command_of_the_greeting_is_one_that_the_command_line_takes() {
        let environment = Environment::of([]);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("placet.yaml");
        std::fs::write(&file, "{}").unwrap();
        let config = Config::load(
            &ConfigArgs { config: Some(file), data: None, ledger: None },
            &environment,
        )
        .unwrap();
        let Command::Serve(args) = Cli::try_parse_from(["placet", "serve"]).unwrap().command else {
            panic!()
        };
        let listen = "127.0.0.1:7500".parse().unwrap();
        let (args, config) = (&args, &config);
        let greeting = Greeting { args, config, scheme: "http", listen, program: "placet" };
        let link = greeting.console_link().replace('`', "\n");
        assert!(link.contains("http://127.0.0.1:7500/sign-in?code="), "{link}");
        assert!(link.contains("placet console --data"), "{link}");
        let text = greeting.first_steps() + &link;
        assert!(text.contains("export PLACET_URL=http://127.0.0.1:7500"));
        let mut checked = 0;
        for line in text.lines().filter(|line| line.contains("placet ")) {
            for command in line.split("$(").flat_map(|part| part.split(')')) {
                let words = command.trim();
                if words.starts_with("placet ") {
                    assert!(Cli::try_parse_from(words.split_whitespace()).is_ok(), "{words}");
                    checked += 1;
                }
            }
        }
        assert!(checked >= 3, "{checked}");
    }
}
