//! A set-up on disk: configuration, contracts and data folder, in a folder of its own.
//!
//! Owns the files and how the program is started on them. Invariant: the program gets no environment but what a test names.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use url::Url;

use super::{
    client::{Client, text},
    placet::{Gone, Placet},
    until, within,
};
use crate::{program, workspace};

/// Everything that one Placet is started on.
#[derive(Debug)]
pub(crate) struct Setup {
    folder: TempDir,
    config: Map<String, Value>,
    env: Vec<(String, String)>,
    args: Vec<String>,
    wrapper: Vec<OsString>,
}

/// What a command of the program left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// What it printed; it must have succeeded.
    pub(crate) fn ok(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.out
    }

    /// The document it printed; it must have succeeded.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.ok())
            .unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }
}

impl Setup {
    /// The defaults: the built-in `files` adapter, the shipped policies, the development directory.
    pub(crate) fn new() -> Self {
        let config = Map::from_iter([("data".to_owned(), json!("data"))]);
        let folder = tempfile::Builder::new().prefix("placet-e2e-").tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        Self { folder, config, env: Vec::new(), args: Vec::new(), wrapper: Vec::new() }
    }

    /// With a key of the configuration.
    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.config.insert(key.to_owned(), value);
        self
    }

    /// With a variable in the environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With an argument of `placet serve`.
    pub(crate) fn arg(mut self, argument: &str) -> Self {
        self.args.push(argument.to_owned());
        self
    }

    /// Without those arguments again.
    pub(crate) fn without_args(mut self) -> Self {
        self.args.clear();
        self
    }

    /// Started by another program, whose last arguments are the program and its own.
    pub(crate) fn wrapped(mut self, wrapper: impl IntoIterator<Item = OsString>) -> Self {
        self.wrapper = wrapper.into_iter().collect();
        self
    }

    /// With the contract of an adapter.
    pub(crate) fn contract(self, adapter: &str, contract: &Value) -> Self {
        let file = self.contract_file(adapter);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, serde_json::to_string_pretty(contract).unwrap()).unwrap();
        self.with("contracts", json!("contracts"))
    }

    /// With the sample contract of the built-in adapter, beside others.
    pub(crate) fn files_contract(self) -> Self {
        let sample = workspace::read("adapters/files/contracts/files.yaml");
        let contract: Value = serde_saphyr::from_str(&sample).unwrap();
        self.contract("files", &contract)
    }

    pub(crate) fn contract_file(&self, adapter: &str) -> PathBuf {
        self.path(&format!("contracts/dev/{adapter}.yaml"))
    }

    /// The contract of an adapter as it stands on disk.
    pub(crate) fn read_contract(&self, adapter: &str) -> Value {
        let text = std::fs::read_to_string(self.contract_file(adapter)).unwrap();
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{adapter}: {error}\n{text}"))
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// A file of the `files` adapter.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.data().join("files/local").join(name)
    }

    /// Puts a file where the `files` adapter finds it.
    pub(crate) fn put(&self, name: &str, content: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Writes the configuration file and answers where it is. A program that reads it meanwhile finds it whole.
    pub(crate) fn config_file(&self) -> PathBuf {
        let (path, next) = (self.path("placet.yaml"), self.path("placet.yaml.next"));
        std::fs::write(&next, serde_json::to_string_pretty(&self.config).unwrap()).unwrap();
        std::fs::rename(next, &path).unwrap();
        path
    }

    /// Starts the program, which must come up.
    pub(crate) async fn start(&self) -> Placet {
        let config = self.config_file();
        Placet::start(self.serve(&config)).await
    }

    /// Starts the program, which must refuse and end.
    pub(crate) async fn refuses(&self) -> Gone {
        let config = self.config_file();
        self.refuses_with(&config).await
    }

    /// Kills a process after the effect of a call and before it is recorded: when `file` is there.
    pub(crate) async fn killed_in_between(self, call: &Value, file: &str) -> Self {
        let setup = self.arg("--inject-pause-after-effect-ms").arg("60000");
        let placet = setup.start().await;
        let agent = setup.agent(&placet).await;
        let body = serde_json::to_vec(call).unwrap();
        let caller = tokio::spawn(async move {
            let request = agent
                .request(http::Method::POST, "/v1/calls")
                .header("content-type", "application/json");
            // The answer never comes: the process is killed under it.
            agent.is_answered_to(request.body(body.into()).unwrap()).await
        });
        until("the effect has happened", || async { setup.file(file).try_exists().unwrap() }).await;
        placet.kill().await;
        let answered = within("the caller learns of it", caller).await.unwrap();
        assert!(!answered, "a killed process answered");
        setup.without_args()
    }

    /// As [`Setup::refuses`], on a configuration file that the test has written itself.
    pub(crate) async fn refuses_with(&self, config: &Path) -> Gone {
        let gone = Placet::start_without_success(self.serve(config)).await;
        assert!(!gone.status.success(), "it came up: {gone:?}");
        gone
    }

    fn serve(&self, config: &Path) -> Command {
        let mut words: Vec<OsString> = self.wrapper.clone();
        words.push(program::placet().into_os_string());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("serve")
            .arg("-f")
            .arg(config)
            .args(["--json", "--log", "json"]);
        if !self.args.iter().any(|argument| argument == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        if !self.args.iter().any(|argument| argument == "--admin-listen") {
            command.args(["--admin-listen", "127.0.0.1:0"]);
        }
        command.args(&self.args);
        self.surround(&mut command);
        command
    }

    fn surround(&self, command: &mut Command) {
        command
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
    }

    /// Runs a command of the program with this configuration, where the command takes one.
    pub(crate) async fn configured(&self, arguments: &[&str]) -> Ran {
        let config = self.config_file();
        let config = config.to_str().unwrap();
        // What follows `--` belongs to somebody else.
        let at = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
        let words: Vec<&str> = [&arguments[..at], &["-f", config], &arguments[at..]].concat();
        self.run(&words, &[]).await
    }

    /// Runs a command of the program that asks a running Placet.
    pub(crate) async fn asks(&self, placet: &Placet, token: &str, arguments: &[&str]) -> Ran {
        self.run(arguments, &[("PLACET_URL", placet.base.as_str()), ("PLACET_TOKEN", token)]).await
    }

    /// Starts a command of the program that asks a running Placet and goes on until it is stopped.
    pub(crate) fn follows(&self, placet: &Placet, token: &str, arguments: &[&str]) -> Child {
        let mut command = Command::new(program::placet());
        self.surround(command.args(arguments));
        command.env("PLACET_URL", placet.base.as_str()).env("PLACET_TOKEN", token);
        command.spawn().unwrap()
    }

    /// Runs a command of the program with nothing but its arguments.
    pub(crate) async fn bare(&self, arguments: &[&str]) -> Ran {
        self.run(arguments, &[]).await
    }

    async fn run(&self, arguments: &[&str], env: &[(&str, &str)]) -> Ran {
        let mut command = Command::new(program::placet());
        self.surround(command.args(arguments));
        command.envs(env.iter().copied());
        let output = within("a command ends", command.output()).await.unwrap();
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// A development token.
    pub(crate) async fn token(&self, kind: &str, name: &str) -> String {
        self.configured(&["token", kind, name]).await.ok().trim().to_owned()
    }

    /// A fresh link that signs somebody in to the console, once: its path and query.
    pub(crate) async fn sign_in_link(&self, placet: &Placet) -> String {
        let words = ["console", "--json", "--url", placet.base.as_str()];
        let link = text(&self.configured(&words).await.json(), "url");
        let base = placet.base.as_str().trim_end_matches('/');
        link.strip_prefix(base).unwrap_or_else(|| panic!("{link} is elsewhere")).to_owned()
    }

    /// A client of `placet` with a development token.
    pub(crate) async fn client(&self, placet: &Placet, kind: &str, name: &str) -> Client {
        placet.client(Some(self.token(kind, name).await))
    }

    /// The agent of the development directory.
    pub(crate) async fn agent(&self, placet: &Placet) -> Client {
        self.client(placet, "agent", "dev-agent").await
    }

    /// Its approver, who is an operator too.
    pub(crate) async fn ben(&self, placet: &Placet) -> Client {
        self.client(placet, "user", "ben").await
    }
}

/// Adds the shipped policy about `files` to the set-up's own copy of the others.
pub(crate) fn files_policy(setup: &Setup) {
    let text = workspace::read("adapters/files/policies/15-files.cedar");
    std::fs::write(setup.path("policies/15-files.cedar"), text).unwrap();
}

/// A call of `tool` in the run `run`, which may do everything; repeated with the same step, it is the same call. A write that replaces nothing
/// asks for the mode that the shipped policy lowers it to.
pub(crate) fn plan(tool: &str, step: &str, args: Value) -> Value {
    let creates = tool == "files__write" && args["overwrite"] != json!(true);
    let mut call = json!({
        "tool": tool, "args": args, "step_id": step, "request_id": "req",
        "run": { "run_id": "run", "safety_mode": "destructive" }
    });
    if creates {
        call["approval_mode_requested"] = json!("local_write");
    }
    call
}

/// A URL of this machine.
pub(crate) fn local(port: u16, path: &str) -> Url {
    Url::parse(&format!("http://127.0.0.1:{port}{path}")).unwrap()
}
