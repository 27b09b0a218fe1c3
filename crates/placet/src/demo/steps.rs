//! The steps of the demo: each does something and verifies the result, on the wire and on the disk.
//!
//! Owns the checks. A step returns what it saw; a check that fails returns what was seen instead.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use placet_api::documents::RecordList;
use placet_engine::views::RecordView;
use placet_types::{
    digest::Digest,
    envelope::result::{ResultStatus, ToolResultEnvelope},
    error::{ErrorCode, Execution},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    Shown, Stage,
    people::{Asked, decide, expect, refused, said},
};
use crate::{client::Reply, storage};

/// How long something may take that normally takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

fn notes() -> Asked {
    let args = json!({ "path": "notes.txt" });
    Asked { tool: "files__read", args, step: "read", mode: "read_only" }
}

fn delete() -> Asked {
    let args = json!({ "path": "notes.txt" });
    Asked { tool: "files__delete", args, step: "delete", mode: "destructive" }
}

fn write() -> Asked {
    let args = json!({ "path": "ledger.txt", "content": "one line" });
    Asked { tool: "files__write", args, step: "write", mode: "local_write" }
}

pub(crate) async fn bad_argument(stage: &mut Stage) -> Shown {
    let wrong = notes().with(json!({ "pth": "notes.txt" }));
    let problem = refused(&stage.ask(&wrong).await?, ErrorCode::ValidationError)?;
    let place = problem.problems.first().ok_or("the refusal names no place to correct")?;
    expect(problem.execution == Execution::NotExecuted, || {
        "it is not said to be not executed".to_owned()
    })?;
    Ok(vec![
        "agent → files__read {\"pth\": \"notes.txt\"}".to_owned(),
        format!(
            "{} {}: at `{}`: {}",
            problem.status, problem.error_code, place.pointer, place.problem
        ),
    ])
}

pub(crate) async fn read(stage: &mut Stage) -> Shown {
    put(&stage.host.file("notes.txt"), "written by hand")?;
    let result = succeeded(&stage.ask(&notes()).await?)?;
    expect(result.output.to_string().contains("written by hand"), || {
        format!("the content is not in the answer: {}", result.output)
    })?;
    expect(result.mutations.is_empty(), || "a read reports changes".to_owned())?;
    Ok(vec![
        "agent → files__read {\"path\": \"notes.txt\"}".to_owned(),
        "200 succeeded, with the content of the file".to_owned(),
    ])
}

pub(crate) async fn held(stage: &mut Stage) -> Shown {
    let pending = stage.ask_and_be_held(&delete()).await?;
    let again = stage.ask_and_be_held(&delete()).await?;
    expect(again.approval_id == pending.approval_id, || {
        "the same call again asked people a second time".to_owned()
    })?;
    still_there(&stage.host.file("notes.txt"))?;
    let lines = vec![
        "agent → files__delete {\"path\": \"notes.txt\"}".to_owned(),
        format!(
            "202, held as {}; the file is still there, and asking again is the same request",
            pending.approval_id
        ),
    ];
    stage.delete = Some(pending);
    Ok(lines)
}

pub(crate) async fn shown(stage: &mut Stage) -> Shown {
    let pending = stage.delete.clone().ok_or("no call is held")?;
    let detail = stage.look(&pending).await?;
    expect(*detail.preview() == json!({ "path": "notes.txt" }), || {
        format!("the approver is shown other arguments: {}", detail.preview())
    })?;
    let digest = detail.approval.digest;
    let owner = decide(&stage.ana()?, &pending, digest).await?;
    let agent = decide(&stage.agent()?, &pending, digest).await?;
    let other = decide(&stage.ben()?, &pending, Digest::of(b"something else")).await?;
    for (who, reply) in
        [("the owner", &owner), ("the agent", &agent), ("a decision on something else", &other)]
    {
        expect(reply.status.is_client_error(), || {
            format!("{who} was not refused: {}", reply.status.as_u16())
        })?;
    }
    stage.listed(&pending, "pending").await?;
    still_there(&stage.host.file("notes.txt"))?;
    let code = |reply: &Reply| {
        reply.problem().map(|problem| problem.error_code.as_str()).unwrap_or_default()
    };
    Ok(vec![
        format!("ben sees files__delete {} and the digest {}", detail.preview(), digest.short()),
        format!(
            "ana (owner) → {}; the agent itself → {}; ben, for another digest → {}",
            code(&owner),
            code(&agent),
            code(&other)
        ),
    ])
}

pub(crate) async fn approved(stage: &mut Stage) -> Shown {
    let pending = stage.delete.clone().ok_or("no call is held")?;
    let digest = stage.look(&pending).await?.approval.digest;
    let decision = decide(&stage.ben()?, &pending, digest).await?;
    expect(decision.status.is_success(), || said(decision.refusal()))?;
    let result = collected(stage, &pending.call_id).await?;
    expect(!result.mutations.is_empty(), || "the delete reports no change".to_owned())?;
    gone(&stage.host.file("notes.txt"))?;
    let changed = result
        .mutations
        .iter()
        .map(|one| format!("{} {}", one.action, one.target))
        .collect::<Vec<_>>();
    Ok(vec![
        "ben approves".to_owned(),
        format!("the engine ran it: {}; the file is gone", changed.join(", ")),
    ])
}

pub(crate) async fn replayed(stage: &mut Stage) -> Shown {
    put(&stage.host.file("notes.txt"), "made again by hand")?;
    let result = succeeded(&stage.ask(&delete()).await?)?;
    expect(result.replayed, || "the answer is not marked as a replay".to_owned())?;
    still_there(&stage.host.file("notes.txt"))?;
    Ok(vec![
        "somebody makes notes.txt again; the agent sends the same delete".to_owned(),
        "200, replayed: true; the new file is untouched".to_owned(),
    ])
}

pub(crate) async fn conflict(stage: &mut Stage) -> Shown {
    put(&stage.host.file("other.txt"), "other")?;
    let other = delete().with(json!({ "path": "other.txt" }));
    let problem = refused(&stage.ask(&other).await?, ErrorCode::IdempotencyConflict)?;
    still_there(&stage.host.file("other.txt"))?;
    Ok(vec![
        "agent → the same step, now for other.txt".to_owned(),
        format!("{} {}", problem.status, problem.error_code),
    ])
}

/// Both names have the same length, so that the parked call on disk keeps its form and only its content changes.
const PARKED: [&str; 2] = ["payroll.csv", "archive.csv"];

pub(crate) async fn altered(stage: &mut Stage) -> Shown {
    for name in PARKED {
        put(&stage.host.file(name), "precious")?;
    }
    let [asked, forged] = PARKED;
    let call = Asked { step: "altered", ..delete().with(json!({ "path": asked })) };
    let pending = stage.ask_and_be_held(&call).await?;
    let digest = stage.look(&pending).await?.approval.digest;
    stage.host.stop().await?;
    let places = forge(&storage::journal_folder(&stage.host.data()), asked, forged)?;
    stage.host.begin(false).await?;
    let decision = decide(&stage.ben()?, &pending, digest).await?;
    // A refused decision would be right as well: what was shown can no longer be proven.
    let accepted = decision.status.is_success();
    if accepted {
        until("the approval to be void", || async { stage.listed(&pending, "void").await.ok() })
            .await?;
    }
    for name in PARKED {
        still_there(&stage.host.file(name))?;
    }
    Ok(vec![
        format!(
            "held: delete {asked}; stopped; {places} places on disk now say {forged}; started again; ben approves"
        ),
        if accepted {
            "APPROVAL_VOID: neither file was touched".to_owned()
        } else {
            said(decision.refusal())
        },
    ])
}

pub(crate) async fn killed(stage: &mut Stage) -> Shown {
    stage.host.stop().await?;
    stage.host.begin(true).await?;
    let file = stage.host.file("ledger.txt");
    let agent = stage.agent()?;
    let calling = tokio::spawn(async move { agent.post(&["v1", "calls"], &write().body(0)).await });
    until("the effect", || async {
        fs::read_to_string(&file).ok().filter(|text| text == "one line")
    })
    .await?;
    stage.host.kill().await?;
    let answer = calling.await.map_err(|error| error.to_string())?;
    expect(answer.is_err(), || {
        "the call was answered although its record was never written".to_owned()
    })?;
    stage.host.begin(false).await?;
    put(&file, "edited by hand after the crash")?;
    let problem = refused(&stage.ask(&write()).await?, ErrorCode::OutcomeUnknown)?;
    expect(problem.execution == Execution::Unknown, || {
        "the outcome is not said to be unknown".to_owned()
    })?;
    expect(text_of(&file)? == "edited by hand after the crash", || {
        "the write was done a second time".to_owned()
    })?;
    let ben = stage.ben()?;
    let list: RecordList =
        ben.get(&["v1", "ledger"], &[("state", "indeterminate")]).await.map_err(said)?;
    let record = list.records.first().ok_or("no record is indeterminate")?;
    stage.record = Some(record.record_id.to_string());
    Ok(vec![
        "agent → files__write ledger.txt; the line is in the file; SIGKILL before the record; started again".to_owned(),
        format!("the same call: {} {}; the record is {}; the file was not written again", problem.status, problem.error_code, record.state),
    ])
}

pub(crate) async fn resolved(stage: &mut Stage) -> Shown {
    let record = stage.record.clone().ok_or("no record is indeterminate")?;
    let finding = json!({ "outcome": "happened", "evidence": "the line was in ledger.txt", "output": { "resolved": true } });
    let path = ["v1", "ledger", &record, "resolution"];
    let agent = stage.agent()?.post(&path, &finding).await.map_err(said)?;
    expect(agent.status.is_client_error(), || "the agent itself may resolve".to_owned())?;
    let reply = stage.ben()?.post(&path, &finding).await.map_err(said)?;
    let view: RecordView = reply.document().map_err(said)?;
    let result = succeeded(&stage.ask(&write()).await?)?;
    expect(result.replayed && result.output == json!({ "resolved": true }), || {
        format!("the retry got {}", result.output)
    })?;
    expect(text_of(&stage.host.file("ledger.txt"))? == "edited by hand after the crash", || {
        "it was written again".to_owned()
    })?;
    Ok(vec![
        "ben, operator: «happened: the line was in ledger.txt» (the agent may not)".to_owned(),
        format!("the record is {}; the agent's retry: 200, replayed: true", view.state),
    ])
}

pub(crate) async fn audited(stage: &mut Stage) -> Shown {
    stage.host.stop().await?;
    let data = stage.host.data();
    let sound = stage.host.run(&["audit", "verify"], &data).await?;
    let said_sound =
        String::from_utf8_lossy(&sound.stdout).lines().next().unwrap_or_default().to_owned();
    expect(sound.status.success(), || format!("the chain does not verify: {said_sound}"))?;
    let copy = stage.host.folder().join("copy");
    tamper(&data, &copy)?;
    let damaged = stage.host.run(&["audit", "verify"], &copy).await?;
    let said_damaged =
        String::from_utf8_lossy(&damaged.stdout).lines().next().unwrap_or_default().to_owned();
    expect(damaged.status.code() == Some(1), || {
        format!("the changed byte was not found: {said_damaged}")
    })?;
    Ok(vec![
        format!("placet audit verify → {said_sound}"),
        format!("one byte changed in a copy → {said_damaged}"),
    ])
}

/// A success, or what came instead as an error.
fn succeeded(reply: &Reply) -> Result<ToolResultEnvelope, String> {
    let result: ToolResultEnvelope = reply.document().map_err(said)?;
    expect(result.status == ResultStatus::Succeeded, || {
        format!("it did not succeed: {:?}", result.error.as_ref().map(|error| &error.message))
    })?;
    Ok(result)
}

/// The result of a call that runs without its caller.
async fn collected(stage: &Stage, call_id: &str) -> Result<ToolResultEnvelope, String> {
    let agent = stage.agent()?;
    let found = until("the result", || async {
        let reply = agent.fetch(&["v1", "calls", call_id], &[("wait_ms", "2000")]).await.ok()?;
        (reply.status.as_u16() == 200).then_some(reply)
    });
    succeeded(&found.await?)
}

/// Waits for something that normally takes milliseconds.
async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> Result<T, String> {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("waited {} s for {what} without success", PATIENCE.as_secs()));
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("`{}`: {error}", path.display()))
}

fn text_of(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("`{}`: {error}", path.display()))
}

fn still_there(path: &Path) -> Result<(), String> {
    expect(path.try_exists().unwrap_or(false), || format!("`{}` is gone", path.display()))
}

fn gone(path: &Path) -> Result<(), String> {
    expect(!path.try_exists().unwrap_or(true), || format!("`{}` is still there", path.display()))
}

/// Every file below a folder.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in
            fs::read_dir(&folder).map_err(|error| format!("`{}`: {error}", folder.display()))?
        {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    Ok(found)
}

/// Replaces a text by one of the same length wherever it is kept, as somebody with access to the disk could.
fn forge(folder: &Path, old: &str, new: &str) -> Result<usize, String> {
    let mut places = 0_usize;
    for path in files_below(folder)? {
        let mut bytes = fs::read(&path).map_err(|error| error.to_string())?;
        let found = positions(&bytes, old.as_bytes());
        for at in &found {
            if let Some(place) = bytes.get_mut(*at..at.saturating_add(new.len())) {
                place.copy_from_slice(new.as_bytes());
            }
        }
        if !found.is_empty() {
            fs::write(&path, bytes).map_err(|error| error.to_string())?;
            places = places.saturating_add(found.len());
        }
    }
    expect(places > 0, || format!("`{old}` is kept nowhere below `{}`", folder.display()))?;
    Ok(places)
}

/// Where `wanted` begins in `bytes`.
fn positions(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    bytes
        .windows(wanted.len())
        .enumerate()
        .filter(|(_, window)| *window == wanted)
        .map(|(at, _)| at)
        .collect()
}

/// Copies the journal, and changes one byte in the middle of its content.
fn tamper(data: &Path, copy: &Path) -> Result<(), String> {
    let (from, to) = (storage::journal_folder(data), storage::journal_folder(copy));
    fs::create_dir_all(&to).map_err(|error| error.to_string())?;
    for path in files_below(&from)? {
        let name = path.file_name().ok_or("a file without a name")?;
        fs::copy(&path, to.join(name)).map_err(|error| error.to_string())?;
    }
    for path in files_below(&to)? {
        let mut bytes = fs::read(&path).map_err(|error| error.to_string())?;
        // The approver's name is part of the vote.
        let found = positions(&bytes, b"\"ben\"");
        if let Some(byte) = found.first().and_then(|at| bytes.get_mut(at.saturating_add(1))) {
            *byte ^= 0x01;
            return fs::write(&path, bytes).map_err(|error| error.to_string());
        }
    }
    Err("the vote is not in the journal".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{PARKED, forge, positions, write};

    #[test]
    fn a_forgery_keeps_the_length_and_says_how_often_it_was_made() {
        assert_eq!(PARKED[0].len(), PARKED[1].len());
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/pack"), "x payroll.csv y payroll.csv z").unwrap();
        assert_eq!(forge(dir.path(), PARKED[0], PARKED[1]), Ok(2));
        assert_eq!(
            fs::read_to_string(dir.path().join("a/pack")).unwrap(),
            "x archive.csv y archive.csv z"
        );
        assert!(forge(dir.path(), "nowhere", "elsewher").is_err());
        assert_eq!(positions(b"aXbX", b"X"), [1, 3]);
    }

    #[test]
    fn the_calls_of_the_story_are_submissions() {
        let body = write().body(0);
        assert!(serde_json::from_value::<placet_engine::submission::Submission>(body).is_ok());
    }
}
