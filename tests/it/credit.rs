//! The worked example of the docs: a credit that a finance lead and the recipient's tenant agree to.
//!
//! Owns the tour of `docs/src/worked-example.md`: its files are those beside the page, and every line of its tour is typed here as it
//! stands there. Invariant: a line of the page that nobody types fails the test.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    env, fs,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    console::script,
    harness::{
        client::{Client, Reply, text},
        npm,
        placet::Placet,
        setup::{Ran, Setup},
    },
    program, workspace,
};

const PAGE: &str = "docs/src/worked-example.md";
const FILES: &str = "docs/src/examples/credit";

/// A running Placet on the files of the page.
struct Tour {
    setup: Setup,
    placet: Placet,
    bot: Client,
    /// Lines of the page that were typed.
    typed: RefCell<BTreeSet<String>>,
}

impl Tour {
    async fn begin() -> Self {
        let mut setup = Setup::new();
        laid_out(&setup);
        let config = workspace::read(&format!("{FILES}/placet.yaml"));
        let config: BTreeMap<String, String> = serde_saphyr::from_str(&config).unwrap();
        for (key, folder) in config {
            setup = setup.with(&key, json!(format!("credit/{folder}")));
        }
        let contract = setup.path("credit/contracts/dev/finance.yaml");
        let text = fs::read_to_string(&contract).unwrap();
        assert!(text.contains("command: node\n"), "{text}");
        let text = text.replace("command: node\n", &format!("command: {}\n", npm::node()));
        fs::write(contract, text).unwrap();
        fs::create_dir(setup.path("credit/data")).unwrap();
        let checked = setup.configured(&["doctor"]).await;
        assert!(checked.out.contains("`finance` starts and lists its tools"), "{checked:?}");
        let placet = setup.start().await;
        let token = token(&setup, "agent", "credit-bot", "acme").await;
        let bot = placet.client(Some(token));
        Self { setup, placet, bot, typed: RefCell::default() }
    }

    /// The call of the page, under another step and for another recipient.
    fn call(step: &str, recipient: &str) -> Value {
        let mut call: Value =
            serde_json::from_str(&workspace::read(&format!("{FILES}/call.json"))).unwrap();
        call["step_id"] = json!(step);
        call["args"]["recipient"] = json!(recipient);
        call
    }

    async fn asks(&self, step: &str, recipient: &str) -> Reply {
        self.bot.call(&Self::call(step, recipient)).await
    }

    /// What somebody types after `placet approvals`; `line` is how it stands on the page, where it does.
    async fn types(&self, person: (&str, &str), words: &[&str]) -> Ran {
        let (who, tenant) = person;
        let token = token(&self.setup, "user", who, tenant).await;
        let words: Vec<&str> = [&["approvals"], words].concat();
        let line: Vec<String> = words.iter().map(|word| as_on_the_page(word)).collect();
        let line = format!("{who}@{tenant}$ placet {}", line.join(" "));
        self.typed.borrow_mut().insert(line);
        self.setup.asks(&self.placet, &token, &words).await
    }

    /// The approval as somebody is shown it, for a program.
    async fn shown(&self, who: (&str, &str), id: &str) -> Value {
        let token = token(&self.setup, "user", who.0, who.1).await;
        let words = ["approvals", "show", id, "--json"];
        self.setup.asks(&self.placet, &token, &words).await.json()
    }

    async fn decides(&self, who: (&str, &str), verb: &str, id: &str, reason: &str) -> Ran {
        let digest = text(&self.shown(who, id).await["approval"], "digest");
        self.types(who, &[verb, id, "--reason", reason, "--digest", &digest]).await
    }

    fn booked(&self) -> Vec<Value> {
        let lines = fs::read_to_string(self.setup.path("credit/booked")).unwrap_or_default();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Every line of the page's tour was typed.
    fn ends(&self) {
        let page = workspace::read(PAGE);
        let lines: BTreeSet<String> = page
            .lines()
            .filter(|line| line.contains("$ placet approvals"))
            .map(str::to_owned)
            .collect();
        assert!(lines.len() >= 8, "the page has lost its tour: {lines:?}");
        let typed = self.typed.borrow();
        let left: Vec<&String> = lines.difference(&typed).collect();
        assert!(left.is_empty(), "nobody types these: {left:#?}\ntyped: {typed:#?}");
    }
}

/// Types the commands of the page that lay out its folder, as in the root of the repository.
#[expect(clippy::disallowed_methods, reason = "the page's commands are for a shell")]
fn laid_out(setup: &Setup) {
    for folder in ["docs", "policies"] {
        std::os::unix::fs::symlink(workspace::root().join(folder), setup.path(folder)).unwrap();
    }
    let page = workspace::read(PAGE);
    let block = page.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let (commands, rest) = block.split_once("cd credit\n").expect("the page enters its folder");
    assert_eq!(rest, "placet serve\n");
    let mut shell = std::process::Command::new("sh");
    let done = shell.args(["-e", "-c", commands]).current_dir(setup.path("")).status().unwrap();
    assert!(done.success(), "{commands}");
}

/// Names and digests differ from tour to tour.
fn as_on_the_page(word: &str) -> String {
    if word.starts_with("apr_") {
        return "apr_…".to_owned();
    }
    if word.starts_with("sha256:") {
        return "sha256:…".to_owned();
    }
    if word.contains(' ') { format!("\"{word}\"") } else { word.to_owned() }
}

async fn token(setup: &Setup, kind: &str, name: &str, tenant: &str) -> String {
    let ran = setup.configured(&["token", kind, name, "--tenant", tenant]).await;
    ran.ok().trim().to_owned()
}

fn refused(ran: &Ran, code: &str) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains(code), "{ran:?}");
}

const LENA: (&str, &str) = ("lena", "acme");
const GIL: (&str, &str) = ("gil", "globex");
const ZOE: (&str, &str) = ("zoe", "globex");

#[tokio::test]
async fn a_credit_runs_when_a_finance_lead_and_the_recipients_tenant_have_agreed() {
    let tour = Tour::begin().await;
    let held = tour.asks("credit-1", "globex").await.held();
    let id = text(&held, "approval_id");
    let all = tour.shown(LENA, &id).await;
    let groups = all["approval"]["requirement"]["groups"].as_object().unwrap();
    let groups: Vec<&str> = groups.keys().map(String::as_str).collect();
    assert_eq!(groups, ["approvers", "finance-leads", "globex/credit-approvers"]);

    // Lena sees all of it; Gil his part.
    let own = tour.types(LENA, &["show", &id]).await;
    assert!(own.ok().contains("globex/credit-approvers") && !own.out.contains("DE0212"), "{own:?}");
    let mine = tour.types(GIL, &["list", "--mine"]).await;
    assert!(mine.ok().contains("finance") && mine.out.contains(&id), "{mine:?}");
    assert!(mine.out.contains("returned goods") && !mine.out.contains("DE0212"), "{mine:?}");
    let part = tour.types(GIL, &["show", &id]).await;
    for shown in [
        "credit-bot",
        "tenant acme",
        "returned goods",
        "250000",
        "[sensitive]",
        "counts for globex",
    ] {
        assert!(part.ok().contains(shown), "{shown}: {part:?}");
    }
    for hidden in
        ["DE0212", "finance-leads", "lena", "olga", "in it afterwards", "gate-destructive"]
    {
        assert!(!part.out.contains(hidden), "{hidden}: {part:?}");
    }
    // Others of globex, and other tenants, find nothing; nor does who answers for the bot decide.
    assert!(!tour.types(ZOE, &["list"]).await.ok().contains(&id));
    refused(&tour.types(ZOE, &["show", &id]).await, "NOT_FOUND");
    refused(&tour.types(("hank", "initech"), &["show", &id]).await, "NOT_FOUND");
    let olga = tour.decides(("olga", "acme"), "approve", &id, "my bot").await;
    refused(&olga, "POLICY_DENIED");

    tour.decides(LENA, "approve", &id, "the goods came back").await.ok();
    assert_eq!(tour.booked(), Vec::<Value>::new(), "globex has not agreed");
    // What Lena was shown is not what Gil decides on.
    let digest = text(&tour.shown(LENA, &id).await["approval"], "digest");
    let stale = tour.types(GIL, &["approve", &id, "--reason", "ok", "--digest", &digest]).await;
    refused(&stale, "VALIDATION_ERROR");
    tour.decides(GIL, "approve", &id, "our account, our order").await.ok();
    let call = text(&held, "call_id");
    tour.bot.end_of(&call).await.succeeded();
    let done = tour.asks("credit-1", "globex").await.succeeded();
    assert_eq!(done["output"]["structured"]["entry"], 1, "{done:#}");
    let booked = tour.booked();
    assert_eq!((booked.len(), &booked[0]["recipient"]), (1, &json!("globex")));
    chain_names_the_external(&tour, &id, &call).await;
    no_finds_nothing_and_ends_it(&tour).await;
    tour.ends();
}

/// The external approver's pages of the console, in real Chromium: what they show and what they do not, and that the checker finds nothing.
#[tokio::test]
async fn an_external_approver_decides_in_the_browser() {
    let tour = Tour::begin().await;
    let base = tour.placet.base.as_str().trim_end_matches('/').to_owned();
    let agent = token(&tour.setup, "agent", "credit-bot", "acme").await;
    let config = tour.setup.config_file();
    let link = json!([program::placet(), "console", "--json", "--url", base, "-f", config]);
    let task = json!({
        "base": base, "agent": agent, "chromium": npm::chromium(), "call": Tour::call("", "globex"), "link": link,
        "shots": env::var("PLACET_SHOTS").ok().map(|folder| workspace::root().join(folder)),
    });
    let people = script("external.mjs").env("PLACET_CONSOLE_TASK", task.to_string()).output();
    let output = tokio::time::timeout(Duration::from_secs(240), people).await;
    let output = output.expect("the people come to an end").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert_eq!(tour.booked().len(), 1);
}

/// The decision is in acme's chain, and is not globex's to read.
async fn chain_names_the_external(tour: &Tour, id: &str, call: &str) {
    let path = format!("/v1/calls/{call}/timeline");
    let rita = tour.placet.client(Some(token(&tour.setup, "user", "rita", "acme").await));
    let timeline = rita.get(&path).await.json();
    let steps = timeline["steps"].as_array().unwrap();
    let vote = |step: &&Value| step["note"] == "approved as an external approver of globex";
    let vote = steps.iter().find(vote).unwrap_or_else(|| panic!("{timeline:#}"));
    assert_eq!(vote["by"], "gil");
    // What Gil was shown is digested beside what he decided on.
    let part = &tour.shown(GIL, id).await["approval"]["digest"];
    assert_eq!(&vote["digests"]["shown"], part);
    assert_ne!(&vote["digests"]["proposal"], part);
    let gil = tour.placet.client(Some(token(&tour.setup, "user", "gil", "globex").await));
    assert_eq!(gil.get(&path).await.status, 404);
}

/// A no of the recipient's tenant, and recipients that nobody can be asked for.
async fn no_finds_nothing_and_ends_it(tour: &Tour) {
    let held = tour.asks("credit-2", "globex").await.held();
    let id = text(&held, "approval_id");
    tour.decides(("mark", "acme"), "approve", &id, "again").await.ok();
    tour.decides(GIL, "deny", &id, "we ordered this once").await.ok();
    tour.asks("credit-2", "globex").await.refused(403, "APPROVAL_DENIED");
    for (step, recipient) in [("credit-3", "initech"), ("credit-4", "nobody")] {
        tour.asks(step, recipient).await.refused(403, "POLICY_DENIED");
    }
    assert_eq!(tour.booked().len(), 1);
}
