//! Who speaks to a world: agents and people with tokens of its key.

use serde_json::json;

use placet_approvals::views::{DecisionRequest, DirectiveView, EntriesQuery};
use placet_engine::answer::Held;
use placet_identity::{MintRequest, TokenRole, VerifiedCaller};
use placet_types::{approval::VoteChoice, error::Refusal, ids::TenantId, principal::PrincipalKind};

use super::{AUDIENCE, World};

impl World {
    /// A token of somebody: of `acme`, or of the tenant after `@`.
    pub(crate) fn token(&self, kind: PrincipalKind, id: &str) -> String {
        self.token_with(kind, id, |_| {})
    }

    fn token_with(
        &self,
        kind: PrincipalKind,
        id: &str,
        change: impl FnOnce(&mut MintRequest),
    ) -> String {
        let (id, tenant) = id.split_once('@').unwrap_or((id, "acme"));
        let mut request = MintRequest::new(
            TenantId::new(tenant).unwrap(),
            kind,
            id.parse().unwrap(),
            AUDIENCE.to_owned(),
        );
        change(&mut request);
        self.key.mint(&request, self.clock.as_ref()).unwrap()
    }

    /// A person whose token says that they are in a group, whatever the directory knows of them.
    pub(crate) async fn person_in(&self, id: &str, group: &str) -> VerifiedCaller {
        let groups = [group.parse().unwrap()].into();
        let token = self.token_with(PrincipalKind::User, id, |request| request.groups = groups);
        VerifiedCaller::bind(self.verifier.verify(&token, TokenRole::Actor).await.unwrap(), None)
            .unwrap()
    }

    /// A decision by a caller on what they are shown.
    pub(crate) async fn decides(
        &self,
        caller: &VerifiedCaller,
        held: &Held,
        decision: VoteChoice,
    ) -> Result<String, Refusal> {
        let detail = self.engine.approvals().approval(caller, &held.approval_id).await?;
        let (reason, digest) = ("looked at it".to_owned(), detail.approval.digest);
        let request = DecisionRequest { decision, reason, digest };
        Ok(self.engine.approvals().decide(caller, &held.approval_id, request).await?.state)
    }

    /// A vote on what is held.
    pub(crate) async fn vote(
        &self,
        person: &str,
        held: &Held,
        choice: VoteChoice,
    ) -> Result<String, Refusal> {
        self.decides(&self.person(person).await, held, choice).await
    }

    /// Declares a lockdown of every adapter.
    pub(crate) async fn lock_down(&self) -> DirectiveView {
        let lockdown = json!({"kind": "freeze", "name": "breach", "lockdown": true});
        self.arrange("fay", lockdown, 86_400_000).await.unwrap()
    }

    /// Ends a lockdown.
    pub(crate) async fn lift(&self, lockdown: &DirectiveView) {
        self.end("fay", lockdown).await.unwrap();
    }

    pub(crate) async fn agent(&self) -> VerifiedCaller {
        self.caller(PrincipalKind::Agent, "bot").await
    }

    /// The entries of the approval service that a caller sees.
    pub(crate) async fn entries(
        &self,
        caller: &VerifiedCaller,
        query: EntriesQuery,
    ) -> Vec<DirectiveView> {
        let query = EntriesQuery { limit: 10, ..query };
        self.engine.approvals().entries(caller, &query).await.unwrap().entries
    }

    pub(crate) async fn person(&self, id: &str) -> VerifiedCaller {
        self.caller(PrincipalKind::User, id).await
    }

    pub(crate) async fn caller(&self, kind: PrincipalKind, id: &str) -> VerifiedCaller {
        let token = self.verifier.verify(&self.token(kind, id), TokenRole::Actor).await.unwrap();
        VerifiedCaller::bind(token, None).unwrap()
    }

    /// The agent acting for a person.
    pub(crate) async fn agent_for(&self, person: &str) -> VerifiedCaller {
        self.agent_by(&[], person).await
    }

    /// The agent acting for a person whose authority others handed on to it.
    pub(crate) async fn agent_by(&self, prior: &[&str], person: &str) -> VerifiedCaller {
        let actor = self
            .verifier
            .verify(&self.token(PrincipalKind::Agent, "bot"), TokenRole::Actor)
            .await
            .unwrap();
        let user = self
            .verifier
            .verify(
                &self.token_with(PrincipalKind::User, person, |request| {
                    request.act = (!prior.is_empty()).then(|| "bot".parse().unwrap());
                    request.prior_actors = prior.iter().map(ToString::to_string).collect();
                }),
                TokenRole::Delegation,
            )
            .await
            .unwrap();
        VerifiedCaller::bind(actor, Some(user)).unwrap()
    }
}
