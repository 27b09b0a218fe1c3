//! What authors of policies meet: gates are written in annotations, and what cannot work does not pass the check.

use std::fs;

use crate::harness::setup::Setup;

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

#[tokio::test]
async fn the_deepest_condition_that_passes_the_check_decides() {
    let setup = Setup::new();
    let row = |times: usize| vec!["context.req.attested"; times].join(" || ");
    let permit = |times: usize| {
        format!(
            "@id(\"own\")\npermit (principal is Placet::Agent, action == Placet::Action::\"files/read\", resource is Placet::Tool)\nwhen {{ {} }};\n",
            row(times)
        )
    };
    let config = folder(&setup, &permit(390)).await;
    let explain =
        ["policy", "explain", "-f", &config, "--tool", "files__read", "--agent", "dev-agent"];
    let explained = setup.bare(&[&explain[..], &["--arg", "path=a"]].concat()).await;
    assert!(explained.ok().contains("policy `own` permits"), "{explained:?}");
    fs::write(setup.path("new/policies/60-own.cedar"), permit(450)).unwrap();
    let found = setup.bare(&["policy", "check", "-f", &config]).await;
    assert!(found.out.contains("60-own.cedar:3: error: the condition nests"), "{found:?}");
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
    let freezes = ["approvals", "freezes"];
    let set = [&freezes[..], &["set", "--name", "Release", "--for", "2d", "--reason", "release"]]
        .concat();
    let set = setup.asks(&placet, &ben, &set).await;
    let id = set.ok().split_whitespace().find(|word| word.starts_with("desk_")).unwrap();
    let id = id.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let cleo = setup.token("user", "cleo").await;
    let lift = [&freezes[..], &["lift", id, "--reason", "done"]].concat();
    setup.asks(&placet, &cleo, &lift).await.ok();
}

#[tokio::test]
async fn a_refusal_tells_the_agent_the_reason_only_where_the_policy_says_so() {
    use crate::harness::setup::plan;
    use serde_json::json;

    for (tells, wanted) in [
        ("", "policy does not allow this call"),
        (
            "@tell(\"agent\")\n",
            "policy does not allow this call: Files that begin with a dot are not for agents.",
        ),
    ] {
        let setup = Setup::new();
        let policy = DOTFILES.replacen("@reason", &format!("{tells}@reason"), 1);
        folder(&setup, &policy).await;
        let policies = setup.path("new/policies");
        let setup = setup.with("policies", json!(policies));
        let placet = setup.start().await;
        let agent = setup.agent(&placet).await;
        let call = plan("files__read", "s1", json!({ "path": ".env" }));
        let refused = agent.call(&call).await.refused(403, "POLICY_DENIED");
        assert_eq!(refused["detail"], wanted, "{refused:#}");
        placet.stop().await;
    }
}
