//! `placet mcp` and `placet wrap`: MCP servers on standard input and output, for clients that start their servers.
//!
//! Owns which engine they lead to, and what `wrap` does first: a contract for the server it stands in for. Standard output belongs to the
//! client; messages to people go to standard error.

use std::{
    fs,
    io::{stdin, stdout},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::fs::DirBuilderExt as _,
    },
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use clap::Args as ClapArgs;
use placet_api::documents::ToolList;
use placet_engine::views::status::StatusView;
use placet_types::{contract::file::TransportFile, ids::AdapterName, mode::ApprovalMode};
use secrecy::SecretString;
use tokio::{
    fs::File,
    io::BufReader,
    process::Command,
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep},
};
use url::Url;

use crate::{
    bridge::{self, Engine, Target},
    client::Client,
    clock::SystemClock,
    commands::{adapters::servers::adapter_name, init},
    config::load::{Config, ConfigArgs, DEFAULT_FILE},
    development::DEV_TENANT,
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    mcp::DevelopmentAgent,
    output,
    shared_engine::{Listening, SharedEngine, listening},
    world::World,
};

/// How long a running engine may take to read a new contract.
const RELOAD_WAIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);

/// Serve MCP on standard input and output, for clients that start their servers.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The engine is the one that runs on the data folder; if none does, one is started in the background, and stops ten minutes after its \
    last client. Without a configuration named or here, it is that of `~/.placet` (or PLACET_HOME), which is made.\n\n\
    Examples, as the command of a server in a client's configuration:\n  placet mcp\n  placet mcp --adapter files\n  placet mcp --url https://placet.example"
)]
pub(crate) struct Args {
    /// Only the tools of this adapter, under the names that its server gives them.
    #[arg(long, value_name = "NAME")]
    adapter: Option<AdapterName>,
    /// Use the Placet at this URL instead of one on this machine, with the token in PLACET_TOKEN.
    #[arg(long, conflicts_with_all = ["config", "data"], value_parser = crate::client::url)]
    url: Option<Url>,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Govern one MCP server: put this before its command.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The first time, the server is asked for its tools, and a contract is written in which each is of the mode that --mode says. Review it. \
    The engine is that of `placet mcp`.\n\n\
    Examples, as the command of a server in a client's configuration:\n  placet wrap -- uvx mcp-server-git\n  placet wrap --network-unconfined -- npx -y @modelcontextprotocol/server-filesystem /srv"
)]
pub(crate) struct WrapArgs {
    /// The adapter's name [default: from the command].
    #[arg(long, value_name = "NAME")]
    name: Option<AdapterName>,
    /// The initial mode of every tool.
    #[arg(long, default_value = "destructive")]
    mode: ApprovalMode,
    /// A variable for the server's environment, from a secret in the configuration.
    #[arg(long, value_name = "NAME=SECRET")]
    env_secret: Vec<String>,
    /// A variable for the server's environment.
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Let the server open any connection, as `npx` needs for downloads.
    #[arg(long)]
    network_unconfined: bool,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
    /// The command of the server and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Serves until the client has gone.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let engine = match &args.url {
        Some(url) => Engine::At(url.clone()),
        None => {
            let config = configuration(&args.config, environment)?;
            Engine::Shared(Box::new(SharedEngine::of(&config, environment)?))
        }
    };
    serve(engine, args.adapter.as_ref(), environment).await
}

/// Makes a contract for the server if there is none, and serves its tools until the client has gone.
pub(crate) async fn wrap(args: &WrapArgs, environment: &Environment) -> Outcome {
    let config = configuration(&args.config, environment)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => name_of(&args.command)?,
    };
    let engine = SharedEngine::of(&config, environment)?;
    let world = World::load(&config)?;
    let known = world.contracts.iter().find(|entry| entry.contract.adapter == name);
    match known.map(|entry| &entry.file.transport) {
        None => {
            import(args, &name, &config, environment).await?;
            // It may be starting for another client, and have read the contracts before this one was written.
            engine.url().await?;
            if let Some(running) = listening(&engine.data) {
                reloaded(&config, &name, &running).await?;
            }
        }
        Some(TransportFile::McpStdio { command, args: rest, .. })
            if args.command.split_first() == Some((command, rest)) =>
        {
            // The contract may have been reviewed meanwhile.
            if let Some(Err(failure)) = listening(&engine.data).map(|running| hang_up(&running)) {
                output::failure(&failure);
            }
        }
        Some(_) => {
            return Err(Failure::usage(format!("the adapter `{name}` is another server"))
                .because("its contract has another command")
                .try_this("--name gives this one a name of its own")
                .try_this("or change `transport` in the contract, and reload"));
        }
    }
    serve(Engine::Shared(Box::new(engine)), Some(&name), environment).await
}

async fn serve(
    engine: Engine,
    adapter: Option<&AdapterName>,
    environment: &Environment,
) -> Outcome {
    let mut terminate = signal(SignalKind::terminate()).attempted("signals cannot be heard")?;
    let secret = |name: &str| environment.get(name).map(SecretString::from);
    let target = Target {
        engine,
        path: std::iter::once("mcp".to_owned()).chain(adapter.map(ToString::to_string)).collect(),
        token: secret("PLACET_TOKEN"),
        delegation: secret("PLACET_DELEGATION"),
    };
    let stopped = async {
        terminate.recv().await;
    };
    let (input, output) = (stream(stdin().as_fd())?, stream(stdout().as_fd())?);
    bridge::run(target, BufReader::new(input), output, stopped).await;
    Ok(Exit::Ok)
}

/// Standard input or output, which may be a pipe, a file or a terminal.
fn stream(of: BorrowedFd<'_>) -> Result<File, Failure> {
    let own = of.try_clone_to_owned().attempted("standard input and output cannot be used")?;
    Ok(File::from_std(own.into()))
}

/// The configuration that is named or in the current folder; else the one in the home folder, which is created if missing.
fn configuration(args: &ConfigArgs, environment: &Environment) -> Result<Config, Failure> {
    let here = Path::new(DEFAULT_FILE).try_exists().unwrap_or(true);
    if args.config.is_some() || args.data.is_some() || here {
        return Config::load(args, environment);
    }
    let home = environment.get("PLACET_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&environment.get("HOME")?).join(".placet")));
    let home = home.ok_or_else(|| {
        Failure::usage("there is no home folder to keep a configuration in")
            .try_this("--config names one, or PLACET_HOME a folder for it")
    })?;
    made(&home)?;
    let file = home.join(DEFAULT_FILE);
    Config::load(&ConfigArgs { config: Some(file), ..args.clone() }, environment)
}

/// Makes the configuration in the home folder if there is none; of several that want to, one does, and the others wait until it is whole.
fn made(home: &Path) -> Result<(), Failure> {
    let what = || format!("`{}` cannot be made", home.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(home).attempted(what())?;
    let folder = fs::File::open(home).attempted(what())?;
    rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive).attempted(what())?;
    if home.join(DEFAULT_FILE).try_exists().attempted(what())? {
        return Ok(());
    }
    init::write_all(home, DEV_TENANT)?;
    output::note(format!(
        "note: made a configuration in `{0}`; look at held calls with `placet console --open -f {0}/{DEFAULT_FILE}`",
        home.display()
    ));
    Ok(())
}

/// The name for a command: the package that it runs, or the program.
fn name_of(command: &[String]) -> Result<AdapterName, Failure> {
    let unnamed = |why: String| Failure::usage(why).try_this("--name gives it one");
    let (program, rest) =
        command.split_first().ok_or_else(|| unnamed("there is no command".to_owned()))?;
    let stem = |path: &str| {
        let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        stem.unwrap_or_default()
    };
    let program = stem(program);
    let runs_another =
        ["npx", "uvx", "node", "python", "python3", "bunx", "deno", "pnpm", "docker"]
            .contains(&program.as_str());
    let named = rest.iter().find(|word| !word.starts_with('-')).filter(|_| runs_another);
    let named = named.map_or(program, |word| {
        if word.starts_with(['/', '.']) {
            return package_of(word).unwrap_or_else(|| stem(word));
        }
        // A package may name its version: `@scope/server@1.2`.
        let at = word.char_indices().skip(1).find(|(_, c)| *c == '@').map(|(at, _)| at);
        stem(at.and_then(|at| word.get(..at)).unwrap_or(word))
    });
    adapter_name(&named).map_err(unnamed)
}

/// The package that a path leads into, if it leads into one: all of them may have an `index.js`.
fn package_of(path: &str) -> Option<String> {
    let (_, inside) = path.rsplit_once("node_modules/")?;
    inside.split('/').find(|part| !part.starts_with('@')).map(str::to_owned)
}

/// Writes the contract, as `placet adapters import` does; the output goes to standard error.
async fn import(
    args: &WrapArgs,
    name: &AdapterName,
    config: &Config,
    environment: &Environment,
) -> Result<(), Failure> {
    let what = format!("`{name}` cannot be imported");
    let program = environment.executable().ok_or_else(|| Failure::new(what.clone()))?;
    let mut command = Command::new(program);
    command.args(["adapters", "import", "--stdio", "--name", name.as_str()]);
    command.args(["--mode-default", args.mode.as_str()]);
    command.args(args.env.iter().flat_map(|variable| ["--env", variable]));
    command.args(args.env_secret.iter().flat_map(|variable| ["--env-secret", variable]));
    if args.network_unconfined {
        command.arg("--network-unconfined");
    }
    if let Some(origin) = &config.origin {
        command.arg("--config").arg(origin);
    }
    command.arg("--data").arg(&config.data).arg("--").args(&args.command);
    let ran = command.stdin(Stdio::null()).output().await.attempted(what.clone())?;
    for said in [&ran.stdout, &ran.stderr] {
        output::note(String::from_utf8_lossy(said).trim_end());
    }
    if !ran.status.success() {
        return Err(Failure::new(what).because("its import, above, says why"));
    }
    Ok(())
}

/// Has the engine read the new contract, and waits until it has. A reload that another contract was the reason for may have read it
/// already; then nothing changes any more.
async fn reloaded(config: &Config, name: &AdapterName, running: &Listening) -> Result<(), Failure> {
    let what = "the running engine has not read the new contract";
    let agent = DevelopmentAgent::new(config, std::sync::Arc::new(SystemClock))?;
    let token = agent.token().ok_or_else(|| Failure::new(what))?;
    let client = Client::new(running.url.clone(), Some(SecretString::from(token)), None)?;
    let active = async || -> Result<String, Failure> {
        let status: StatusView = client.get(&["v1", "status"], &[]).await?;
        Ok(status.active.short())
    };
    let knows = async || -> Result<bool, Failure> {
        let view: ToolList = client.get(&["v1", "tools"], &[]).await?;
        Ok(view.tools.iter().any(|tool| tool.capability_id.adapter() == name))
    };
    let before = active().await?;
    if knows().await? {
        return Ok(());
    }
    hang_up(running)?;
    let until = Instant::now() + RELOAD_WAIT;
    while !knows().await? {
        if Instant::now() >= until {
            // Policies may hide all of its tools from this agent.
            if active().await? != before {
                return Ok(());
            }
            return Err(Failure::new(what).try_this("`placet reload` says why"));
        }
        sleep(POLL).await;
    }
    Ok(())
}

/// Has the engine read its files again.
fn hang_up(running: &Listening) -> Result<(), Failure> {
    let what = "the running engine cannot be told to read its files again";
    let process = rustix::process::Pid::from_raw(running.pid).ok_or_else(|| Failure::new(what))?;
    rustix::process::kill_process(process, rustix::process::Signal::HUP).attempted(what)
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn a_server_is_named_after_its_package_or_its_program() {
        for (command, name) in [
            ("npx -y @modelcontextprotocol/server-filesystem /srv", "server-filesystem"),
            ("npx -y @scope/server-git@1.2.3", "server-git"),
            ("uvx mcp-server-git --repository /srv", "mcp-server-git"),
            ("node /opt/tools/weather.mjs", "weather"),
            ("node /opt/node@24/weather.mjs", "weather"),
            ("node ./node_modules/@modelcontextprotocol/server-git/dist/index.js", "server-git"),
            ("/usr/local/bin/my_server --stdio", "my-server"),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(name_of(&words).unwrap().as_str(), name, "{command}");
        }
        assert!(name_of(&["-".to_owned()]).is_err());
    }
}
