//! What the page of a call says of its caller: how it proved who it is, and which results it relies on.

use serde_json::json;

use super::call_page;

#[tokio::test]
async fn how_caller_and_user_proved_themselves_is_on_the_page() {
    let mut detail = placet_api::testing::sample_detail();
    let caller = json!({
        "agent_urn": "urn:placet:agent:acme:bot", "workload_identity": "spiffe://prod.example/agent/bot",
        "role": "mailers", "lifecycle": "suspended", "auth_type": "jwt", "attested": false,
        "delegation": { "auth_type": "bound_jwt", "subject": "ada\u{202e}<b>", "scopes": ["mail.read"] },
    });
    detail.proposal.as_mut().unwrap().evidence.caller =
        Some(serde_json::from_value(caller).unwrap());
    let page = call_page(&detail).await;
    for words in [
        "<code>urn:placet:agent:acme:bot</code> proved by <code>jwt</code>",
        "not attested",
        "suspended",
        "<code>spiffe://prod.example/agent/bot</code>",
        "role <code>mailers</code>",
        r"<code>ada\u{202e}&lt;b&gt;</code> proved by <code>bound_jwt</code>, scopes <code>mail.read</code>",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[tokio::test]
async fn what_was_found_of_a_reference_is_shown_with_its_digest() {
    let mut detail = placet_api::testing::sample_detail();
    let digest = placet_types::digest::Digest::of(b"the output");
    let proposal = detail.proposal.as_mut().unwrap();
    proposal.call.evidence_refs = vec!["call_7".to_owned()];
    let found = json!([{ "kind": "result", "call_id": "call_7", "capability_id": "crm/look", "digest": digest }]);
    proposal.evidence.refs = serde_json::from_value(found).unwrap();
    let page = call_page(&detail).await;
    for words in
        ["<blockquote>call_7</blockquote>Result of <code>crm/look</code>", &digest.to_string()]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
}
