//! Resources, prompts and completions of real servers, as a client asks for them through the built program.
//!
//! Owns what of them is decided, listed, refused and recorded. The servers are `tests/peers/conformance_server.py` and npm's `server-everything`;
//! that each form of content passes in each revision is also found by the conformance suite.

use std::fs;

use serde_json::{Value, json};
use tokio::process::Child;

use crate::{
    conformance::upstream,
    harness::{
        client::{Client, text},
        npm,
        placet::Placet,
        setup::Setup,
    },
    mcp::Everything,
    mcp_clients::{World, said, stateless},
    reload::own_files,
};

/// A server with resources and prompts, imported as the adapter `docs`.
struct Docs {
    _server: Child,
    setup: Setup,
}

impl Docs {
    async fn new() -> Self {
        let setup = own_files(Setup::new()).with("contracts", json!("contracts"));
        Self::of(setup).await
    }

    async fn of(setup: Setup) -> Self {
        let (server, url) = upstream().await;
        let import = ["adapters", "import", "--name", "docs", "--url", url.as_str()];
        let tenant = ["--private-network", "--tenant", "local"];
        setup.configured(&[&import[..], &tenant].concat()).await.ok();
        Self { _server: server, setup: setup.with("mcp", json!({ "hold_ms": 100 })) }
    }

    fn policy(&self, text: &str) {
        fs::write(self.setup.path("policies/99-docs.cedar"), text).unwrap();
    }

    fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut contract = self.setup.read_contract("docs");
        change(&mut contract);
        fs::write(self.setup.contract_file("docs"), contract.to_string()).unwrap();
    }
}

/// A policy about the reading of one resource.
fn about(uri: &str, approval: &str) -> String {
    format!(
        "@id(\"about\")\n{approval}\n@reason(\"Not this one.\")\nforbid (principal is Placet::Agent, action == \
         Placet::Action::\"docs/read_resource\", resource is Placet::Tool)\nwhen {{ context.input.uri == \"{uri}\" }};\n"
    )
}

/// What is answered to a request of the revision without sessions.
async fn answered(client: &Client, path: &str, method: &str, params: Value) -> Value {
    let name = params.get("uri").or_else(|| params.get("name")).cloned();
    let mut request = client
        .request(http::Method::POST, path)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    if let Some(Value::String(name)) = name {
        request = request.header("mcp-name", name);
    }
    let body = stateless(method, params).to_string();
    let reply = client.send(request.body(body.into()).unwrap()).await;
    reply.json()
}

/// Its result.
async fn result(client: &Client, path: &str, method: &str, params: Value) -> Value {
    let mut answer = answered(client, path, method, params).await;
    assert!(answer.get("error").is_none(), "{method}: {answer:#}");
    answer["result"].take()
}

async fn read(client: &Client, path: &str, uri: &str) -> Value {
    answered(client, path, "resources/read", json!({ "uri": uri })).await
}

/// What is listed, by this member of each item.
async fn listed(client: &Client, path: &str, method: &str, items: &str, key: &str) -> Vec<String> {
    let list = result(client, path, method, json!({})).await;
    list[items].as_array().unwrap().iter().map(|item| text(item, key)).collect()
}

async fn uris(client: &Client, path: &str) -> Vec<String> {
    listed(client, path, "resources/list", "resources", "uri").await
}

const STATIC: [&str; 3] = ["test://static-binary", "test://static-text", "test://watched-resource"];

#[tokio::test]
async fn resources_are_listed_and_read_by_the_uris_of_their_server_or_with_its_adapter() {
    let docs = Docs::new().await;
    let placet = docs.setup.start().await;
    let agent = docs.setup.agent(&placet).await;
    for (path, before) in [("/mcp/docs", ""), ("/mcp", "placet://docs/")] {
        let at = |uri: &str| format!("{before}{uri}");
        let discovered = result(&agent, path, "server/discover", json!({})).await;
        let capabilities = &discovered["capabilities"];
        assert_eq!(capabilities["resources"], json!({}), "{discovered:#}");
        assert_eq!(uris(&agent, path).await, STATIC.map(at), "{path}");
        let templates = ("resources/templates/list", "resourceTemplates", "uriTemplate");
        let templates = listed(&agent, path, templates.0, templates.1, templates.2).await;
        assert_eq!(templates, [at("test://template/{id}/data")]);
        for (uri, kind, member, begins) in [
            ("test://static-text", "text/plain", "text", "This is the content"),
            ("test://static-binary", "image/png", "blob", "iVBOR"),
            ("test://template/7/data", "application/json", "text", "{\"id\": \"7\""),
        ] {
            let answer = read(&agent, path, &at(uri)).await;
            let contents = answer["result"]["contents"].as_array().unwrap();
            assert_eq!(contents.len(), 1, "{answer:#}");
            assert_eq!(text(&contents[0], "uri"), at(uri));
            assert_eq!(contents[0]["mimeType"], kind);
            assert!(text(&contents[0], member).starts_with(begins), "{answer:#}");
            assert_eq!(said(&answer["result"])["status"], "succeeded", "{answer:#}");
        }
        let missing = read(&agent, path, &at("test://nothing")).await;
        assert_eq!(missing["error"]["code"], -32602, "{missing:#}");
        assert_eq!(missing["error"]["data"]["uri"], at("test://nothing"), "{missing:#}");
    }
    // A URI of the server's own can be meant for this adapter only, and for no other.
    let own = read(&agent, "/mcp", "test://static-text").await;
    assert_eq!(own["result"]["contents"][0]["uri"], "placet://docs/test://static-text");
    let elsewhere = read(&agent, "/mcp", "placet://files/test://static-text").await;
    assert_eq!(elsewhere["error"]["code"], -32602, "{elsewhere:#}");
}

#[tokio::test]
async fn prompts_are_got_with_their_content_and_arguments_are_completed() {
    let docs = Docs::new().await;
    let placet = docs.setup.start().await;
    let agent = docs.setup.agent(&placet).await;
    for (path, before, of) in [("/mcp/docs", "", ""), ("/mcp", "docs__", "placet://docs/")] {
        let names = listed(&agent, path, "prompts/list", "prompts", "name").await;
        assert!(names.contains(&format!("{before}test_simple_prompt")), "{names:?}");
        let get = async |name: &str, arguments: Value| {
            let params = json!({ "name": format!("{before}{name}"), "arguments": arguments });
            answered(&agent, path, "prompts/get", params).await
        };
        let args = json!({ "arg1": "one", "arg2": "two" });
        let filled = get("test_prompt_with_arguments", args).await;
        let content = &filled["result"]["messages"][0]["content"];
        assert_eq!(content["text"], "Prompt with arguments: arg1='one', arg2='two'");
        let image = get("test_prompt_with_image", json!({})).await;
        assert_eq!(image["result"]["messages"][0]["content"]["type"], "image", "{image:#}");
        let args = json!({ "resourceUri": "test://static-text" });
        let embedded = get("test_prompt_with_embedded_resource", args).await;
        let content = &embedded["result"]["messages"][0]["content"];
        assert_eq!(content["resource"]["uri"], format!("{of}test://static-text"), "{embedded:#}");
        let bad = get("test_prompt_with_arguments", json!({ "arg1": 7 })).await;
        assert_eq!(bad["error"]["code"], 400, "{bad:#}");
        assert_eq!(get("nothing", json!({})).await["error"]["code"], -32602);

        let prompt = format!("{before}test_prompt_with_arguments");
        let template = format!("{of}test://template/{{id}}/data");
        for of in [
            json!({ "type": "ref/prompt", "name": prompt }),
            json!({ "type": "ref/resource", "uri": template }),
        ] {
            let argument = json!({ "name": "arg1", "value": "par" });
            let params = json!({ "ref": of, "argument": argument });
            let completed = result(&agent, path, "completion/complete", params).await;
            let completion = &completed["completion"];
            assert_eq!(completion["values"], json!(["paris", "park", "party"]), "{completed:#}");
        }
    }
}

#[tokio::test]
async fn what_is_no_tool_is_called_as_none() {
    let docs = Docs::new().await;
    let placet = docs.setup.start().await;
    let agent = docs.setup.agent(&placet).await;
    let tools = listed(&agent, "/mcp", "tools/list", "tools", "name").await;
    assert!(tools.contains(&"docs__test_simple_text".to_owned()), "{tools:?}");
    assert!(!tools.contains(&"docs__read_resource".to_owned()), "{tools:?}");
    let call = async |name: &str| {
        let params = json!({ "name": name, "arguments": { "uri": "test://static-text" } });
        let error = answered(&agent, "/mcp", "tools/call", params).await["error"].take();
        error.to_string().replace(name, "X")
    };
    assert_eq!(call("docs__read_resource").await, call("docs__nothing").await);
}

/// The entries of the audit chain of a stopped Placet.
async fn entries(setup: &Setup) -> Vec<String> {
    let chain = setup.path("chain.jsonl");
    setup.configured(&["audit", "export", chain.to_str().unwrap()]).await.ok();
    fs::read_to_string(&chain).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_uri_that_policy_forbids_is_refused_and_the_audit_has_it() {
    let docs = Docs::new().await;
    docs.policy(&about("test://static-text", "@approval(\"never\")"));
    let placet = docs.setup.start().await;
    let agent = docs.setup.agent(&placet).await;
    let refused = read(&agent, "/mcp/docs", "test://static-text").await;
    let error = &refused["error"];
    assert_eq!(error["code"], 403, "{refused:#}");
    let call = &error["data"]["io.placet/call"];
    assert_eq!(call["error"]["error_code"], "POLICY_DENIED", "{refused:#}");
    assert!(!refused.to_string().contains("This is the content"), "{refused:#}");
    let allowed = read(&agent, "/mcp/docs", "test://watched-resource").await;
    assert_eq!(allowed["result"]["contents"][0]["text"], "This content may change.");
    placet.stop().await;
    let chain = entries(&docs.setup).await;
    let decided = |said: &Value| text(said, "policy_decision_id");
    let (denied, permitted) = (decided(call), decided(said(&allowed["result"])));
    let with = |words: [&str; 2]| {
        chain.iter().any(|entry| words.into_iter().all(|word| entry.contains(word)))
    };
    assert!(with([&denied, "POLICY_DENIED"]), "{chain:#?}");
    assert!(with([&permitted, "docs/read_resource"]), "{chain:#?}");
}

#[tokio::test]
async fn a_read_that_people_decide_on_is_pending_and_collected() {
    let docs = Docs::new().await;
    let needs =
        "@approval(\"required\")\n@approver_group(\"approvers\")\n@quorum(\"1\")\n@expires(\"1h\")";
    docs.policy(&about("test://static-text", needs));
    let Docs { _server, setup } = docs;
    let world = World::of(setup).await;
    let agent = world.setup.agent(&world.placet).await;
    let pending = read(&agent, "/mcp/docs", "test://static-text").await;
    assert_eq!(pending["error"]["code"], 202, "{pending:#}");
    let call = &pending["error"]["data"]["io.placet/call"];
    assert_eq!(call["status"], "pending", "{pending:#}");
    // The same read attaches: people are not asked twice.
    let again = read(&agent, "/mcp/docs", "test://static-text").await;
    assert_eq!(again["error"]["data"]["io.placet/call"]["handle"], call["handle"], "{again:#}");
    world.approve().await.ok();
    let collected = read(&agent, "/mcp/docs", "test://static-text").await;
    assert_eq!(said(&collected["result"])["handle"], call["handle"], "{collected:#}");
    for (path, uri) in
        [("/mcp", "placet://docs/test://static-text"), ("/mcp/docs", "test://static-text")]
    {
        let params = json!({ "name": "placet__await", "arguments": { "handle": call["handle"] } });
        let awaited = result(&agent, path, "tools/call", params).await;
        assert_eq!(said(&awaited)["status"], "succeeded", "{awaited:#}");
        let contents = &awaited["structuredContent"]["contents"];
        assert!(text(&contents[0], "text").starts_with("This is the content"), "{awaited:#}");
        assert_eq!(contents[0]["uri"], uri, "{awaited:#}");
    }
}

#[tokio::test]
async fn a_dead_server_takes_nothing_from_the_lists_of_the_others() {
    let docs = Docs::new().await;
    let mut gone = docs.setup.read_contract("docs");
    gone["adapter"] = json!("gone");
    gone["transport"]["url"] = json!("http://127.0.0.1:9/mcp");
    let docs = Docs { setup: docs.setup.contract("gone", &gone), ..docs };
    let placet = docs.setup.start().await;
    let agent = docs.setup.agent(&placet).await;
    let living = STATIC.map(|uri| format!("placet://docs/{uri}"));
    assert_eq!(uris(&agent, "/mcp").await, living);
    assert_eq!(uris(&agent, "/mcp/gone").await, Vec::<String>::new());
    let names = listed(&agent, "/mcp", "prompts/list", "prompts", "name").await;
    assert!(names.iter().all(|name| name.starts_with("docs__")) && !names.is_empty());
    let dead = read(&agent, "/mcp", "placet://gone/test://static-text").await;
    assert_eq!(dead["error"]["code"], 503, "{dead:#}");
    assert!(placet.log().contains("its part is left out"), "the operator is told");
    // With a second adapter, a URI alone does not say whose it is.
    let whose = read(&agent, "/mcp", "test://static-text").await;
    assert_eq!(whose["error"]["code"], -32602, "{whose:#}");
}

#[tokio::test]
async fn a_narrowed_contract_narrows_what_is_listed_and_read() {
    let docs = Docs::new().await;
    docs.change(|contract| {
        let capabilities = contract["capabilities"].as_object_mut().unwrap();
        let schema = &mut capabilities["read_resource"]["input_schema"];
        schema["properties"]["uri"]["pattern"] = json!("^test://static-");
        capabilities["get_prompt"]["enabled"] = json!(false);
    });
    let placet = docs.setup.start().await;
    let agent = docs.setup.agent(&placet).await;
    assert_eq!(uris(&agent, "/mcp/docs").await, &STATIC[..2]);
    let outside = read(&agent, "/mcp/docs", "test://watched-resource").await;
    assert_eq!(outside["error"]["code"], 400, "{outside:#}");
    let inside = read(&agent, "/mcp/docs", "test://static-text").await;
    assert!(inside.get("result").is_some(), "{inside:#}");
    let discovered = result(&agent, "/mcp", "server/discover", json!({})).await;
    assert!(discovered["capabilities"].get("prompts").is_none(), "{discovered:#}");
    assert_eq!(
        listed(&agent, "/mcp", "prompts/list", "prompts", "name").await,
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn the_agent_of_another_tenant_sees_and_reads_nothing() {
    let setup = Setup::new().with("directory", json!("directory.yaml"));
    let agents = json!({ "groups": { "approvers": {}, "freeze-approvers": {}, "emergency": {} },
        "users": { "ana": {}, "ben": { "groups": ["approvers", "freeze-approvers", "emergency"] } },
        "agents": { "bot": { "owner": "ana" } } });
    let directory = json!({ "tenants": { "local": agents, "globex": agents } });
    fs::write(setup.path("directory.yaml"), directory.to_string()).unwrap();
    let docs = Docs::of(setup.with("contracts", json!("contracts"))).await;
    let placet = docs.setup.start().await;
    let bot = async |tenant: &str| {
        let token = docs.setup.configured(&["token", "agent", "bot", "--tenant", tenant]).await;
        placet.client(Some(token.ok().trim().to_owned()))
    };
    let (own, other) = (bot("local").await, bot("globex").await);
    assert_eq!(uris(&own, "/mcp/docs").await, STATIC);
    assert_eq!(uris(&other, "/mcp/docs").await, Vec::<String>::new());
    let discovered = result(&other, "/mcp/docs", "server/discover", json!({})).await;
    assert!(discovered["capabilities"].get("resources").is_none(), "{discovered:#}");
    // As at an address that nobody has: it says how a wrong name shows.
    assert!(text(&discovered, "instructions").starts_with("No tool of an adapter `docs`"));
    let there = read(&other, "/mcp/docs", "test://static-text").await;
    assert_eq!(there["error"]["code"], -32602, "{there:#}");
    let nowhere = read(&other, "/mcp/nowhere", "test://static-text").await;
    assert_eq!(there, nowhere, "an adapter that is not the caller's answers like none");
}

/// What the everything server offers besides tools, over whatever it is reached.
async fn everything_offers(setup: &Setup, placet: &Placet, how: &str) {
    let agent = setup.agent(placet).await;
    let path = "/mcp/everything";
    assert!(!uris(&agent, path).await.is_empty(), "{how}");
    let uri = "demo://resource/dynamic/text/1";
    let dynamic = read(&agent, path, uri).await;
    assert_eq!(dynamic["result"]["contents"][0]["uri"], uri, "{how}: {dynamic:#}");
    let args = json!({ "city": "Oslo" });
    let params = json!({ "name": "args-prompt", "arguments": args });
    let prompt = result(&agent, path, "prompts/get", params).await;
    let said = text(&prompt["messages"][0]["content"], "text");
    assert_eq!(said, "What's weather in Oslo?", "{how}");
    let department = json!({ "name": "department", "value": "E" });
    let of = json!({ "type": "ref/prompt", "name": "completable-prompt" });
    let params = json!({ "ref": of, "argument": department });
    let completed = result(&agent, path, "completion/complete", params).await;
    assert_eq!(completed["completion"]["values"], json!(["Engineering"]), "{how}");
}

#[tokio::test]
async fn servers_are_asked_over_every_transport() {
    let (node, server) = (npm::node(), npm::server("server-everything"));
    let setup = Setup::new().with("contracts", json!("contracts"));
    let import = ["adapters", "import", "--name", "everything"];
    let stdio = ["--stdio", "--", &node, &server, "stdio"];
    setup.configured(&[&import[..], &stdio].concat()).await.ok();
    everything_offers(&setup, &setup.start().await, "stdio").await;
    for transport in ["streamableHttp", "sse"] {
        let everything = Everything::start(transport).await;
        let setup = Setup::new().with("contracts", json!("contracts"));
        let mut remote = vec!["--url", everything.url.as_str(), "--private-network"];
        remote.extend((transport == "sse").then_some("--sse"));
        setup.configured(&[&import[..], &remote].concat()).await.ok();
        everything_offers(&setup, &setup.start().await, transport).await;
    }
}
