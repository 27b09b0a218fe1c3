//! Every secret is where it has to arrive and nowhere else: in nothing that leaves the process, and in nothing that stays.
//!
//! Owns what happens in an estate, where everything of it is looked for, and the live plants: texts that go the ways of a call and of an
//! adapter's name, and are found in every kind of place. Invariant: a kind of place without a plant fails, for the search may be blind there.

use std::{fs, time::Duration};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::{
    Inbound,
    estate::{Estate, Store, are_found, are_where_they_belong},
    pages, raw, refused_tokens, submitting,
};
use crate::harness::{
    client::text,
    placet::Placet,
    search::{Disguised, Places, canary, unfolded},
    setup::{Ran, plan},
    until,
};

/// The kinds of places that both estates have, and which plant each of them gets.
const PLACES: [(&str, Plant); 16] = [
    ("upstream", Plant::Argument),
    ("child", Plant::Argument),
    ("guarded", Plant::Argument),
    ("evidence", Plant::Argument),
    ("page", Plant::Argument),
    ("cli", Plant::Argument),
    ("ledger", Plant::Argument),
    ("webhook", Plant::Argument),
    ("mail", Plant::Argument),
    ("spans", Plant::Name),
    ("log", Plant::Name),
    ("metrics", Plant::Name),
    ("answer", Plant::Name),
    ("refusal", Plant::Word),
    ("list", Plant::Name),
    ("export", Plant::Name),
];

/// The kinds of places that say in which run something was, and so the name of the run, in every form that a name can have.
const RUNS: [&str; 8] = ["evidence", "page", "cli", "ledger", "spans", "answer", "log", "export"];

/// What is planted over the live channel of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    /// An argument of a call.
    Argument,
    /// The name of the adapter.
    Name,
    /// The name of an argument that no tool has.
    Word,
    /// The name of the run.
    Run,
}

/// The plants of one estate: in every form where the way takes any text.
struct Plants {
    argument: Disguised,
    run: Disguised,
    name: String,
    word: String,
}

impl Plants {
    fn canaries(&self, plant: Plant) -> &[String] {
        match plant {
            Plant::Argument => &self.argument.canaries,
            Plant::Run => &self.run.canaries,
            Plant::Name => std::slice::from_ref(&self.name),
            Plant::Word => std::slice::from_ref(&self.word),
        }
    }

    /// A call in their run.
    fn plan(&self, tool: &str, step: &str, args: Value) -> Value {
        let mut call = plan(tool, step, args);
        call["run"]["run_id"] = json!(self.run.text);
        call
    }
}

/// Calls through every adapter and refusals of every stage; answers the call that is held.
async fn calls(
    estate: &mut Estate,
    placet: &Placet,
    own: &Inbound,
    alices: &Inbound,
    plants: &Plants,
    places: &mut Places,
) -> Value {
    let name = plants.name.clone();
    estate.setup.put("a.txt", "hello");
    let dev = placet.client(Some(own.agent.clone()));
    let hers = placet.client(Some(alices.agent.clone()));
    let what = json!({ "what": plants.argument.text });
    let note = format!("{name}__note");
    for (inbound, client, step, tool, args) in [
        (own, &dev, "s1", "files__read", json!({ "path": "a.txt" })),
        (own, &dev, "s2", "child__note", what.clone()),
        (own, &dev, "s3", note.as_str(), what.clone()),
        (alices, &hers, "s4", "mail__search", what.clone()),
        (alices, &hers, "s5", "post__search", what.clone()),
    ] {
        let reply = inbound.call(client, &plants.plan(tool, step, args)).await;
        reply.succeeded();
        places.add(format!("answer: of {tool}"), reply.body.to_vec());
    }
    // Tools that print what they were given, in the common forms.
    for (step, tool) in [("s12", "child__note"), ("s13", note.as_str())] {
        let reply =
            own.call(&dev, &plants.plan(tool, step, json!({ "what": "your secret" }))).await;
        reply.succeeded();
        let heard = [format!("{:?}", reply.headers).as_bytes(), reply.body.as_ref()].concat();
        places.add(format!("answer: of {tool} that says its secret"), heard);
    }
    // A server says what other calls have shown it, by another contract too, and for another user.
    for (step, tool) in [("s14", "post__search"), ("s15", "mail__search")] {
        let reply =
            alices.call(&hers, &plants.plan(tool, step, json!({ "what": "your secret" }))).await;
        reply.succeeded();
        let heard = reply.text();
        assert!(heard.matches("secret removed").count() >= 6, "{heard}");
        places.add(format!("answer: of {tool} that says what it was shown"), heard);
    }
    // The token service's refusals repeat what they were shown, if they can.
    estate.provider.tell("revoke alice").await;
    for (inbound, client, step, tool, args) in [
        (alices, &hers, "s6", "mail__send", what.clone()),
        (own, &dev, "s7", note.as_str(), json!({ (plants.word.as_str()): 1 })),
        (own, &dev, "s3", note.as_str(), json!({ "what": "another" })),
        (own, &dev, "s8", "mail__search", what.clone()),
        (own, &dev, "s9", "files__read", json!({ "path": "../../etc/passwd" })),
        (own, &dev, "s10", "child__none", json!({})),
    ] {
        let reply = inbound.call(client, &plants.plan(tool, step, args)).await;
        assert!(reply.status >= 400, "{tool}: {reply:?}");
        places.add(format!("refusal: of {tool} {step}"), reply.body.to_vec());
    }
    estate.provider.tell("restore alice").await;
    refused_tokens(placet, own, places).await;
    own.call(&dev, &plants.plan(&format!("{name}__erase"), "s11", what)).await.held()
}

/// Tokens in the query and in cookies, of every API that answers at all.
async fn looked_at(placet: &Placet, own: &Inbound, session: &str, places: &mut Places) {
    let query: String = url::form_urlencoded::byte_serialize(own.query.as_bytes()).collect();
    for path in ["/", "/v1/tools", "/approvals/x", "/calls/x", "/nothing", "/openapi.json"] {
        for parameter in ["access_token", "token", "code", "to"] {
            let head = format!(
                "GET {path}?{parameter}={query} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nCookie: placet={session}; other={}\r\n\r\n",
                own.query
            );
            // Where a page says where it will lead, it may repeat the way: that is the browser's own.
            let answer = raw(placet, &head).await;
            places.add(format!("answer: to {path} with {parameter}"), answer);
        }
    }
}

/// What people and operators ask over HTTP and on the command line.
async fn asked(estate: &Estate, placet: &Placet, held: &Value, own: &Inbound, places: &mut Places) {
    let ben = estate.setup.ben(placet).await;
    let approval = text(held, "approval_id");
    for path in ["/v1/ledger", "/v1/approvals", "/v1/inbox", "/v1/directives"] {
        places.add(format!("list: {path}"), ben.get(path).await.body.to_vec());
    }
    let shown = ben.get(&format!("/v1/approvals/{approval}")).await;
    shown.ok();
    places.add("evidence: of the held call", shown.body.to_vec());
    for path in ["/metrics", "/readyz", "/healthz"] {
        places.add(format!("metrics: {path}"), placet.ask(path).await.body.to_vec());
    }
    let token = ben.token.clone().unwrap();
    let call = text(held, "call_id");
    for words in [
        &["approvals", "list"][..],
        &["approvals", "show", &approval],
        &["approvals", "show", &approval, "--json"],
        &["approvals", "timeline", &call],
        &["ledger", "list", "--json"],
        &["audit", "checkpoints"],
        &["tools"],
    ] {
        let ran = estate.setup.asks(placet, &token, words).await;
        ran.ok();
        places.add(format!("cli: {}", words.join(" ")), both(&ran));
    }
    // Anyone who is refused is not told with what.
    let ran = estate.setup.asks(placet, &own.query, &["tools"]).await;
    assert_ne!(ran.code, Some(0), "{ran:?}");
    places.add("cli: with a token that is none", both(&ran));
    for words in [["doctor", "--json"].as_slice(), &["adapters", "diff", "--json"]] {
        let ran = estate.setup.configured(words).await;
        places.add(format!("cli: {}", words.join(" ")), both(&ran));
    }
}

fn both(ran: &Ran) -> String {
    format!("{}\n{}", ran.out, ran.err)
}

/// A backup of the running Placet, where its ledger is on disk.
async fn backed_up(estate: &Estate, placet: &Placet, places: &mut Places) {
    let admin = placet.admin.to_string();
    let ran = estate.setup.bare(&["ledger", "backup", "--admin-url", &admin, "--json"]).await;
    ran.ok();
    places.add("cli: ledger backup", both(&ran));
    places.add_folder_as("backup: ", &estate.setup.path("backups"), &[]);
}

/// What is on disk, in the database, and what went over the wires.
async fn collect(estate: &Estate, places: &mut Places) {
    places.add("upstream: what it was sent", estate.upstream.bytes());
    places.add("token service: what it was sent", estate.service.bytes());
    places.add("webhook: what it was sent", estate.webhook.bytes());
    places.add("spans: all of them", estate.spans.bytes());
    places.add("guarded: what it was sent", estate.guarded.shown());
    places.add("child: its input", fs::read(estate.setup.path("stdio-record")).unwrap());
    for entry in fs::read_dir(estate.setup.path("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "eml") {
            let mail = fs::read(&path).unwrap();
            places.add(format!("mail: {}, unfolded", path.display()), unfolded(&mail));
            places.add(format!("mail: {}", path.display()), mail);
        }
    }
    // The two keys are there, for nobody but the owner; that they are nowhere else is looked for below.
    let keys = ["dev-key.jwk", "seal.key"];
    places.add_folder_as("ledger: ", &estate.setup.data(), &keys);
    let Some(database) = &estate.database else { return };
    let tables = "SELECT string_agg(format('%I.%I', schemaname, tablename), ' ') FROM pg_tables WHERE schemaname = 'placet'";
    for table in database.server.ask_data(tables).await.unwrap().split(' ') {
        let rows = database.server.ask_data(&format!("TABLE {table}")).await.unwrap();
        places.add(format!("ledger: {table}"), rows);
    }
}

/// The records and the chain as files for others: the memory dump of what is recorded.
async fn exported(estate: &Estate, places: &mut Places) {
    let folder = estate.setup.path("chain");
    fs::create_dir(&folder).unwrap();
    let (chain, records) = (folder.display().to_string(), estate.setup.path("records.jsonl"));
    let records = records.display().to_string();
    for words in [
        &["audit", "verify", "--json"][..],
        &["audit", "export", &chain],
        &["ledger", "export", &records],
    ] {
        let ran = estate.setup.configured(words).await;
        ran.ok();
        places.add(format!("cli: {}", words.join(" ")), both(&ran));
    }
    places.add_folder_as("export: ", &folder, &[]);
    places.add("export: the records", fs::read(records).unwrap());
}

/// Lives through everything, a sudden death among it, and answers what is to be searched.
async fn lived(estate: &mut Estate, plants: &Plants, own: &Inbound) -> Places {
    let alices = estate.for_alice(own);
    let mut places = Places::default();
    let placet = estate.setup.start().await;
    let held = calls(estate, &placet, own, &alices, plants, &mut places).await;
    let session = pages(&estate.setup, &placet, &held, &plants.name, &mut places).await;
    estate.add_secrets("the session of a browser", &[], [session.clone()]);
    looked_at(&placet, own, &session, &mut places).await;
    asked(estate, &placet, &held, own, &mut places).await;
    if estate.database.is_none() {
        backed_up(estate, &placet, &mut places).await;
    }
    // Calls are under way and one waits for people when it dies.
    let client = placet.client(Some(own.agent.clone()));
    let tool = format!("{}__note", plants.name);
    let under_way = plants.plan(&tool, "s12", json!({ "what": plants.argument.text }));
    let dying =
        tokio::spawn(async move { client.is_answered_to(submitting(&client, &under_way)).await });
    tokio::time::sleep(Duration::from_millis(30)).await;
    places.add("log: before it died", placet.log());
    placet.kill().await;
    drop(dying.await);
    collect(estate, &mut places).await;

    let placet = estate.setup.start().await;
    let ben = estate.setup.ben(&placet).await;
    ben.decide(&held, "approve").await.ok();
    let sent = || async {
        estate
            .upstream
            .bytes()
            .windows(11)
            .any(|word| word == b"\"erase\",\"ar" || word == b"name\":\"eras")
    };
    until("the approved call is made", sent).await;
    let mails = || async {
        let files = fs::read_dir(estate.setup.path("")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".eml")).count() >= 2
    };
    until("the mails arrive", mails).await;
    let call = format!("/v1/calls/{}", text(&held, "call_id"));
    let request = placet.client(Some(own.agent.clone())).request(Method::GET, &call);
    let request = request.header("placet-delegation", &own.user).body(Bytes::new()).unwrap();
    let reply = placet.client(None).send(request).await;
    places.add("answer: after the crash", reply.body.to_vec());
    places.add("log: after the crash", placet.stop().await);
    exported(estate, &mut places).await;
    collect(estate, &mut places).await;
    places
}

async fn everything_is_where_it_belongs(store: Store) {
    let mut estate = Estate::new(store).await;
    let own = Inbound::new(&estate.setup).await;
    let plants = Plants {
        argument: Disguised::new("argument"),
        run: Disguised::name("r"),
        name: estate.name.clone(),
        word: canary("word").replace(['+', '/'], "x"),
    };
    let places = lived(&mut estate, &plants, &own).await;
    // A caller's tokens are shown to the token service that its call needs a credential of, and to nobody else.
    let tokens: Vec<String> = [&own.agent, &own.user]
        .into_iter()
        .flat_map(|token| token.split('.').skip(1).map(str::to_owned))
        .collect();
    let rest = own.canaries().into_iter().filter(|canary| !tokens.contains(canary));
    estate.add_secrets("what a caller brings along", &[], rest);
    estate.add_secrets("a token of a caller", &["token service"], tokens);
    estate.add_exchanged();
    let sealing = estate.setup.data().join("ledger/seal.key");
    if let Ok(key) = fs::read_to_string(sealing) {
        estate.add_secrets("the key of the audit chain", &[], [key.trim().to_owned()]);
    }

    // The search sees: what was planted over each live channel is found at its end.
    let mut kinds = PLACES.to_vec();
    if store == Store::Files {
        kinds.push(("backup", Plant::Argument));
    }
    let runs = RUNS.map(|kind| (kind, Plant::Run));
    for (kind, plant) in kinds.iter().chain(&runs) {
        are_found(plants.canaries(*plant), kind, &places);
    }
    let mut known: Vec<&str> = kinds.iter().map(|(kind, _)| *kind).collect();
    known.push("token service");
    for kind in places.kinds() {
        assert!(known.contains(&kind), "nothing was planted in `{kind}`");
    }

    are_where_they_belong(&estate.secrets, &places);
}

#[tokio::test]
async fn every_secret_is_where_it_belongs_and_nowhere_else_with_a_ledger_on_disk() {
    everything_is_where_it_belongs(Store::Files).await;
}

#[tokio::test]
async fn every_secret_is_where_it_belongs_and_nowhere_else_with_a_ledger_in_a_database() {
    everything_is_where_it_belongs(Store::Database).await;
}
