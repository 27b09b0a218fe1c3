//! What authors of policies meet: gates are written in annotations, and what cannot work does not pass the check.

use std::fs;

use serde_json::json;

use crate::harness::{
    client::text,
    setup::{Setup, plan},
    until,
};

/// A folder from `placet init`, with one more policy and more cases.
async fn folder(setup: &Setup, policy: &str) -> String {
    let folder = setup.path("new");
    setup.bare(&["init", folder.to_str().unwrap()]).await.ok();
    fs::write(folder.join("policies/60-own.cedar"), policy).unwrap();
    folder.join("placet.yaml").to_str().unwrap().to_owned()
}

const DOTFILES: &str = r#"@id("no-dotfiles")
@approval("never")
@reason("Files that begin with a dot are not for agents.")
forbid (
  principal,
  action in [Placet::Action::"files/read", Placet::Action::"files/write"],
  resource is Placet::Tool
)
when { context.input.path like ".*" };
"#;

/// A gate with these annotations.
fn gate(annotations: &str) -> String {
    format!(
        "@id(\"own\")\n@approval(\"required\")\n{annotations}\nforbid (principal, action == Placet::Action::\"files/read\", resource is Placet::Tool);\n"
    )
}

#[tokio::test]
async fn a_gate_that_nobody_can_satisfy_fails_the_check_and_the_start() {
    let setup = Setup::new();
    let config = folder(&setup, &gate("@approver_group(\"securty\")")).await;
    let check = ["policy", "check", "-f", &config];
    let found = setup.bare(&check).await;
    assert_ne!(found.code, Some(0), "{found:?}");
    assert!(found.out.contains("60-own.cedar:1: error: policy `own`"), "{found:?}");
    assert!(found.out.contains("`securty`"), "{found:?}");
    let own = setup.path("new/policies/60-own.cedar");
    fs::write(&own, gate("@approver_group(\"approvers\") @quorum(\"2\")")).unwrap();
    let found = setup.bare(&check).await;
    assert!(found.out.contains("2 people in all"), "{found:?}");
    setup.refuses_with(config.as_ref()).await.says(&["2 people in all", "60-own.cedar"]);
    fs::write(&own, gate("@approver_group(\"approvers\")")).unwrap();
    setup.bare(&check).await.ok();
}

#[tokio::test]
async fn expand_shows_the_condition_of_each_gate() {
    let setup = Setup::new();
    let config = folder(&setup, &gate("@approver_group(\"approvers\") @once_only(\"true\")")).await;
    let expanded = setup.bare(&["policy", "expand", "-f", &config]).await;
    let (_, own) = expanded.ok().split_once("60-own.cedar").unwrap();
    for line in ["context.req.approval.scope ==", "context.req.approval.getTag(\"approvers\") >= 1"]
    {
        assert!(own.contains(line), "{own}");
    }
}

#[tokio::test]
async fn the_first_rule_that_names_a_tool_leaves_the_shipped_cases_running() {
    let setup = Setup::new();
    let config = folder(&setup, DOTFILES).await;
    let cases = setup.path("new/policies/cases");
    let own = "cases_version: placet.policy-cases.v1
cases:
  - name: a file that begins with a dot is not read
    actor: { id: dev-agent, tenant: local }
    tool: files/read
    args: { path: .env }
    expect: { outcome: deny, code: POLICY_DENIED, kind: policy, policies: [no-dotfiles] }
";
    fs::write(cases.join("60-own.yaml"), own).unwrap();
    let test = ["policy", "test", "-f", &config];
    let ran = setup.bare(&test).await;
    assert!(ran.ok().contains("a file that begins with a dot is not read"), "{ran:?}");
    assert!(ran.out.contains(" 0 failed"), "{ran:?}");
    // A file that cannot be run fails alone, in few words.
    let broken = own.replace(
        "cases:\n",
        "world: { environment: dev, directory: {}, contracts: [{}] }\ncases:\n",
    );
    fs::write(cases.join("70-broken.yaml"), broken).unwrap();
    let ran = setup.bare(&test).await;
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains(" 0 failed, 1 file not run"), "{ran:?}");
    let error = ran.out.lines().find(|line| line.contains("not run:")).unwrap();
    assert!(error.len() < 1_000, "{error}");
}

/// A set-up with the policies of a folder from `placet init`, and one more.
async fn with_policy(policy: &str) -> Setup {
    let setup = Setup::new();
    folder(&setup, policy).await;
    let policies = setup.path("new/policies");
    setup.put("a.txt", "x");
    setup.with("policies", json!(policies))
}

#[tokio::test]
async fn the_deepest_condition_that_passes_the_check_decides_after_a_reload() {
    let setup = with_policy(DOTFILES).await;
    let own = setup.path("new/policies/60-own.cedar");
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.token("user", "ben").await);
    let row = |times: usize| vec!["context.req.attested"; times].join(" || ");
    let clauses = |times: usize| vec!["context.req.attested"; times].join(" } when { ");
    let brackets = |times: usize| format!("{}true{}", "(".repeat(times), ")".repeat(times));
    let conditions: [&dyn Fn(usize) -> String; 3] = [&row, &clauses, &brackets];
    for (nth, condition) in conditions.into_iter().enumerate() {
        let policy = |times: usize| {
            format!(
                "@id(\"own\") @approval(\"never\") @reason(\"deep {nth}\") @tell(\"agent\")\nforbid (principal, action == Placet::Action::\"files/read\", resource is Placet::Tool)\nwhen {{ {} }} when {{ context.input.path == \"a.txt\" }};\n",
                condition(times)
            )
        };
        fs::write(&own, policy(70)).unwrap();
        setup.asks(&placet, &ben, &["reload"]).await.ok();
        let read = plan("files__read", &format!("s{nth}"), json!({ "path": "a.txt" }));
        let refused = agent.call(&read).await.refused(403, "POLICY_DENIED");
        assert!(text(&refused, "detail").ends_with(&format!("deep {nth}")), "{refused:#}");
        fs::write(&own, policy(120)).unwrap();
        let refused = setup.asks(&placet, &ben, &["reload"]).await;
        assert!(refused.err.contains("60-own.cedar:3"), "{refused:?}");
        assert!(
            refused.err.contains("the condition nests more than 80 levels deep"),
            "{refused:?}"
        );
    }
    placet.stop().await;
}

#[tokio::test]
async fn log_and_decision_of_a_policy_error_say_what_failed() {
    let overflows = "@id(\"own\") @approval(\"never\") @reason(\"x\")
forbid (principal, action == Placet::Action::\"files/read\", resource is Placet::Tool)
when { context.req.budget.calls_left * 9223372036854775807 > 0 };
";
    let setup = with_policy(overflows).await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let call = plan("files__read", "s1", json!({ "path": "a.txt" }));
    let refused = agent.call(&call).await.refused(500, "POLICY_ERROR");
    assert!(!text(&refused, "detail").contains("overflow"), "{refused:#}");
    let ben = setup.token("user", "ben").await;
    let decision = text(&refused, "policy_decision_id");
    let cause = "policy `own` could not be evaluated: integer overflow";
    let show = ["decisions", &decision];
    // Readers see an entry once it is synced, up to 50 ms after the answer.
    until("the decision says what failed", || async {
        setup.asks(&placet, &ben, &show).await.out.contains(cause)
    })
    .await;
    assert!(placet.log().contains(cause), "{}", placet.log());
    placet.stop().await;
}

#[tokio::test]
async fn a_gate_of_two_groups_says_how_many_distinct_people_it_needs() {
    let setup = with_policy(&gate("@approver_group(\"approvers, auditors\")")).await;
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    let call = plan("files__read", "s1", json!({ "path": "a.txt" }));
    let held = agent.call(&call).await.held();
    let cleo = setup.token("user", "cleo").await;
    let id = text(&held, "approval_id");
    let shown = setup.asks(&placet, &cleo, &["approvals", "show", &id]).await;
    let needs = "2 people in all, 1 person of `approvers` and 1 person of `auditors`";
    assert!(shown.ok().contains(needs), "{shown:?}");
    assert_eq!(ben.decide(&held, "approve").await.ok()["state"], "pending");
    let cleo = setup.client(&placet, "user", "cleo").await;
    assert_eq!(cleo.decide(&held, "approve").await.ok()["state"], "approved");
    agent.end_of(&text(&held, "call_id")).await.succeeded();
    placet.stop().await;
}

#[tokio::test]
async fn explain_knows_the_ceiling_of_an_agents_class() {
    let setup = Setup::new();
    let config = folder(&setup, DOTFILES).await;
    let path = setup.path("new/directory.yaml");
    let directory = fs::read_to_string(&path).unwrap();
    let capped = directory.replace("{ owner: ana,", "{ owner: ana, classes: [bots],")
        + "    classes: { bots: { safety_mode_max: network } }\n";
    assert_ne!(capped, directory);
    fs::write(&path, capped).unwrap();
    let explain =
        ["policy", "explain", "-f", &config, "--tool", "files__delete", "--agent", "dev-agent"];
    let explained = setup.bare(&[&explain[..], &["--arg", "path=a"]].concat()).await;
    assert!(explained.ok().contains("is denied"), "{explained:?}");
    assert!(explained.out.contains("the run's ceiling is network"), "{explained:?}");
}

#[tokio::test]
async fn somebody_can_lift_a_freeze_in_the_default_directory() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let ben = setup.token("user", "ben").await;
    let set = ["directives", "freeze", "--name", "Release", "--for", "2d", "--reason", "release"];
    let set = setup.asks(&placet, &ben, &set).await;
    let id = set.ok().split_whitespace().find(|word| word.starts_with("dir_")).unwrap();
    let id = id.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let cleo = setup.token("user", "cleo").await;
    let lift = ["directives", "end", id, "--reason", "done"];
    setup.asks(&placet, &cleo, &lift).await.ok();
}

#[tokio::test]
async fn a_refusal_tells_the_agent_the_reason_only_where_the_policy_says_so() {
    for (tells, wanted) in [
        ("", "policy does not allow this call"),
        (
            "@tell(\"agent\")\n",
            "policy does not allow this call: Files that begin with a dot are not for agents.",
        ),
    ] {
        let policy = DOTFILES.replacen("@reason", &format!("{tells}@reason"), 1);
        let setup = with_policy(&policy).await;
        let placet = setup.start().await;
        let agent = setup.agent(&placet).await;
        let call = plan("files__read", "s1", json!({ "path": ".env" }));
        let refused = agent.call(&call).await.refused(403, "POLICY_DENIED");
        assert_eq!(refused["detail"], wanted, "{refused:#}");
        placet.stop().await;
    }
}
