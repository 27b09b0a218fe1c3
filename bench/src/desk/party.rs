//! Those who take part: the agent whose calls are held, somebody who decides, the tool that is called in the end.
//!
//! Owns the process under measurement and every request to it. The tool is a server of this program, so that the moment of a call is told
//! by the same clock as the moment of the decision. Invariant: an answer that is not the one expected ends the run.

pub(super) mod looks;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{HeaderValue, Method, Request, StatusCode, header};
use placet_egress::EgressClient;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    process::Child,
    sync::mpsc::{Receiver, channel},
    time::{Instant, sleep, timeout},
};
use url::Url;

use super::Memory;
use crate::{
    contract,
    engine::{self, Greeting},
    http_client, peer,
};

/// How long anything may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
/// How many calls are made at once while the approval service fills.
const CALLERS: usize = 64;
/// More than ever wait to be read.
const ARRIVALS_MAX: usize = 1_024;
const CONNECTIONS: usize = 128;
/// More calls than one run of this program makes.
const CALLS_MAX: u32 = 10_000_000;
/// What stands in every call beside its number, so that it is as long as a real one.
const TEXT: &str = "The invoice was paid twice in the same month, once by card and once by transfer; the second payment goes back to \
the account it came from, and the customer is told by letter.";

/// A call that waits.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) approval_id: String,
    text: String,
}

/// What one decision took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    /// From sending it until the tool was called.
    pub(super) dispatch: Duration,
    /// Until it was answered.
    pub(super) answer: Duration,
}

/// Everybody.
#[derive(Debug)]
pub(super) struct Party {
    placet: PathBuf,
    folder: PathBuf,
    config: PathBuf,
    child: Child,
    api: Api,
    arrivals: Receiver<(Instant, String)>,
    calls: usize,
}

/// The way in.
#[derive(Debug, Clone)]
struct Api {
    client: EgressClient,
    base: Url,
    agent: HeaderValue,
    approver: HeaderValue,
}

impl Party {
    /// Starts `placet` in `folder`, with its ledger there or in this database, and waits until its tool can be called.
    pub(super) async fn start(
        placet: &Path,
        folder: &Path,
        database: Option<&str>,
    ) -> Result<Self> {
        let (told, arrivals) = channel(ARRIVALS_MAX);
        let tool = peer::serve_here(told).await?;
        let config = engine::configure_with(folder, &[contract::held(&tool)?], database)?;
        let (child, greeting) = engine::serve(placet, folder, &config).await?;
        let bearer = async |kind, name| {
            let token = engine::token(placet, folder, (&config, kind, name)).await?;
            engine::bearer(&token)
        };
        let (agent, approver) = (bearer("agent", "dev-agent").await?, bearer("user", "ben").await?);
        let api = Api::new(&greeting, agent, approver)?;
        let (placet, folder) = (placet.to_owned(), folder.to_owned());
        let party = Self { placet, folder, config, child, api, arrivals, calls: 0 };
        party.warm().await?;
        Ok(party)
    }

    /// Ends the process, at once or in order.
    pub(super) async fn stop(&mut self, killed: bool) -> Result<()> {
        if let Some(ended) = self.child.try_wait()? {
            let log = engine::tail(&self.folder.join("engine.log"));
            bail!("`placet serve` ended by itself ({ended}): {log}");
        }
        if killed {
            return self.child.kill().await.context("`placet serve` cannot be ended");
        }
        let pid = self.pid()?;
        kill_process(pid, Signal::TERM).context("`placet serve` cannot be told to end")?;
        let ended = timeout(PATIENCE, self.child.wait()).await.context("it does not end")?;
        ended.map(drop).context("`placet serve` cannot be waited for")
    }

    /// Starts it again where it was.
    pub(super) async fn resume(&mut self) -> Result<()> {
        let (child, greeting) = engine::serve(&self.placet, &self.folder, &self.config).await?;
        let Api { agent, approver, .. } = self.api.clone();
        self.api = Api::new(&greeting, agent, approver)?;
        self.child = child;
        Ok(())
    }

    /// Makes so many calls, which are all held.
    pub(super) async fn hold(&mut self, many: usize) -> Result<Vec<Held>> {
        let first = self.calls;
        self.calls = first.saturating_add(many);
        let api = &self.api;
        let calls = stream::iter(first..self.calls).map(|number| api.hold(number));
        calls.buffer_unordered(CALLERS).try_collect().await
    }

    /// Looks at a held call as an approver does, agrees to it, and waits until its tool was called.
    pub(super) async fn decide(&mut self, held: &Held) -> Result<Took> {
        let path = format!("/v1/approvals/{}", held.approval_id);
        let shown = self.api.read(&path).await?;
        let digest = shown.pointer("/approval/digest").context("no digest is shown")?;
        let body =
            json!({"decision": "approve", "reason": "the payment is there", "digest": digest});
        let began = Instant::now();
        let to = format!("{path}/decisions");
        let (status, said) = self.api.send((Method::POST, &to), Some(&body), false).await?;
        let answer = began.elapsed();
        if status != StatusCode::OK {
            bail!("a decision was answered with {status}: {said}");
        }
        let arrival = timeout(PATIENCE, self.arrivals.recv()).await;
        let (arrived, text) = arrival.context("no call arrives")?.context("the tool is gone")?;
        if text != held.text {
            bail!("another call arrived than the one that was decided on");
        }
        Ok(Took { dispatch: arrived.saturating_duration_since(began), answer })
    }

    /// A page of the approver's inbox.
    pub(super) async fn page(&self) -> Result<Value> {
        self.api.read("/v1/inbox").await
    }

    /// How many wait, as the approver's inbox says; nothing while a start still reads what waits: the listeners are open before that.
    pub(super) async fn waiting(&self) -> Result<Option<usize>> {
        let path = "/v1/inbox?limit=1";
        let (status, inbox) = self.api.send((Method::GET, path), None, false).await?;
        if inbox.get("error_code").and_then(Value::as_str) == Some("OVERLOADED") {
            return Ok(None);
        }
        if status != StatusCode::OK {
            bail!("`{path}` was answered with {status}: {inbox}");
        }
        let total = inbox.get("total").and_then(Value::as_u64).context("the inbox has no total")?;
        usize::try_from(total).map(Some).context("the total is too large")
    }

    /// The memory of the process.
    pub(super) fn memory(&self) -> Result<Memory> {
        let id = self.child.id().context("`placet serve` has ended")?;
        let status = fs::read_to_string(format!("/proc/{id}/status"));
        memory_of(&status.context("the process cannot be looked at")?)
    }

    fn pid(&self) -> Result<Pid> {
        let id = self.child.id().context("`placet serve` has ended")?;
        i32::try_from(id).ok().and_then(Pid::from_raw).context("that is no process")
    }

    /// The connection to the tool comes up in the background: the first calls may find none.
    async fn warm(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            let body = json!({
                "tool": format!("{}__{}", contract::HELD, peer::LOOK), "args": peer::arguments(peer::LOOK),
                "idempotency_key": format!("warm-{}", began.elapsed().as_millis()),
                "run": {"run_id": "warm", "safety_mode": "read_only"},
            });
            let (status, said) =
                self.api.send((Method::POST, "/v1/calls"), Some(&body), true).await?;
            let succeeded = said.get("status").and_then(Value::as_str) == Some("succeeded");
            if status == StatusCode::OK && succeeded {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                bail!("the tool cannot be called: {said}");
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Api {
    fn new(greeting: &Greeting, agent: HeaderValue, approver: HeaderValue) -> Result<Self> {
        let client = http_client::egress(&[&greeting.listen, &greeting.admin_listen], CONNECTIONS)?;
        Ok(Self { client, base: greeting.listen.clone(), agent, approver })
    }

    async fn hold(&self, number: usize) -> Result<Held> {
        let text = format!("Payment {number}. {TEXT}");
        let body = json!({
            "tool": format!("{}__{}", contract::HELD, peer::NOTE),
            "args": {"text": text},
            "idempotency_key": format!("held-{number}"),
            "run": {"run_id": "bench-desk", "safety_mode": "destructive", "run_budget": {"calls_max": CALLS_MAX}},
        });
        let (status, said) = self.send((Method::POST, "/v1/calls"), Some(&body), true).await?;
        let approval_id = said.get("approval_id").and_then(Value::as_str);
        match approval_id {
            Some(approval_id) if status == StatusCode::ACCEPTED => {
                Ok(Held { approval_id: approval_id.to_owned(), text })
            }
            _ => bail!("a call was not held ({status}): {said}"),
        }
    }

    async fn read(&self, path: &str) -> Result<Value> {
        let (status, said) = self.send((Method::GET, path), None, false).await?;
        if status != StatusCode::OK {
            bail!("`{path}` was answered with {status}: {said}");
        }
        Ok(said)
    }

    async fn send(
        &self,
        (method, path): (Method, &str),
        body: Option<&Value>,
        as_agent: bool,
    ) -> Result<(StatusCode, Value)> {
        let who = if as_agent { &self.agent } else { &self.approver };
        let request = Request::builder()
            .method(method)
            .uri(self.base.join(path)?.as_str())
            .header(header::AUTHORIZATION, who.clone())
            .header(header::CONTENT_TYPE, "application/json");
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let request = request.body(Bytes::from(body))?;
        let response = timeout(PATIENCE, self.client.send(request)).await;
        let response = response.context("there is no answer")?.context("a request failed")?;
        let said = serde_json::from_slice(response.body()).context("the answer is no JSON")?;
        Ok((response.status(), said))
    }
}

/// Resident memory in the text of `/proc/PID/status`.
pub(super) fn memory_of(status: &str) -> Result<Memory> {
    let bytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kib.map(|kib| kib.saturating_mul(1_024)).with_context(|| format!("there is no `{field}`"))
    };
    Ok(Memory { resident: bytes("VmRSS:")?, own: bytes("RssAnon:")? })
}
