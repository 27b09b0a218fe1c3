//! Impersonation: a credential that presents the user to the target as acting in person.
//!
//! Owns the rule that a permit has to allow it explicitly. Invariant: no bundle permits it by not knowing of it.

use crate::{
    decision::{DenialKind, Outcome, PolicyEffect},
    evaluate::Evaluation,
    facts::Facts,
    snapshot::Snapshot,
    verdict::{Denial, Verdict},
};

const NOTE: &str =
    "the credential names nobody as acting, and no permit says `@impersonation(\"permitted\")`";

/// The verdict, unless it permits a call whose credential names no actor and none of the determining permits allows that.
pub(crate) fn checked(snapshot: &Snapshot, facts: &Facts<'_>, verdict: Verdict) -> Verdict {
    let Verdict::Permit(permit) = &verdict else { return verdict };
    let policies = permit.decision().determining.iter().map(|one| one.policy.as_str());
    if is_permitted(snapshot, facts, policies) {
        return verdict;
    }
    let (kind, mut decision) = (DenialKind::Policy, permit.decision().clone());
    decision.outcome = Outcome::Deny(kind);
    decision.determining.retain(|policy| policy.effect == PolicyEffect::Forbid);
    decision.notes.push(NOTE.to_owned());
    Verdict::Deny(Denial { code: kind.code(), kind, decision })
}

/// Why no approval is requested if the call would be denied for impersonation even with one.
pub(crate) fn without_success(
    snapshot: &Snapshot,
    facts: &Facts<'_>,
    answers: &[Evaluation],
) -> Option<String> {
    let policies = answers.iter().flat_map(|answer| &answer.determining).map(String::as_str);
    let permitted = is_permitted(snapshot, facts, policies);
    (!permitted).then(|| format!("no approval would help: {NOTE}"))
}

/// Whether nobody is impersonated, or one of the policies that allow the call permits impersonation.
fn is_permitted<'a>(
    snapshot: &Snapshot,
    facts: &Facts<'_>,
    mut policies: impl Iterator<Item = &'a str>,
) -> bool {
    let permits =
        |id| snapshot.policies.get(id).is_some_and(|policy| policy.permits_impersonation());
    !facts.binding.credential.impersonates() || policies.any(permits)
}

#[cfg(test)]
mod tests {
    use placet_types::contract::credential::{ActorSource, CredentialKind};

    use crate::testing::{Draft, Swap, agent_for, bundle, compile, word, world};

    const PERMITS: &str = r#"
@id("agents") permit (principal is Placet::Agent, action in Placet::Action::"tier_read_only", resource is Placet::Tool);
@id("users") permit (principal is Placet::User, action in Placet::Action::"tier_read_only", resource is Placet::Tool);"#;

    /// The verdict on a look-up whose credential is exchanged, with these additional policies.
    fn verdict(actor: ActorSource, scopes: &[&str], policies: &str) -> &'static str {
        let snapshot = compile(&bundle(&format!("{PERMITS}{policies}")), &world()).unwrap();
        let draft = Draft { chain: agent_for("bot", "ada"), ..Draft::new(&world(), "ops/look") };
        let mut binding = draft.binding();
        binding.credential.kind = CredentialKind::TokenExchange;
        binding.credential.source = Some("corp".to_owned());
        binding.credential.audience = Some("urn:mail-api".to_owned());
        binding.credential.scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        binding.credential.actor = Some(actor);
        word(&draft.decide_with(&snapshot, Swap { binding: Some(&binding), ..Swap::default() }))
    }

    #[test]
    fn impersonation_needs_a_permit_that_says_so() {
        assert_eq!(verdict(ActorSource::Agent, &[], ""), "allow");
        assert_eq!(verdict(ActorSource::Gateway, &[], ""), "allow");
        assert_eq!(verdict(ActorSource::Nobody, &[], ""), "policy");
        let said = r#"
@id("in-person") @impersonation("permitted")
permit (principal is Placet::Agent, action in Placet::Action::"tier_read_only", resource is Placet::Tool)"#;
        assert_eq!(verdict(ActorSource::Nobody, &[], &format!("{said};")), "allow");
        // A permit that does not apply allows nothing.
        let other = format!("{said} when {{ principal == Placet::Agent::\"acme/fin-bot\" }};");
        assert_eq!(verdict(ActorSource::Nobody, &[], &other), "policy");
    }

    #[test]
    fn nobody_is_asked_to_agree_to_an_impersonation_that_would_be_denied_then() {
        let gate = r#"
@id("ask") @approval("custom") @approver_group("approvers") @quorum("1") @expires("24h") @reason("Somebody looks.")
forbid (principal, action in Placet::Action::"tier_read_only", resource is Placet::Tool)
unless { context.req has approval && !context.req.approval.denied &&
  context.req.approval.request_digest == context.req.evidence.request_digest &&
  context.req.now < context.req.approval.expires_at && context.req.approval.total >= 1 &&
  context.req.approval.hasTag("approvers") && context.req.approval.getTag("approvers") >= 1 };"#;
        assert_eq!(verdict(ActorSource::Agent, &[], gate), "hold");
        assert_eq!(verdict(ActorSource::Nobody, &[], gate), "policy");
        let said = |when: &str| {
            format!(
                r#"{gate}
@id("in-person") @impersonation("permitted")
permit (principal is Placet::Agent, action in Placet::Action::"tier_read_only", resource is Placet::Tool){when};"#
            )
        };
        assert_eq!(verdict(ActorSource::Nobody, &[], &said("")), "hold");
        // Where the permit itself requires an approval, people are asked.
        let then = said(" when { context.req has approval }");
        assert_eq!(verdict(ActorSource::Nobody, &[], &then), "hold");
    }

    #[test]
    fn the_annotation_says_one_thing_and_only_of_a_permit() {
        for text in [
            r#"@id("a") @impersonation("yes") permit (principal is Placet::Agent, action in Placet::Action::"tier_read_only", resource is Placet::Tool);"#,
            r#"@id("a") @approval("never") @impersonation("permitted") forbid (principal is Placet::Agent, action in Placet::Action::"tier_read_only", resource is Placet::Tool);"#,
        ] {
            let problems = compile(&bundle(text), &world()).unwrap_err();
            assert!(problems[0].message.contains("@impersonation"), "{problems:?}");
        }
    }

    #[test]
    fn a_policy_sees_what_would_be_asked_for() {
        let forbid = |condition: &str| {
            format!(
                r#"
@id("never") @approval("never") forbid (principal is Placet::Agent, action in Placet::Action::"tier_read_only", resource is Placet::Tool)
when {{ context.req has credential && ({condition}) }};"#
            )
        };
        for condition in [
            r#"context.req.credential.scopes.contains("mail.send")"#,
            r#"context.req.credential.kind == Placet::CredentialKind::"token_exchange""#,
            r#"context.req.credential.source == "corp""#,
            r#"context.req.credential has audience && context.req.credential.audience like "urn:mail*""#,
        ] {
            let policies = forbid(condition);
            assert_eq!(
                verdict(ActorSource::Agent, &["mail.send"], &policies),
                "policy",
                "{condition}"
            );
        }
        let sends = forbid(r#"context.req.credential.scopes.contains("mail.send")"#);
        assert_eq!(verdict(ActorSource::Agent, &["mail.read"], &sends), "allow");
        let has_resource = forbid("context.req.credential has resource");
        assert_eq!(verdict(ActorSource::Agent, &[], &has_resource), "allow");
    }
}
