//! What somebody meets who has only the README: the words of refusals that are easy to run into.
//!
//! Owns the words and exit codes. That the things are refused at all is tested in `bad_input`.

use serde_json::{Value, json};

use crate::harness::setup::{Setup, plan};

fn write() -> Value {
    plan("files__write", "s1", json!({ "path": "a.txt", "content": "x" }))
}

/// What a stranger types: a key that is none, a head that is none, an argument without a name, a token of another folder, a call without a mode.
#[tokio::test]
async fn a_stranger_who_mistypes_is_told_what_to_repair() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let token = setup.token("agent", "dev-agent").await;
    for (words, says) in [
        (&["audit", "verify", "--key", "nope"][..], "`--key` is not a public key"),
        (&["audit", "verify", "--head", "zz"], "64 hexadecimal digits"),
        (&["token", "agent", "dev-agent", "--ttl", "13h"], "twelve hours"),
    ] {
        let ran = setup.configured(words).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(says), "{ran:?}");
    }
    for words in [&["tools", "--url", "localhost:1"][..], &["ledger", "backup", "--admin-url", ""]]
    {
        let ran = setup.bare(words).await;
        assert!(ran.code == Some(2) && ran.err.contains("begins with `http://`"), "{ran:?}");
    }
    let write = ["call", "files__write", "--arg", "path=a.txt", "--arg", "content=x"];
    let unnamed = setup.asks(&placet, &token, &[&write[..], &["--arg", "=x"]].concat()).await;
    assert_eq!(
        (unnamed.code, unnamed.err.contains("names no argument")),
        (Some(2), true),
        "{unnamed:?}"
    );
    let without_mode = setup.asks(&placet, &token, &write).await;
    assert_eq!(without_mode.code, Some(5), "{without_mode:?}");
    for said in ["it is `local_write`", "`safety_mode` is `read_only`", "add --safety-mode"] {
        assert!(without_mode.err.contains(said), "{said}: {without_mode:?}");
    }
    assert!(!setup.file("a.txt").try_exists().unwrap());
    let elsewhere = setup.path("elsewhere").display().to_string();
    let foreign = setup.bare(&["token", "agent", "dev-agent", "--data", &elsewhere]).await;
    assert!(foreign.err.contains("made a development key in"), "{foreign:?}");
    let refused = setup.asks(&placet, foreign.ok().trim(), &["tools"]).await;
    assert!(refused.err.contains("mint it in the folder where Placet was started"), "{refused:?}");
    let misled = setup.asks(&placet, &token, &["tools", "--url", placet.admin.as_str()]).await;
    assert!(misled.err.contains("everything else at `listen`"), "{misled:?}");
    let nobody = setup.token("agent", "nobody").await;
    let nothing = setup.asks(&placet, &nobody, &["tools"]).await;
    assert!(nothing.ok().contains("no tools that you may call"), "{nothing:?}");
}

#[tokio::test]
async fn a_type_that_only_the_program_knows_is_in_no_message() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    for (name, value, says) in [
        ("wait_ms", json!(-1), "a whole number that is not negative"),
        ("run", json!(3), "an object"),
        (
            "run",
            json!({ "run_id": "r", "run_budget": { "calls_max": "5" } }),
            "from 0 to 4294967295",
        ),
    ] {
        let mut call = write();
        call[name] = value;
        let problem =
            agent.post_text("/v1/calls", call.to_string()).await.refused(400, "VALIDATION_ERROR");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{detail}");
        assert!(
            !detail.contains("u32") && !detail.contains("u64") && !detail.contains("struct"),
            "{detail}"
        );
    }
    for (key, value, says) in [
        ("listen", json!("localhost"), "an IP address and a port"),
        ("limits", json!({ "calls_in_flight_max": -1 }), "a whole number that is not negative"),
    ] {
        let gone = Setup::new().with(key, value).refuses().await;
        gone.says(&["placet.yaml", says]);
        assert!(!gone.said.contains("u64") && !gone.said.contains("socket"), "{gone:?}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_folder_is_told_with_its_name() {
    let setup = Setup::new().with("contracts", json!("contracts"));
    std::fs::create_dir(setup.path("contracts")).unwrap();
    setup.refuses().await.says(&["the contracts of `environment: dev`"]);
    let file = setup.path("placet.yaml").display().to_string();
    let verified = setup.bare(&["audit", "verify", "--data", &file]).await;
    assert!(verified.err.contains("name the data folder with --data"), "{verified:?}");
    let setup = Setup::new();
    setup.start().await.stop().await;
    let exported = setup.configured(&["audit", "export", "/nowhere/x.jsonl"]).await;
    assert!(exported.err.contains("`/nowhere/x.jsonl` cannot be written"), "{exported:?}");
    for entry in std::fs::read_dir(setup.data().join("ledger/state")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::write(&path, [0xa5; 500]).unwrap();
        }
    }
    let counted = setup.configured(&["ledger", "stats"]).await;
    assert!(counted.err.contains("`placet ledger fsck --rebuild`"), "{counted:?}");
}

#[tokio::test]
async fn doctor_says_that_a_data_folder_cannot_be_made() {
    let setup = Setup::new();
    let ran = setup.bare(&["doctor", "--data", "/proc/nowhere/data"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("cannot be made in `/proc`"), "{ran:?}");
}
