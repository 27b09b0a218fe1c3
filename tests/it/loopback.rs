//! A Placet for one machine: who can use its development key, and who cannot though they can reach its port.
//!
//! Owns the attacks of agents, tools and other users of the machine on the development sign-in, and the configurations that would open it
//! to others. What the pages look like is tested in Chromium (`credit`).

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};
use url::Url;

use crate::{
    harness::{
        client::text,
        placet::Placet,
        setup::{Setup, plan},
        watcher, within,
    },
    program,
    signed_in::{Browser, Reply, after, cookie, get, post},
};

/// Routes that hand out what they are asked for, and those that people sign in at.
const OPEN: [&str; 6] =
    ["/", "/sign-in", "/sign-in/start", "/sign-in/callback?code=x&state=y", "/signed-out", "/help"];

/// A delete that waits for people.
async fn held(setup: &Setup, placet: &Placet) -> Value {
    setup.put("a.txt", "x");
    let delete = plan("files__delete", "s1", json!({ "path": "a.txt" }));
    setup.agent(placet).await.call(&delete).await.held()
}

/// Chooses a person as a page of the console would, with the cookie of a browser that has one.
async fn choose(placet: &Placet, waiting: &str, person: &str) -> Reply {
    let form = [("form_token", waiting), ("person", person), ("to", "/")];
    post(placet, "/sign-in/development", &format!("placet-sign-in={waiting}"), &form).await
}

#[tokio::test]
async fn who_only_reaches_the_port_signs_in_as_nobody() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let held = held(&setup, &placet).await;
    let agent = setup.token("agent", "dev-agent").await;

    // What an agent or a tool can bring: a cookie that it was given, one that it made up, its own token in the place of a code.
    let begun = get(&placet, "/sign-in", "").await;
    let given = cookie(&begun, "placet-sign-in");
    assert!(!begun.page.contains("name=\"person\""), "nobody is offered: {}", begun.page);
    assert!(begun.page.contains("placet console"), "it says how to get a link");
    let other = Setup::new();
    let elsewhere = other.sign_in_link(&placet).await;
    let signature = agent.rsplit('.').next().unwrap();
    for code in [
        "/sign-in?code=AAAA".to_owned(),
        format!("/sign-in?code={agent}"),
        format!("/sign-in?code={signature}"),
        elsewhere,
    ] {
        let led = get(&placet, &code, &format!("placet-sign-in={given}")).await;
        assert_eq!(led.status, 303, "{led:?}");
        assert!(led.head.contains("link=refused"), "{code}: {led:?}");
        assert!(!led.head.contains("set-cookie"), "{code}: {led:?}");
    }
    let made_up = "A".repeat(given.len());
    for waiting in [given.as_str(), made_up.as_str()] {
        for person in ["0", "1"] {
            let refused = choose(&placet, waiting, person).await;
            assert_eq!(refused.status, 403, "{refused:?}");
            assert!(!refused.head.contains("placet="), "{refused:?}");
        }
    }
    // Nor does any route give it a link.
    let client = placet.client(Some(agent));
    let routes = placet.client(None).get("/openapi.json").await.ok();
    let routes = routes["paths"].as_object().unwrap().keys().map(|path| {
        let path = path.replace("{id}", &text(&held, "call_id"));
        if path.contains('{') { path.replace(['{', '}'], "") } else { path }
    });
    let routes: Vec<String> = routes.collect();
    assert!(routes.len() > 15, "{routes:?}");
    for path in routes.iter().map(String::as_str).filter(|path| !path.ends_with("/events")) {
        let reply = client.get(path).await;
        let all = format!("{:?}{}", reply.headers, reply.text());
        assert!(!all.contains("sign-in?code"), "{path}: {all}");
    }
    for path in OPEN {
        let reply = get(&placet, path, "").await;
        assert!(!format!("{reply:?}").contains("sign-in?code"), "{path}: {reply:?}");
    }
    assert!(setup.file("a.txt").try_exists().unwrap(), "nobody agreed");
    placet.stop().await;
}

#[tokio::test]
async fn a_link_signs_one_person_in_and_is_logged_nowhere() {
    let setup = Setup::new().with("telemetry", json!({ "log_filter": "trace" }));
    let placet = setup.start().await;
    let held = held(&setup, &placet).await;
    assert!(!placet.log().contains("code="), "for programs there is no link at the start");

    let link = setup.sign_in_link(&placet).await;
    let opened = get(&placet, &link, "").await;
    assert!(opened.status == 303 && opened.head.contains("location: /sign-in?to=%2F\r\n"));
    assert!(opened.head.contains("referrer-policy: same-origin"), "{opened:?}");
    let waiting = cookie(&opened, "placet-sign-in");
    let page = get(&placet, "/sign-in", &format!("placet-sign-in={waiting}")).await.page;
    let before = page.split_once("Sign in as ben of").unwrap().0;
    let person = after(before.rsplit_once("name=\"person\"").unwrap().1, "value=\"", '"');
    let again = get(&placet, &link, "").await;
    assert!(again.head.contains("link=refused"), "{again:?}");
    assert_eq!(choose(&placet, &waiting, &person).await.status, 303);
    assert_eq!(choose(&placet, &waiting, &person).await.status, 403, "a link is one choice");

    // Who has a link decides as before.
    let ben = Browser::sign_in(&setup, &placet, "ben").await;
    let path = format!("/approvals/{}", text(&held, "approval_id"));
    let page = ben.get(&placet, &path).await.page;
    let digest = after(&page, "name=\"digest\" value=\"", '"');
    let form = [("digest", digest.as_str()), ("decision", "approve"), ("reason", "looked at it")];
    let decided = ben.post(&placet, &page, &format!("{path}/decision"), &form).await;
    assert_eq!(decided.status, 303, "{decided:?}");
    setup.agent(&placet).await.end_of(&text(&held, "call_id")).await.succeeded();

    let log = placet.stop().await;
    let code = link.split_once("code=").unwrap().1;
    assert!(log.contains("answered") && !log.contains(code), "the log holds the code");
    assert!(!holds(&setup.data(), code), "the data folder holds the code");
}

/// Whether any file below a folder holds a text.
fn holds(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return holds(&path, text);
        }
        let bytes = fs::read(&path).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[tokio::test]
async fn serve_greets_people_with_a_link_that_works() {
    let setup = Setup::new();
    let mut child = Command::new(program::placet())
        .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data"])
        .arg(setup.data())
        .env_clear()
        .current_dir(setup.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    watcher::watch(child.id());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let link = within("it prints a link", async {
        loop {
            let line = lines.next_line().await.unwrap().expect("it goes on");
            if line.contains("/sign-in?code=") {
                return Url::parse(line.trim()).unwrap();
            }
        }
    });
    let link = link.await;
    let reply = answer_to(&link).await;
    assert!(reply.starts_with("HTTP/1.1 303") && reply.contains("set-cookie: placet-sign-in="));
    within("it is killed", child.kill()).await.unwrap();
}

/// The head of the answer to a `GET`.
async fn answer_to(link: &Url) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let to = link.socket_addrs(|| None).unwrap()[0];
    let mut stream = tokio::net::TcpStream::connect(to).await.unwrap();
    let path = &link[url::Position::BeforePath..];
    let head = format!("GET {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = String::new();
    within("an answer", stream.read_to_string(&mut reply)).await.unwrap();
    reply
}

#[tokio::test]
async fn a_link_is_opened_without_a_command_line_that_shows_it() {
    let setup = Setup::new();
    let (folder, shown) = (setup.path("bin"), setup.path("shown"));
    fs::create_dir(&folder).unwrap();
    let opener = folder.join("xdg-open");
    let script = format!("#!/bin/sh\nprintf '%s' \"$*\" > {}\n", shown.display());
    fs::write(&opener, script).unwrap();
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).unwrap();
    let setup = setup.env("PATH", folder.to_str().unwrap());
    let ran = setup.configured(&["console", "--open"]).await;
    let link = ran.ok().trim().to_owned();
    assert!(link.starts_with("http://127.0.0.1:7411/sign-in?code="), "{link}");
    let page = fs::read_to_string(shown).unwrap();
    assert!(!page.contains("code="), "{page}");
    assert!(fs::read_to_string(&page).unwrap().contains(&format!("url={link}")));
    assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn the_development_key_is_refused_where_others_reach_the_service() {
    for (section, value, key) in [
        ("console", json!({ "public_url": "https://placet.example" }), "console.public_url"),
        ("http", json!({ "allowed_hosts": ["placet.example"] }), "http.allowed_hosts"),
        ("http", json!({ "allowed_origins": ["https://t.example"] }), "http.allowed_origins"),
        ("audience", json!("https://placet.example"), "audience"),
    ] {
        let setup = Setup::new().with(section, value);
        setup.refuses().await.says(&["refused to accept development tokens", key, "`issuers:`"]);
        let doctor = setup.configured(&["doctor", "--json"]).await;
        assert_eq!(doctor.code, Some(1), "{doctor:?}");
        let checks: Value = serde_json::from_str(&doctor.out).unwrap();
        let failed = checks.as_array().unwrap().iter().find(|check| check["level"] == "fail");
        let found = text(failed.unwrap(), "found");
        assert!(found.contains(key) && found.contains("development tokens"), "{found}");
        let link = setup.configured(&["console"]).await;
        assert_eq!((link.code, link.out.as_str()), (Some(1), ""), "{link:?}");
    }
    let setup = Setup::new().with("http", json!({ "allowed_hosts": ["localhost"] }));
    setup.start().await.stop().await;
}
