//! Broker: bind who calls, and plan the credential.
//!
//! Owns the principal chain of the envelope and the request digest. Mints nothing: the credential is attached after the gate, so
//! that no live secret waits for days in a queue.

use placet_approvals::refusals;
use placet_identity::{VerifiedCaller, VerifiedToken};
use placet_ledger::{parked::ParkedToken, refusal::internal};
use placet_types::{
    binding::RequestBinding,
    caller::CallerIdentity,
    directory::Directory,
    envelope::call::AuthRef,
    error::{ErrorCode, Refusal},
    ids::RecordId,
    principal::PrincipalChain,
    proof::CallerProof,
    run_context::{Delegation, RunAgent, RunContext, RunUser},
};

use crate::{
    call::{Brokered, Built, Caller, Identity},
    context::Context,
    credentials::Credentials,
    stages::{credential, references, run::ClassLimit},
};

/// Binds the principal chain and plans the credential.
pub(crate) fn broker(context: &Context, trace_id: &str, built: Built) -> Result<Brokered, Refusal> {
    let (identity, run, credential) = match &built.caller {
        Caller::Verified(caller) => {
            let identity = identity_of(&context.credentials, &built.active.directory, caller)?;
            references::check_user(&built, identity.chain.on_behalf_of.is_some())?;
            let run = run_of(trace_id, &built, &identity);
            let plan = credential::plan_for(&context.credentials, &built.target, caller, &identity);
            (identity, run, plan.map_err(|error| error.refusal())?)
        }
        Caller::Recorded(identity) => {
            let parked = built.resumed.as_ref().map(|resumed| &resumed.parked);
            let parked =
                parked.ok_or_else(|| internal("a recorded caller without a parked call"))?;
            let plan = credential::plan_again(&built.target, &parked.binding);
            let mut identity = identity.as_ref().clone();
            let run = RunContext {
                agent: agent_of(&built.active.directory, &Parties::of(&identity)),
                user: user_of(&Parties::of(&identity)),
                ..parked.run.clone()
            };
            if let (None, Some(resumed)) = (&identity.tokens, &built.resumed) {
                identity.tokens = context.tokens.of(resumed.record.record_id);
            }
            (identity, run, plan)
        }
    };
    let binding = RequestBinding {
        principal_chain: identity.chain.clone(),
        capability: built.target.capability.id.clone(),
        contract_digest: built.target.contract.digest,
        effective_args_digest: built.args_digest,
        target: built.target.contract.target(),
        credential,
    };
    let scope = identity.chain.key_scope(&built.target.capability.id);
    Ok(Brokered {
        record_id: RecordId::derive(&scope, &built.key),
        request_digest: binding.digest(),
        binding,
        identity,
        taint: run.taint.clone(),
        // An approver's edit is decided without passing through the gate.
        evidence: built
            .resumed
            .as_ref()
            .map(|resumed| resumed.parked.evidence.clone())
            .unwrap_or_default(),
        run,
        built,
        claimed: None,
    })
}

/// The identity of a caller whose tokens were verified at the API, if they still hold.
pub(crate) fn identity_of(
    credentials: &Credentials,
    directory: &Directory,
    caller: &VerifiedCaller,
) -> Result<Identity, Refusal> {
    if caller.expires_at() <= credentials.clock.now() {
        return Err(Refusal::new(ErrorCode::CredentialExpired, "the token has expired"));
    }
    if credentials.broker.is_caller_revoked(caller) {
        return Err(refusals::revoked());
    }
    let delegation = caller.delegation.as_ref();
    let authority = delegation.unwrap_or(&caller.actor);
    Ok(Identity {
        chain: with_displays(directory, caller.chain()),
        user_groups: delegation.map(|user| user.groups().clone()).unwrap_or_default(),
        proof: caller.proof(),
        groups_as_of: authority.groups_as_of(),
        authority_until: authority.expires_at(),
        auth_ref: AuthRef {
            delegated_user_token_ref: delegation.map(VerifiedToken::token_ref),
            agent_token_ref: caller.actor.token_ref(),
        },
        bearers: std::iter::once(&caller.actor).chain(delegation).flat_map(bearers_of).collect(),
        audiences: caller.several_audiences(),
        tokens: credential::tokens_of(caller),
    })
}

/// The parties of a call, and the proof of each.
struct Parties<'a> {
    chain: &'a PrincipalChain,
    proof: &'a CallerProof,
    auth_ref: &'a AuthRef,
}

impl<'a> Parties<'a> {
    const fn of(identity: &'a Identity) -> Self {
        Self { chain: &identity.chain, proof: &identity.proof, auth_ref: &identity.auth_ref }
    }
}

/// Who calls and how they proved it, for the entry of a call that was not brokered.
pub(crate) fn shown(
    directory: &Directory,
    chain: &PrincipalChain,
    proof: &CallerProof,
) -> Box<CallerIdentity> {
    let auth_ref = AuthRef { delegated_user_token_ref: None, agent_token_ref: String::new() };
    let parties = Parties { chain, proof, auth_ref: &auth_ref };
    let (agent, user) = (agent_of(directory, &parties), user_of(&parties));
    Box::new(CallerIdentity::of(&agent, user.as_ref(), proof))
}

/// One for each name of the subject, so that a revocation of any of them is found.
fn bearers_of(token: &VerifiedToken) -> impl Iterator<Item = ParkedToken> {
    token.subjects().map(|subject| ParkedToken {
        issuer: token.issuer().to_owned(),
        subject: subject.to_owned(),
        issued_at: token.said_issued_at(),
    })
}

/// Display names come from the directory, never from a token.
fn with_displays(directory: &Directory, mut chain: PrincipalChain) -> PrincipalChain {
    let tenant = chain.actor.tenant_id.clone();
    chain.actor.display =
        directory.agent(&tenant, &chain.actor.id).and_then(|agent| agent.display.clone());
    if let Some(user) = &mut chain.on_behalf_of {
        user.display = directory.user(&tenant, &user.id).and_then(|entry| entry.display.clone());
    }
    chain
}

/// The agent of the run (TM-04): from the proof of the call, and the current directory.
fn agent_of(directory: &Directory, parties: &Parties<'_>) -> RunAgent {
    let (tenant, actor) = (parties.chain.tenant(), &parties.chain.actor);
    let entry = directory.agent(tenant, &actor.id);
    RunAgent {
        agent_id: actor.id.clone(),
        agent_urn: format!("urn:placet:{}:{}:{}", actor.kind.as_str(), tenant, actor.id),
        workload_identity: parties.proof.actor.spiffe_id().map(str::to_owned),
        role: entry.and_then(|agent| agent.classes.first()).map(ToString::to_string),
        token_ref: parties.auth_ref.agent_token_ref.clone(),
        lifecycle: directory.lifecycle(tenant, &actor.id).to_owned(),
    }
}

/// The user of the run, and how the user's authority was delegated (TM-04).
fn user_of(parties: &Parties<'_>) -> Option<RunUser> {
    let (user, proof) = (parties.chain.on_behalf_of.as_ref()?, parties.proof.user.as_ref()?);
    Some(RunUser {
        user_id: user.id.clone(),
        delegation: Delegation {
            auth_type: proof.auth_type,
            scopes: proof.scopes.iter().cloned().collect(),
            subject: proof.subject.clone(),
            token_ref: parties.auth_ref.delegated_user_token_ref.clone().unwrap_or_default(),
        },
    })
}

fn run_of(trace_id: &str, built: &Built, identity: &Identity) -> RunContext {
    let tenant = identity.chain.tenant();
    let directory = &built.active.directory;
    let limit = ClassLimit::of(directory, &identity.chain);
    RunContext {
        run_id: built.run.run_id.clone(),
        trace_id: trace_id.to_owned(),
        tenant_id: tenant.clone(),
        user: user_of(&Parties::of(identity)),
        agent: agent_of(directory, &Parties::of(identity)),
        safety_mode: limit.first_ceiling(&built.run),
        run_budget: limit.budget(built.run.budget_if_new()),
        taint: built.run.taint.clone(),
        history: built.history.clone(),
    }
}
