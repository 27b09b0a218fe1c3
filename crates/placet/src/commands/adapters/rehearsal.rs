//! Where a conformance check gets its dispatches from: a ledger of its own, over a store that is thrown away afterwards.
//!
//! Owns that private world: one agent, one policy that permits it everything the contract has, and an empty embedded store in a temporary
//! folder. Invariant: a dispatch is made here as everywhere, by the ledger from a permit of a decision, after its intent is durable; there
//! is no other way to one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use placet_adapter::{
    adapter::{Conditions, Credential, Dispatch, SessionLease, TraceHeaders},
    conformance::Bench,
};
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    dispatch::Intent,
    ledger::Ledger,
    policies::Activation,
    record::{EffectRecord, EffectState, RECORD_VERSION},
    reservation::Reservation,
    run::{RunKey, RunRecord},
    store::{ClaimAnswer, Durability, Store},
};
use placet_policy::{
    bundle::{BundleSource, PolicyFile},
    facts::{BudgetView, Facts},
    permit::Permit,
    snapshot::Snapshot,
    verdict::Verdict,
};
use placet_store::embedded::{EmbeddedConfig, EmbeddedStore};
use placet_types::{
    binding::RequestBinding,
    clock::IdSource as _,
    contract::{Capability, Contract, credential::CredentialKind, file::TenantsFile},
    digest::Digest,
    directory::{AgentEntry, Directory, TenantDirectory, UserEntry},
    evidence::{EvidenceItem, EvidenceKind},
    ids::{
        CapabilityId, DecisionId, IdempotencyKey, PrincipalId, RecordId, RunId, TenantId,
        ToolCallId,
    },
    json::canonical_digest,
    mode::{ApprovalMode, EngineMode},
    principal::{Principal, PrincipalChain, PrincipalKind},
    proof::CallerProof,
    run_context::RunBudget,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    clock::{SystemClock, UlidSource},
    compose::ConfiguredSecrets,
    failure::{Attempted as _, Failure},
};

/// Anyone who runs a check may do what the contract has; the real policies decide about real calls.
const POLICY: &str = r#"
@id("conformance-check")
@reason("A conformance check calls what its contract describes.")
permit (
  principal,
  action in
    [Placet::Action::"tier_read_only",
     Placet::Action::"tier_local_write",
     Placet::Action::"tier_network",
     Placet::Action::"tier_delegated",
     Placet::Action::"tier_destructive"],
  resource is Placet::Tool
);
"#;
const AGENT: &str = "conformance";
const OWNER: &str = "author";
/// What the one run may use up: far more than any check does.
const CALLS_MAX: u32 = 1_000_000;
const CENTS_MAX: u64 = 1_000_000_000_000;

/// The private world of one contract.
#[derive(Debug)]
pub(super) struct Rehearsal {
    ledger: Ledger,
    snapshot: Snapshot,
    contract: Arc<Contract>,
    chain: PrincipalChain,
    run: RunKey,
    ids: UlidSource<SystemClock>,
    secrets: ConfiguredSecrets,
    timeout_ms: u64,
    begun: Instant,
    /// Goes with everything in it.
    _folder: TempDir,
}

impl Rehearsal {
    /// A world for checking `contract` with calls that may take `timeout_ms`.
    ///
    /// # Errors
    /// [`Failure`] when its store cannot be made.
    pub(super) async fn open(
        contract: Arc<Contract>,
        secrets: ConfiguredSecrets,
        timeout_ms: u64,
    ) -> Result<Self, Failure> {
        let what = "the check cannot be prepared";
        let folder = tempfile::tempdir().attempted(what)?;
        let config = EmbeddedConfig {
            free_space_watermark_bytes: 0,
            segment_bytes: 1 << 20,
            ..EmbeddedConfig::new(folder.path().join("ledger"))
        };
        let opening = move || EmbeddedStore::open(config, Arc::new(SystemClock));
        let (store, _report) =
            tokio::task::spawn_blocking(opening).await.attempted(what)?.attempted(what)?;
        let store: Arc<dyn Store> = store;
        let ledger = Ledger::new(store);
        let chain = chain(&contract).attempted(what)?;
        let file = PolicyFile { name: "check.cedar".to_owned(), text: POLICY.to_owned() };
        let bundle = BundleSource::new([file]);
        let activated = AuditEvent::new(AuditKind::BundleActivated);
        let epoch = ledger
            .activate(bundle.digest(), Activation::Promotion, activated)
            .await
            .attempted(what)?;
        let snapshot = Snapshot::compile(
            &bundle,
            &[Arc::clone(&contract)],
            &directory(&chain).attempted(what)?,
            &contract.environment,
            epoch,
        )
        .map_err(|problems| problems.iter().fold(Failure::new(what), |f, p| f.because(p)))?;
        let run = RunKey {
            tenant: chain.tenant().clone(),
            agent: chain.actor.id.clone(),
            on_behalf_of: chain.on_behalf_of.as_ref().map(|user| user.id.clone()),
            run_id: RunId::new("conformance").attempted(what)?,
        };
        let opened = run_record(&run, &ledger, timeout_ms);
        ledger.open_run(opened).await.attempted(what)?;
        Ok(Self {
            ledger,
            snapshot,
            contract,
            chain,
            run,
            ids: UlidSource::new(SystemClock),
            secrets,
            timeout_ms,
            begun: Instant::now(),
            _folder: folder,
        })
    }

    /// Ends the world.
    pub(super) async fn close(self) {
        // What it kept is thrown away with its folder, so that nothing is lost if it ends badly.
        let _ended = self.ledger.store().close().await.is_ok();
    }

    fn capability(&self, id: &CapabilityId) -> Result<&Capability, String> {
        let found = self.contract.capabilities.get(id.capability());
        found.ok_or_else(|| format!("there is no capability `{id}`"))
    }

    fn permit(
        &self,
        capability: &Capability,
        args: &Value,
        binding: &RequestBinding,
        key: Option<RecordId>,
    ) -> Result<Permit, String> {
        let now = self.ledger.store().now();
        let window_ends = now.plus_ms(i64::from(CALLS_MAX));
        let facts = Facts {
            chain: &self.chain,
            user_groups: &BTreeSet::new(),
            contract: &self.contract,
            capability,
            args,
            binding,
            mode_requested: ApprovalMode::Destructive,
            safety_mode: ApprovalMode::Destructive,
            engine_mode: EngineMode::Enforce,
            budget: BudgetView { calls_left: CALLS_MAX, cents_left: CENTS_MAX, window_ends },
            taint: &BTreeSet::new(),
            evidence: &[EvidenceItem {
                kind: EvidenceKind::Result,
                call_id: ToolCallId::new("earlier").map_err(in_words)?,
                capability_id: capability.id.clone(),
                digest: Digest::of(b"made up"),
            }],
            now,
            approval: None,
            frozen: false,
            break_glass: None,
            desk: placet_types::desk::DeskBasis::default(),
            proof: &CallerProof::of_development(&self.chain),
            key,
        };
        let id = DecisionId::new(format!("dec_{}", self.ids.fresh())).map_err(in_words)?;
        match self.snapshot.decide(&facts, id) {
            Verdict::Permit(permit) => Ok(permit),
            Verdict::Hold(_) => Err("it would be held for people".to_owned()),
            Verdict::Deny(denial) => Err(match denial.decision.notes.first() {
                Some(note) => note.clone(),
                None => denial.decision.errors.join("; "),
            }),
        }
    }

    fn intent(
        &self,
        binding: &RequestBinding,
        args: &Map<String, Value>,
    ) -> Result<Intent, String> {
        let left_ms = i64::try_from(self.timeout_ms).unwrap_or(i64::MAX);
        Ok(Intent {
            call_id: ToolCallId::new(format!("call_{}", self.ids.fresh())).map_err(in_words)?,
            args: args.clone(),
            binding: binding.clone(),
            deadline_at: self.ledger.store().now().plus_ms(left_ms),
            reserve: Reservation::of(self.run.clone(), 0),
            audit: AuditEvent::new(AuditKind::Dispatched),
        })
    }

    /// The record of a key: the one there is, as recovery finds it, or a new claim.
    async fn record(
        &self,
        record_id: RecordId,
        key: IdempotencyKey,
        intent: &Intent,
    ) -> Result<EffectRecord, String> {
        if let Some(known) = self.ledger.store().effect(record_id).await.map_err(in_words)? {
            return Ok(known);
        }
        let now = self.ledger.store().now();
        let record = EffectRecord {
            version: RECORD_VERSION,
            record_id,
            scope: self.chain.key_scope(&intent.binding.capability),
            key,
            call_id: intent.call_id.clone(),
            run_id: self.run.run_id.clone(),
            requested_digest: intent.binding.effective_args_digest,
            parked: intent.binding.effective_args_digest,
            created_at: now,
            updated_at: now,
            rev: 0,
            arm: 1,
            attempts: 0,
            unknown: None,
            state: EffectState::Claimed { epoch: self.ledger.store().epoch() },
        };
        match self.ledger.claim(record.clone()).await.map_err(in_words)? {
            ClaimAnswer::Claimed => Ok(record),
            ClaimAnswer::Taken(known) => Ok(*known),
        }
    }
}

#[async_trait]
impl Bench for Rehearsal {
    async fn dispatch(
        &mut self,
        capability: &CapabilityId,
        args: &Map<String, Value>,
        key: &str,
    ) -> Result<Dispatch, String> {
        let capability = self.capability(capability)?;
        let document = Value::Object(args.clone());
        let binding = RequestBinding {
            principal_chain: self.chain.clone(),
            capability: capability.id.clone(),
            contract_digest: self.contract.digest,
            effective_args_digest: canonical_digest(&document),
            target: self.contract.target(),
            credential: self.contract.credential_plan(&capability.id),
        };
        let intent = self.intent(&binding, args)?;
        if !capability.is_write_class() {
            let permit = self.permit(capability, &document, &binding, None)?;
            let armed = self.ledger.dispatch_read(permit, intent, Durability::Written).await;
            return armed.map(|armed| armed.dispatch).map_err(in_words);
        }
        let key = IdempotencyKey::new(key).map_err(in_words)?;
        let record_id = RecordId::derive(&self.chain.key_scope(&capability.id), &key);
        let record = self.record(record_id, key, &intent).await?;
        let permit = self.permit(capability, &document, &binding, Some(record_id))?;
        let dedup = &capability.dedup;
        let armed = self.ledger.dispatch(permit, intent, &record, None, dedup).await;
        // Never settled: the next call with this key finds what a crash leaves.
        armed.map(|armed| armed.dispatch).map_err(in_words)
    }

    fn conditions(&mut self, timeout_ms: u64) -> Result<Conditions, String> {
        let credential = self
            .contract
            .credential
            .as_ref()
            .map(|credential| {
                let Some(name) = credential
                    .secret
                    .as_ref()
                    .filter(|_| credential.kind == CredentialKind::StaticSecret)
                else {
                    return Err("its credential is minted for a caller, and a rehearsal has none"
                        .to_owned());
                };
                let secret = self.secrets.at_once(name)?;
                let header = credential.header.to_ascii_lowercase();
                let value = if header == "authorization" {
                    SecretString::from(format!("Bearer {}", secret.expose_secret()))
                } else {
                    secret
                };
                Ok::<_, String>(Credential { header, value, origin: None, ends: None })
            })
            .transpose()?;
        let (seat, trace) = (SessionLease::default(), TraceHeaders::default());
        Ok(Conditions { timeout_ms, listen_ms: 0, credential, seat, trace })
    }

    fn strange_token(&mut self) -> String {
        format!("plc_{}", self.ids.fresh().to_ascii_lowercase())
    }

    async fn pause(&mut self, ms: u64) {
        sleep(Duration::from_millis(ms)).await;
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn in_words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The one agent, in a tenant that the contract admits.
fn chain(contract: &Contract) -> Result<PrincipalChain, String> {
    let tenant_id = match &contract.tenants {
        TenantsFile::Only(tenants) => tenants.first().cloned(),
        TenantsFile::All(_) => Some(TenantId::new("conformance").map_err(in_words)?),
    };
    let tenant_id = tenant_id.ok_or("the contract admits no tenant")?;
    let id = PrincipalId::new(AGENT).map_err(in_words)?;
    // What acts with a user's authority is not called without one.
    let is_delegated = contract.capabilities.values().any(|capability| capability.is_delegated());
    let user = PrincipalId::new(OWNER).map_err(in_words)?;
    let user = Principal {
        kind: PrincipalKind::User,
        id: user,
        tenant_id: tenant_id.clone(),
        display: None,
    };
    let actor = Principal { kind: PrincipalKind::Agent, id, tenant_id, display: None };
    Ok(PrincipalChain { actor, on_behalf_of: is_delegated.then_some(user), via: Vec::new() })
}

fn directory(chain: &PrincipalChain) -> Result<Directory, String> {
    let owner = PrincipalId::new(OWNER).map_err(in_words)?;
    let user = UserEntry { active: true, ..UserEntry::default() };
    let agent =
        AgentEntry { owner: owner.clone(), classes: BTreeSet::new(), active: true, display: None };
    let tenant = TenantDirectory {
        users: BTreeMap::from([(owner, user)]),
        agents: BTreeMap::from([(chain.actor.id.clone(), agent)]),
        ..TenantDirectory::default()
    };
    Ok(Directory { tenants: BTreeMap::from([(chain.tenant().clone(), tenant)]) })
}

fn run_record(key: &RunKey, ledger: &Ledger, timeout_ms: u64) -> RunRecord {
    RunRecord {
        key: key.clone(),
        safety_mode: ApprovalMode::Destructive,
        budget: RunBudget {
            calls_max: CALLS_MAX,
            cost_cents_max: CENTS_MAX,
            tool_latency_ms_max: timeout_ms,
        },
        opened_at: ledger.store().now(),
        calls_used: 0,
        cents_used: 0,
        taint: BTreeSet::new(),
    }
}
