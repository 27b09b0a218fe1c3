//! What a minted credential costs a call: exchanged, from the cache, and for many calls at the same time.
//!
//! Owns a token service on loopback that answers at once, and the rounds. Invariant: how often that service was asked is counted there,
//! not by what is measured; a round in which the count is not what it must be ends the run.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use axum::{Json, Router, routing::post};
use clap::Args;
use placet_credentials::{Broker, CallTokens, GrantRequest, StsConfig, egress_limits};
use placet_egress::{EgressClient, EgressPolicy};
use placet_identity::{SecretSource, Secrets, SubjectToken, TokenFacts};
use placet_types::{
    clock::{Clock, Timestamp},
    contract::credential::{ActorSource, CachePolicy, CredentialKind},
    digest::Digest,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::Instant};

use crate::{
    say,
    stats::{Numbers, Sample},
};

const CONCURRENT: u64 = 100;
const ORIGIN: &str = "https://mail.example:443";

/// How much is measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExchangeArgs {
    /// Exchanges; of calls that find a credential there are a hundred times as many.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    exchanges: u64,
    /// Rounds of a hundred calls at the same time.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rounds: u64,
    /// Print one JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Measured {
    /// A call whose credential is exchanged for it.
    miss: Numbers,
    /// A call whose credential is there.
    hit: Numbers,
    /// A call among a hundred of the same kind at the same time.
    concurrent: Numbers,
    /// How often the token service was asked in those rounds: once in each.
    exchanges_in_a_round: u64,
}

#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(1_800_000_000_000)
    }
}

/// Measures and prints.
pub(crate) async fn measure(args: &ExchangeArgs) -> Result<()> {
    let asked = Arc::new(AtomicU64::new(0));
    let broker = broker(&asked).await?;
    let mut miss = Sample::default();
    for number in 0..args.exchanges {
        miss.add(timed(&broker, request(number)?).await?);
    }
    let before = asked.load(Ordering::SeqCst);
    ensure!(before == args.exchanges, "{before} requests for {} exchanges", args.exchanges);
    let mut hit = Sample::default();
    for _ in 0..args.exchanges.saturating_mul(100) {
        hit.add(timed(&broker, request(0)?).await?);
    }
    let hits = asked.load(Ordering::SeqCst).saturating_sub(before);
    ensure!(hits == 0, "{hits} requests for calls whose credential is there");
    let concurrent = concurrent(&broker, args).await?;
    let rounds = asked.load(Ordering::SeqCst).saturating_sub(before);
    ensure!(rounds == args.rounds, "{rounds} requests in {} rounds", args.rounds);
    let counts = |sample: &Sample| sample.counts().context("nothing was measured");
    let measured = Measured {
        miss: counts(&miss)?,
        hit: counts(&hit)?,
        concurrent: counts(&concurrent)?,
        exchanges_in_a_round: 1,
    };
    print(&measured, args.json)
}

/// Rounds of calls of one kind that nothing is known of yet.
async fn concurrent(broker: &Broker, args: &ExchangeArgs) -> Result<Sample> {
    let mut sample = Sample::default();
    for round in 0..args.rounds {
        let fresh = args.exchanges.saturating_add(1).saturating_add(round);
        let began = Instant::now();
        let calls = (0..CONCURRENT).map(|_| {
            let broker = broker.clone();
            let request = request(fresh);
            tokio::spawn(async move { timed(&broker, request?).await })
        });
        let mut latencies = Vec::new();
        for call in calls.collect::<Vec<_>>() {
            latencies.push(call.await.context("a call broke")??);
        }
        sample.join(Sample { latencies, elapsed: began.elapsed() });
    }
    Ok(sample)
}

async fn timed(broker: &Broker, request: GrantRequest) -> Result<Duration> {
    let began = Instant::now();
    let grant = broker.mint(request).await?;
    let took = began.elapsed();
    drop(grant.value_for(ORIGIN, FixedClock.now())?);
    Ok(took)
}

/// A broker, and the token service that it asks.
async fn broker(asked: &Arc<AtomicU64>) -> Result<Broker> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("no port")?;
    let address = listener.local_addr().context("no address")?;
    let counter = Arc::clone(asked);
    let answer = move || {
        counter.fetch_add(1, Ordering::SeqCst);
        async {
            Json(json!({
                "access_token": "minted", "token_type": "Bearer", "expires_in": 300, "scope": "mail.read",
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            }))
        }
    };
    let service = Router::new().route("/token", post(answer));
    drop(tokio::spawn(async move { axum::serve(listener, service).await }));
    let config: Value = json!({
        "name": "corp", "issuer": "https://sts.example", "client_id": "placet", "private_network": true,
        "token_endpoint": format!("http://{address}/token"),
        "client_auth": { "method": "client_secret_basic", "secret": "sts" },
    });
    let config: StsConfig = serde_json::from_value(config).context("the section")?;
    let policy = EgressPolicy::new(vec![config.destination()?]);
    let egress = EgressClient::new(policy, egress_limits())?;
    let source = SecretSource::Env { name: "STS".to_owned(), value: "only for this run".into() };
    let secrets = Secrets::new(BTreeMap::from([("sts".to_owned(), source)]));
    Ok(Broker::new(vec![config], secrets, Some(egress), Arc::new(FixedClock))?)
}

/// The request of a call of the kind `number`.
fn request(number: u64) -> Result<GrantRequest> {
    let token = |subject: &str| {
        let facts = TokenFacts {
            issuer: "https://idp.example".to_owned(),
            subject: subject.to_owned(),
            client: None,
            issued_at: None,
            expires_at: FixedClock.now().plus_ms(3_600_000),
            scopes: std::collections::BTreeSet::new(),
            may_act: None,
        };
        SubjectToken::seal(&format!("{subject}-{number}-{}", "x".repeat(800)), facts)
    };
    let scopes = [String::from("mail.read")];
    Ok(GrantRequest {
        tenant: "acme".parse()?,
        permit_id: "dec_1".parse()?,
        kind: CredentialKind::TokenExchange,
        service: "corp".to_owned(),
        tokens: Some(CallTokens { subject: token("alice"), actor: Some(token("agent")) }),
        actor: ActorSource::Agent,
        audience: Some("urn:mail-api".to_owned()),
        resource: None,
        scopes: scopes.clone().into(),
        scopes_needed: scopes.into(),
        cache: CachePolicy::Short,
        origin: ORIGIN.to_owned(),
        revision: Digest::of(b"contract"),
        deadline: Instant::now() + Duration::from_secs(30),
    })
}

fn print(measured: &Measured, json: bool) -> Result<()> {
    let out = &mut io::stdout().lock();
    if json {
        say(out, &serde_json::to_string_pretty(measured)?);
        return Ok(());
    }
    let line = |what: &str, counts: &Numbers| {
        format!(
            "{what:<44} {:>8} calls  p50 {:>9.4} ms  p99 {:>9.4} ms  {:>10.0}/s",
            counts.calls, counts.p50_ms, counts.p99_ms, counts.per_second
        )
    };
    say(out, &line("exchanged, one after the other", &measured.miss));
    say(out, &line("from the cache, one after the other", &measured.hit));
    say(out, &line("a hundred at the same time, one exchange", &measured.concurrent));
    Ok(())
}
