//! `placet policy`: whether a bundle is sound, whether it decides as intended, and why a call was decided as it was.
//!
//! Owns where bundle and cases come from and how findings are printed. Decides nothing: `placet-policy` does.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::{Args as ClapArgs, Subcommand};
use placet_policy::{
    bundle::{BundleProblem, BundleSource},
    cases::{
        CallCase, CaseFile,
        run::{CaseOutcome, run_cases},
    },
    snapshot::{self, UntypedTool},
};
use placet_types::{
    clock::Clock as _,
    ids::{CapabilityId, PrincipalId, TenantId},
    mode::ApprovalMode,
    run_context::RunBudget,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    clock::SystemClock,
    commands::call::arguments,
    config::load::{Config, LocalArgs},
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output, shipped,
    world::{self, World, development_tenant},
    yaml,
};

/// Check, test and explain policies.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet policy check policies\n  \
    placet policy test policies\n  \
    placet policy expand policies\n  \
    placet policy explain --tool files__delete --agent dev-agent --arg path=a.txt --mode destructive\n  \
    placet policy explain --tool files__delete --agent dev-agent --arg path=a.txt \
    --with '{frozen: true, approval: {standing: true, votes: [{by: ben}]}}'")]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do with policies.
#[derive(Debug, Subcommand)]
enum Action {
    /// Report the problems of a bundle, with file and line.
    Check(Bundle),
    /// Run the test cases of a bundle.
    Test(Bundle),
    /// Print the policies as they are evaluated: each gate with the condition that its annotations stand for.
    Expand(Bundle),
    /// Explain in words why a call is decided as it is.
    Explain(Box<Explain>),
}

/// Which bundle.
#[derive(Debug, ClapArgs)]
struct Bundle {
    /// The folder with *.cedar and cases/*.yaml [default: the configured one, else the shipped policies].
    dir: Option<PathBuf>,
    /// Which configuration, and in which form.
    #[command(flatten)]
    local: LocalArgs,
}

/// Which call.
#[derive(Debug, ClapArgs)]
struct Explain {
    /// The tool, adapter__capability.
    #[arg(long)]
    tool: String,
    /// The agent that calls.
    #[arg(long)]
    agent: PrincipalId,
    /// The user that it calls for.
    #[arg(long)]
    user: Option<PrincipalId>,
    /// The tenant of agent and user [default: the only one, or `local`].
    #[arg(long)]
    tenant: Option<TenantId>,
    /// All arguments as a JSON object.
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// An argument: name=text, or name:=json.
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    arg: Vec<String>,
    /// The requested mode [default: none, so that policies may lower the contract's].
    #[arg(long)]
    mode: Option<ApprovalMode>,
    /// Further facts of the case, in YAML, with the keys of a `policy test` case: taint, frozen, approval, proof and so on.
    #[arg(long, value_name = "YAML")]
    with: Option<String>,
    /// Which bundle.
    #[command(flatten)]
    bundle: Bundle,
}

/// Does what was asked.
pub(crate) fn run(args: &Args, environment: &Environment) -> Outcome {
    match &args.action {
        Action::Check(bundle) => check(bundle, environment),
        Action::Test(bundle) => test(bundle, environment),
        Action::Expand(bundle) => expand(bundle, environment),
        Action::Explain(explain) => self::explain(explain, environment),
    }
}

/// The configuration, what it names, and the bundle in question.
struct Subject {
    config: Config,
    world: World,
    source: BundleSource,
    folder: Option<PathBuf>,
}

fn subject(args: &Bundle, environment: &Environment) -> Result<Subject, Failure> {
    let mut config = args.local.load(environment)?;
    if args.dir.is_some() {
        config.policies.clone_from(&args.dir);
    }
    let folder = config.policies.clone();
    let world = World::load(&config)?;
    let source = world.bundle.clone();
    Ok(Subject { config, world, source, folder })
}

fn check(args: &Bundle, environment: &Environment) -> Outcome {
    let Subject { config, world, source, folder } = subject(args, environment)?;
    let place = folder
        .as_deref()
        .map_or_else(|| "the shipped policies".to_owned(), |dir| dir.display().to_string());
    match world.compile(&source, &config) {
        Ok(snapshot) => {
            let (count, digest) = (snapshot.policies().count(), snapshot.digest());
            let untyped = snapshot.untyped_tools();
            let ungated: BTreeMap<_, _> = snapshot.ungated_tools().collect();
            let unfrozen: Vec<_> = snapshot.unfrozen_tools().collect();
            let document = json!({
                "ok": true, "policies": count, "digest": digest, "untyped_tools": untyped, "ungated_tools": ungated,
                "unfrozen_tools": unfrozen,
            });
            output::answer(args.local.json, &document, |_| {
                output::line(format!("ok: {count} policies in {place}, {digest}"));
                unseen_told(untyped);
                ungated_told(&ungated);
                unfrozen_told(&unfrozen);
            })
        }
        Err(problems) => Ok(problems_told(&problems, folder.as_deref(), args.local.json)),
    }
}

/// How many tools with unseen arguments are listed.
pub(crate) const UNSEEN_TOLD_MAX: usize = 20;

/// Prints which arguments policies cannot see. Undeclared extra arguments are common, so they are only counted.
fn unseen_told(tools: &[UntypedTool]) {
    let lossy: Vec<_> = tools.iter().filter(|tool| !tool.lost.is_empty()).collect();
    for tool in lossy.iter().take(UNSEEN_TOLD_MAX) {
        let lost = tool.lost.join("; ");
        output::line(format!(
            "note: policies do not see all arguments of `{}`: {lost}",
            tool.capability
        ));
    }
    let more = lossy.len().saturating_sub(UNSEEN_TOLD_MAX);
    if more > 0 {
        let more = output::counted(more, "more tool", "more tools");
        output::line(format!("note: and of {more} (--json lists them)"));
    }
    let open = tools.iter().filter(|tool| !tool.open.is_empty()).count();
    if open > 0 {
        output::line(format!(
            "note: {} arguments beside the declared ones, which policies do not see (--json lists them)",
            output::counted(open, "tool takes", "tools take")
        ));
    }
}

/// Prints which tools no gate holds though their calls reach out or cannot be undone.
fn ungated_told(tools: &BTreeMap<&CapabilityId, ApprovalMode>) {
    for (tool, mode) in tools.iter().take(UNSEEN_TOLD_MAX) {
        output::line(format!(
            "note: no gate holds {mode} calls of `{tool}`: what is permitted runs without an approval"
        ));
    }
    let more = tools.len().saturating_sub(UNSEEN_TOLD_MAX);
    if more > 0 {
        let more = output::counted(more, "more tool", "more tools");
        output::line(format!("note: the same is true of {more} (--json lists them)"));
    }
}

/// Prints which tools write, and are not held in a freeze.
fn unfrozen_told(tools: &[&CapabilityId]) {
    if let Some((first, more)) = tools.split_first() {
        let more = match more.len() {
            0 => String::new(),
            many => format!(", nor of {}", output::counted(many, "more tool", "more tools")),
        };
        output::line(format!("note: a freeze holds no call of `{first}`{more}"));
    }
}

/// Prints problems with file and line, as compilers do.
fn problems_told(problems: &[BundleProblem], folder: Option<&Path>, json: bool) -> Exit {
    if json {
        output::json(&json!({ "ok": false, "problems": problems }));
        return Exit::Findings;
    }
    for problem in problems {
        let mut placed = problem.clone();
        if let Some(folder) = folder.filter(|_| !problem.file.is_empty()) {
            placed.file = folder.join(&problem.file).display().to_string();
        }
        output::line(placed.to_string());
    }
    let count = output::counted(problems.len(), "problem", "problems");
    output::line(format!("{count}; a bundle with any is not used"));
    Exit::Findings
}

fn test(args: &Bundle, environment: &Environment) -> Outcome {
    let subject = subject(args, environment)?;
    let files = case_files(subject.folder.as_deref())?;
    let world = subject.world.for_cases(&subject.config);
    let mut outcomes = Vec::with_capacity(files.len());
    for (name, text) in files {
        let parsed = yaml::parse::<CaseFile>(Path::new(&name), &text);
        let ran = parsed.map_err(|problem| problem.to_string()).and_then(|parsed| {
            run_cases(&subject.source, Some(&world), &parsed).map_err(|error| error.to_string())
        });
        outcomes.push(match ran {
            Ok(cases) => FileOutcome { file: name, cases, error: None },
            Err(error) => FileOutcome { file: name, cases: Vec::new(), error: Some(error) },
        });
    }
    let broken = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
    let (mut passed, mut failed) = (0_usize, 0_usize);
    for case in outcomes.iter().flat_map(|outcome| &outcome.cases) {
        let counter = if case.passed() { &mut passed } else { &mut failed };
        *counter = counter.saturating_add(1);
    }
    let document = json!({
        "passed": passed, "failed": failed, "files_not_run": broken, "files": outcomes,
    });
    output::answer(args.local.json, &document, |_| {
        outcomes.iter().for_each(cases_told);
        let not_run = match broken {
            0 => String::new(),
            files => format!(", {} not run", output::counted(files, "file", "files")),
        };
        output::line(format!("{passed} passed, {failed} failed{not_run}"));
    })?;
    Ok(if failed == 0 && broken == 0 { Exit::Ok } else { Exit::Findings })
}

/// The result of one file of cases.
#[derive(Debug, Serialize)]
struct FileOutcome {
    /// The file.
    file: String,
    /// Its cases.
    cases: Vec<CaseOutcome>,
    /// Why none of its cases could be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Prints the result of a file: each case, and why it failed if it did.
fn cases_told(outcome: &FileOutcome) {
    output::line(&outcome.file);
    if let Some(error) = &outcome.error {
        output::line(format!("  ✗ not run: {error}"));
    }
    for case in &outcome.cases {
        output::line(format!("  {} {}", if case.passed() { "✓" } else { "✗" }, case.name));
        if !case.passed() {
            let why = case.differences.iter().map(|difference| format!("      {difference}"));
            let how = case.explanation.iter().map(|line| format!("      | {line}"));
            why.chain(how).for_each(output::line);
        }
    }
}

/// Prints each file of the bundle in the form used for decisions.
fn expand(args: &Bundle, environment: &Environment) -> Outcome {
    let Subject { source, folder, .. } = subject(args, environment)?;
    let files = match snapshot::expanded(&source) {
        Ok(files) => files,
        Err(problems) => return Ok(problems_told(&problems, folder.as_deref(), args.local.json)),
    };
    let documents: Vec<Value> =
        files.iter().map(|file| json!({ "file": file.name, "text": file.text })).collect();
    output::answer(args.local.json, &documents, |_| {
        for file in &files {
            output::line(format!("// ===== {} =====\n{}", file.name, file.text.trim_end()));
        }
    })
}

/// The case files of a bundle: of its folder, or the shipped ones.
fn case_files(folder: Option<&Path>) -> Result<Vec<(String, String)>, Failure> {
    let Some(folder) = folder.map(|folder| folder.join("cases")) else {
        return Ok(shipped::CASES
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect());
    };
    let what = || format!("the cases in `{}` cannot be read", folder.display());
    if matches!(folder.try_exists(), Ok(false)) {
        return Err(
            Failure::new(what()).because("there is no such folder, so nothing would be tested")
        );
    }
    world::refuse_astray(&folder, &["yaml", "yml"], &what())?;
    let paths = world::files_of(&folder, &["yaml", "yml"]).attempted(what())?;
    if paths.is_empty() {
        return Err(
            Failure::new(what()).because("there is no `*.yaml`, so nothing would be tested")
        );
    }
    let read = paths.into_iter().map(|path| {
        let text = yaml::read_text(&path).attempted(what())?;
        Ok((path.display().to_string(), text))
    });
    read.collect()
}

fn explain(args: &Explain, environment: &Environment) -> Outcome {
    let CaseOutcome { name, explanation, .. } = explained(args, environment)?;
    let document = json!({ "name": name, "explanation": explanation });
    output::answer(args.bundle.local.json, &document, |_| explanation.iter().for_each(output::line))
}

fn explained(args: &Explain, environment: &Environment) -> Result<CaseOutcome, Failure> {
    let subject = subject(&args.bundle, environment)?;
    let world = subject.world.for_cases(&subject.config);
    let tenant = args.tenant.clone().map_or_else(|| development_tenant(&subject.config), Ok)?;
    let file = made_up_case(args, &tenant)?;
    let outcomes = run_cases(&subject.source, Some(&world), &file)
        .attempted("the call cannot be put to these policies")?;
    let outcome = outcomes.into_iter().next().zip(file.cases.first());
    let (mut outcome, case) =
        outcome.ok_or_else(|| Failure::new("there was nothing to explain"))?;
    if outcome.explanation.is_empty() {
        // The case could not be evaluated at all: its only difference says why.
        return Err(Failure::new("the call cannot be put to these policies")
            .because(outcome.differences.join("; ")));
    }
    outcome.explanation.push(taken_for_granted(case));
    Ok(outcome)
}

/// What the policies were told of the circumstances.
fn taken_for_granted(case: &CallCase) -> String {
    format!(
        "assumed: it is {}; the run has {} calls and {} cents left and the ceiling {}, or what the agent's classes allow; the caller's proof is of type {}, and its workload is {}attested; change it with --with",
        case.now,
        case.budget.calls_left,
        case.budget.cents_left,
        case.safety_mode,
        case.proof.auth_type,
        if case.attested { "" } else { "not " }
    )
}

/// A case from the command line; its expectation is not used.
fn made_up_case(args: &Explain, tenant: &TenantId) -> Result<CaseFile, Failure> {
    let principal = |id: &PrincipalId| json!({ "id": id, "tenant": tenant });
    // What a call gets that asks for nothing.
    let RunBudget { calls_max, cost_cents_max, .. } = RunBudget::default();
    let mut case = json!({
        "name": "the call", "actor": principal(&args.agent), "user": args.user.as_ref().map(principal),
        "tool": tool_of(&args.tool)?, "args": arguments(args.args.as_deref(), &args.arg)?, "mode": args.mode,
        "now": SystemClock.now().to_string(), "budget": { "calls_left": calls_max, "cents_left": cost_cents_max },
        "expect": { "outcome": "allow" },
    });
    let more = args.with.as_deref().unwrap_or("{}");
    let more: Map<String, Value> = yaml::parse(Path::new("--with"), more)
        .map_err(|problem| Failure::usage("the case cannot be read").because(problem))?;
    let has_args = args.args.is_some() || !args.arg.is_empty();
    for (key, is_told, told) in [
        ("expect", true, "`expect` is for `placet policy test`; nothing is compared with it here"),
        ("tool", true, "the tool is given with --tool, not in --with"),
        ("user", args.user.is_some(), "the user is given with --user, or in --with, not with both"),
        (
            "args",
            has_args,
            "arguments are given with --arg and --args, or in --with, not with both",
        ),
        ("mode", args.mode.is_some(), "the mode is given with --mode, or in --with, not with both"),
    ] {
        if is_told && more.contains_key(key) {
            return Err(Failure::usage(told));
        }
    }
    let actor = more.get("actor").and_then(|actor| actor.get("id")).and_then(Value::as_str);
    if actor.is_some_and(|actor| actor != args.agent.as_str()) {
        return Err(Failure::usage(
            "the agent is given with --agent; `actor` in --with is another",
        ));
    }
    if let Some(case) = case.as_object_mut() {
        case.extend(more);
    }
    serde_json::from_value(json!({ "cases_version": "placet.policy-cases.v1", "cases": [case] }))
        .map_err(|error| Failure::usage("the call is not a case").because(error))
}

fn tool_of(tool: &str) -> Result<CapabilityId, Failure> {
    CapabilityId::from_tool_name(tool)
        .or_else(|error| tool.parse().map_err(|_not_an_id: placet_types::ids::IdError| error))
        .map_err(|error| Failure::usage(format!("`{tool}` is not a tool")).because(error))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::{
        cli::{Cli, Command},
        environment::Environment,
        failure::{Exit, Outcome},
    };

    fn policy(words: &[&str]) -> Outcome {
        let words = ["placet", "policy"].iter().chain(words).copied();
        super::run(&args(Cli::try_parse_from(words).unwrap()), &Environment::of([]))
    }

    fn args(cli: Cli) -> super::Args {
        let Command::Policy(args) = cli.command else { panic!("not `policy`") };
        args
    }

    #[test]
    fn the_shipped_policies_are_sound_and_their_cases_pass() {
        assert_eq!(policy(&["check"]), Ok(Exit::Ok));
        assert_eq!(policy(&["test"]), Ok(Exit::Ok));
    }

    #[test]
    fn a_bundle_with_a_problem_is_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.cedar"), "permit(principal, action, resource);").unwrap();
        assert_eq!(policy(&["check", dir.path().to_str().unwrap()]), Ok(Exit::Findings));
        assert!(
            policy(&["test", dir.path().to_str().unwrap()]).is_err(),
            "a bundle without cases tests nothing"
        );
    }

    #[test]
    fn a_case_that_would_not_be_run_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cases = dir.path().join("cases");
        std::fs::create_dir_all(cases.join("more")).unwrap();
        let folder = dir.path().to_str().unwrap();
        std::fs::write(dir.path().join("a.cedar"), "").unwrap();
        std::fs::write(cases.join("README.md"), "").unwrap();
        std::fs::write(cases.join("a.yaml"), "cases: []").unwrap();
        assert!(policy(&["test", folder]).is_ok(), "a folder beside it and another file");
        for astray in ["more/b.yaml", "b.YAML", ".b.yml"] {
            std::fs::write(cases.join(astray), "cases: []").unwrap();
            let failure = policy(&["test", folder]).unwrap_err().to_string();
            assert!(failure.contains(astray), "{failure}");
            std::fs::remove_file(cases.join(astray)).unwrap();
        }
    }

    fn explanation(words: &[&str]) -> String {
        let call = "placet policy explain --tool files__delete --agent dev-agent --arg path=a.txt";
        let words = call.split(' ').chain(words.iter().copied());
        let super::Action::Explain(explain) = args(Cli::try_parse_from(words).unwrap()).action
        else {
            panic!("not `explain`")
        };
        super::explained(&explain, &Environment::of([])).unwrap().explanation.join("\n")
    }

    #[test]
    fn a_call_is_explained_as_it_would_be_in_a_freeze_with_an_agreement_and_under_a_grant() {
        let held = explanation(&[]);
        assert!(held.contains("gate-destructive") && !held.contains("gate-freeze"), "{held}");
        let agreed =
            explanation(&["--with", "approval: { votes: [{ by: ben, authenticated_ago_ms: 0 }] }"]);
        let grant = "approval: { standing: true, votes: [{ by: ben, authenticated_ago_ms: 0 }] }";
        let granted = explanation(&["--with", grant]);
        assert!(agreed != held && granted != held, "{held}\n{agreed}\n{granted}");
        let unproved = explanation(&["--with", "attested: false"]);
        assert!(
            unproved.contains("`attested` is false") && !held.contains("is false"),
            "{unproved}\n{held}"
        );
        assert!(unproved.contains("not attested") && !held.contains("not attested"), "{held}");
        let frozen = explanation(&["--with", "frozen: true"]);
        assert!(frozen.contains("gate-freeze"), "{frozen}");
        // No standing grant counts in a freeze.
        let frozen = explanation(&["--with", &format!("frozen: true\n{grant}")]);
        assert!(frozen.contains("gate-freeze"), "{frozen}");
        for unused in ["frosen: true", "expect: { outcome: deny }", "tool: files/read"] {
            let call = ["explain", "--tool", "files__list", "--agent", "dev-agent", "--with"];
            assert!(policy(&[&call[..], &[unused]].concat()).is_err(), "{unused}");
        }
    }

    #[test]
    fn a_call_is_explained_and_a_call_that_cannot_be_is_refused() {
        let call = ["explain", "--tool", "files__delete", "--agent", "dev-agent"];
        assert_eq!(policy(&[&call[..], &["--arg", "path=a.txt"]].concat()), Ok(Exit::Ok));
        assert!(policy(&[&call[..], &["--arg", "pth=a.txt"]].concat()).is_err());
        assert!(policy(&["explain", "--tool", "files__fly", "--agent", "dev-agent"]).is_err());
        let unknown = policy(&["explain", "--tool", "files__list", "--agent", "dev-agnt"]);
        assert!(unknown.unwrap_err().to_string().contains("no agent `dev-agnt`"));
    }
}
