//! What is reported about values in the place of names.

use std::path::Path;

use placet_types::contract::file::ContractFile;

use crate::{config::file::ConfigFile, yaml::parse};

const PASTED: &str = "sk_live_4nAryS3cretV4lue77";

/// The problems reported for a configuration and for a contract with this line in it.
fn problems(line: &str) -> Vec<String> {
    let line = line.replace("PASTED", PASTED);
    let contract = "adapter: mail\nenvironment: dev\ndescription: x\ntransport: { type: mcp_http, url: 'https://mail.example/mcp' }\n";
    let config = parse::<ConfigFile>(Path::new("placet.yaml"), &line).err();
    let contract =
        parse::<ContractFile>(Path::new("mail.yaml"), &format!("{contract}{line}")).err();
    let problems = [config, contract].into_iter().flatten().map(|problem| problem.to_string());
    problems.filter(|problem| !problem.contains("unknown field `")).collect()
}

fn service(auth: &str) -> String {
    let names = "name: corp, issuer: 'https://id.example', token_endpoint: 'https://id.example/token', client_id: placet";
    format!("sts:\n  - {{ {names}, client_auth: {auth} }}\n")
}

#[test]
fn what_is_pasted_where_a_secret_is_named_is_not_repeated_and_what_is_expected_is_said() {
    for (line, says) in [
        (service("PASTED"), "method: client_secret_basic, secret: NAME"),
        (service("{ method: PASTED }"), "client_secret_basic"),
        (service("[PASTED]"), "client_auth"),
        (service("{ method: client_secret_basic, secret: [PASTED] }"), "client_auth"),
        (service("{ method: client_secret_basic, secret: { PASTED: x } }"), "client_auth"),
        (service("{ method: client_secret_basic, PASTED: x }"), "client_auth"),
        (service("{ PASTED }"), "missing field `method`"),
        ("secrets: PASTED\n".to_owned(), "keys with values are expected"),
        ("secrets: [PASTED]\n".to_owned(), "keys with values are expected"),
        ("secrets: { k: PASTED }\n".to_owned(), "a secret is written `${VARIABLE}`"),
        ("credential: PASTED\n".to_owned(), "keys with values are expected"),
        ("credential: { type: PASTED }\n".to_owned(), "token_exchange"),
        ("credential: { type: token_exchange, actor: PASTED }\n".to_owned(), "gateway"),
        ("credential: { cache: PASTED }\n".to_owned(), "never"),
        ("credential: { secret: [PASTED] }\n".to_owned(), "a text is expected"),
        ("credential: { PASTED: x }\n".to_owned(), "secret"),
        ("credential: { PASTED }\n".to_owned(), "secret"),
    ] {
        let told = problems(&line);
        assert!(told.iter().any(|told| told.contains(says)), "{line}: {told:?}");
        assert!(!told.iter().any(|told| told.contains(PASTED)), "{line}: {told:?}");
        assert!(told.iter().all(|told| !told.contains("enum")), "{line}: {told:?}");
    }
}

#[test]
fn a_misspelt_key_is_named_there_too() {
    let line = service("{ method: client_secret_basic, sekret: NAME }");
    let told = parse::<ConfigFile>(Path::new("placet.yaml"), &line).unwrap_err().to_string();
    assert!(told.contains("unknown field `sekret`"), "{told}");
    let elsewhere = parse::<ConfigFile>(Path::new("placet.yaml"), "audit: { reads: sometimes }\n");
    let told = elsewhere.unwrap_err().to_string();
    assert!(told.contains("sometimes"), "elsewhere, what stands there is said: {told}");
}
