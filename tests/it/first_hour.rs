//! The first hour of three new users, who type what the pages say: an agent builder, a policy author, an approver.
//!
//! Owns the order in which they read. The commands are those of the pages; only ids, digests and ports are their own.

use std::{path::PathBuf, process::Stdio};

use regex::Regex;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    harness::{placet::Placet, setup::Ran, until, within},
    program, workspace,
};

/// A new user's shell, in a folder of their own.
struct Shell {
    folder: TempDir,
    /// What was typed before that later lines depend on: variables, and the folder.
    before: String,
    placet: Option<Placet>,
}

impl Shell {
    fn open() -> Self {
        let folder = tempfile::Builder::new().prefix("placet-hour-").tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(program::placet(), folder.path().join("bin/placet")).unwrap();
        std::fs::create_dir(folder.path().join("home")).unwrap();
        Self { folder, before: String::new(), placet: None }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join("home").join(relative)
    }

    /// `placet serve` in a folder, on ports of its own.
    async fn serve(&mut self, folder: &str) {
        let mut command = Command::new(program::placet());
        command
            .args(["serve", "--json", "--log", "json"])
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .env_clear()
            .current_dir(self.path(folder))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        self.placet = Some(Placet::start(command).await);
    }

    /// Types a line.
    async fn types(&mut self, line: &str) -> Ran {
        let lasts = line.starts_with("export ") || line.starts_with("cd ");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("{}{line}", self.before)])
            .env_clear()
            .env("PATH", format!("{}/bin:/usr/bin:/bin", self.folder.path().display()))
            .envs(self.placet.iter().map(|placet| ("PLACET_URL", placet.base.as_str())))
            .current_dir(self.path(""))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = within("a line ends", shell.output()).await.unwrap();
        if lasts {
            self.before += &format!("{line}\n");
        }
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Types a line that decides, on the digest of what is shown: without a terminal nobody asks for the word.
    async fn decides(&mut self, as_ben: &str, line: &str, approval: &str) -> Ran {
        let shown = self.types(&format!("{as_ben}placet approvals show {approval} --json")).await;
        let digest = shown.json()["approval"]["digest"].as_str().unwrap().to_owned();
        let line = line.replace("apr_…", approval);
        self.types(&format!("{line} --digest {digest}")).await
    }
}

/// The lines of a part of a page that are for a shell.
fn lines(page: &str, heading: &str) -> Vec<String> {
    let text = workspace::read(page);
    let (_, part) = text.split_once(&format!("# {heading}\n")).expect("the page has the heading");
    let part = part.split("\n## ").next().unwrap();
    let fence = Regex::new(r"(?ms)^```sh\n(.*?)^```").unwrap();
    let blocks = fence.captures_iter(part).flat_map(|found| {
        let lines: Vec<String> = found[1].lines().map(str::to_owned).collect();
        lines
    });
    let found: Vec<String> = blocks.collect();
    assert!(!found.is_empty(), "{page} has nothing to type under `{heading}`");
    found
}

fn block(page: &str, language: &str, with: &str) -> String {
    let fence = Regex::new(&format!(r"(?ms)^```{language}\n(.*?)^```")).unwrap();
    let text = workspace::read(page);
    let mut found = fence.captures_iter(&text).map(|parts| parts[1].to_owned());
    found.find(|block| block.contains(with)).expect("the page has the example")
}

/// The first id of a kind in what was printed.
fn id(ran: &Ran, kind: &str) -> String {
    let pattern = Regex::new(&format!(r"{kind}_[0-9A-Za-z]+")).unwrap();
    let text = format!("{}{}", ran.out, ran.err);
    let found = pattern.find(&text).map(|found| found.as_str().to_owned());
    found.unwrap_or_else(|| panic!("no {kind}_… in {ran:?}"))
}

const START: &str = "docs/src/start.md";
const POLICIES: &str = "docs/src/policies.md";
const APPROVALS: &str = "docs/src/approvals.md";

#[tokio::test]
async fn an_agent_builder_follows_the_start_page() {
    let mut shell = Shell::open();
    let mut said = Vec::new();
    for line in lines(START, "A server of your own") {
        match line.as_str() {
            "placet serve" => shell.serve("").await,
            line => said.push(shell.types(line).await.ok().to_owned()),
        }
    }
    assert!(said.last().unwrap().contains("hello"), "{said:?}");
    let mut approval = String::new();
    for line in lines(START, "A call that waits for a person") {
        if line.contains("apr_…") {
            shell.decides("PLACET_TOKEN=$BEN ", &line, &approval).await.ok();
        } else if line.starts_with("placet call") && approval.is_empty() {
            let held = shell.types(&line).await;
            assert_eq!(held.code, Some(4), "{held:?}");
            approval = id(&held, "apr");
        } else if line.starts_with("placet call") {
            let file = shell.path("placet-data/files/local/a.txt");
            until("the file is deleted", || async { !file.try_exists().unwrap() }).await;
            let again = shell.types(&line).await;
            again.ok();
            assert!(format!("{}{}", again.out, again.err).contains("recorded"), "{again:?}");
        } else {
            shell.types(&line).await.ok();
        }
    }
    for line in lines(START, "Look at what happened") {
        shell.types(&line).await.ok();
    }
    shell.placet.take().unwrap().stop().await;
    for line in lines(START, "A configuration to keep") {
        match line.as_str() {
            "placet serve" => shell.serve("my-placet").await,
            line => assert_eq!(shell.types(line).await.code, Some(0), "{line}"),
        }
    }
    shell.types("PLACET_TOKEN=$(placet token agent dev-agent) placet tools").await.ok();
}

#[tokio::test]
async fn a_policy_author_writes_tests_and_rolls_out_a_rule() {
    let mut shell = Shell::open();
    shell.types("placet init").await.ok();
    let rule = block(POLICIES, "cedar", "no-dotfiles");
    let own = shell.path("policies/60-own.cedar");
    std::fs::write(&own, &rule).unwrap();
    let cases = block(POLICIES, "yaml,cases", "cases_version");
    std::fs::write(shell.path("policies/cases/60-own.yaml"), cases).unwrap();
    let mut said = String::new();
    for line in lines(POLICIES, "Check, test, explain") {
        said += shell.types(&line).await.ok();
    }
    for words in [" 0 failed", "files/delete waits for people", "freeze-approvers"] {
        assert!(said.contains(words), "`{words}` is not in {said}");
    }

    // Written wrong, it is named with its place, and nothing changes.
    shell.serve("").await;
    shell.types("export PLACET_TOKEN=$(placet token agent dev-agent)").await.ok();
    let ben = "PLACET_TOKEN=$(placet token user ben) ";
    std::fs::write(&own, rule.replace("context.input.path", "context.input.pth")).unwrap();
    let refused = shell.types(&format!("{ben}placet reload")).await;
    assert!(refused.code == Some(1) && refused.err.contains("60-own.cedar:"), "{refused:?}");

    let write = "placet call files__write --arg path=.env --arg content=x --mode local_write";
    let denied = shell.types(&format!("{write} --run r1")).await;
    assert_eq!(denied.code, Some(5), "{denied:?}");
    let decision = id(&denied, "dec");
    let why = shell.types(&format!("{ben}placet decisions {decision}")).await;
    assert!(why.ok().contains("no-dotfiles"), "{why:?}");

    std::fs::remove_file(&own).unwrap();
    let reloaded = shell.types(&format!("{ben}placet reload")).await;
    assert!(reloaded.ok().contains("reloaded: policies"), "{reloaded:?}");
    shell.types(&format!("{write} --run r2")).await.ok();
}

#[tokio::test]
async fn an_approver_decides_and_stops_everything() {
    let mut shell = Shell::open();
    shell.serve("").await;
    shell.types("export AGENT=$(placet token agent dev-agent)").await.ok();
    shell.types("export PLACET_TOKEN=$(placet token user ben)").await.ok();
    let delete = |name: &str| {
        format!(
            "PLACET_TOKEN=$AGENT placet call files__delete --arg path={name} --mode destructive --run {name} --request q"
        )
    };
    let mut held = Vec::new();
    for name in ["a", "b", "c"] {
        let file = shell.path(&format!("placet-data/files/local/{name}"));
        std::fs::write(file, "x").unwrap();
        held.push(id(&shell.types(&delete(name)).await, "apr"));
    }
    for line in lines(APPROVALS, "For the approver") {
        let approval = if line.contains("approve") { &held[0] } else { &held[1] };
        if line.contains("apr_…") && line.contains("--reason") {
            shell.decides("", &line, approval).await.ok();
        } else {
            shell.types(&line.replace("apr_…", approval)).await.ok();
        }
    }
    for line in lines(APPROVALS, "Withdraw a call") {
        shell.types(&line.replace("apr_…", &held[2])).await.ok();
    }
    shell.types(&format!("{} --wait 10", delete("a"))).await.ok();
    for (name, code) in [("b", "APPROVAL_DENIED"), ("c", "APPROVAL_WITHDRAWN")] {
        let ended = shell.types(&delete(name)).await;
        assert!(ended.code == Some(5) && ended.err.contains(code), "{ended:?}");
        assert!(shell.path(&format!("placet-data/files/local/{name}")).try_exists().unwrap());
    }

    let mut freeze = String::new();
    for line in lines(APPROVALS, "Lockdown") {
        let ran = shell.types(&line.replace("dir_…", &freeze)).await;
        ran.ok();
        let read = "PLACET_TOKEN=$AGENT placet call files__list --arg path=.";
        if freeze.is_empty() {
            freeze = id(&ran, "dir");
            let stopped = shell.types(read).await;
            assert!(stopped.err.contains("lockdown"), "{stopped:?}");
        } else {
            shell.types(read).await.ok();
        }
    }
}
