//! One policy with what its annotations say, and the rules for policies beyond Cedar's own.
//!
//! Owns the vocabulary of annotations: the condition enforces, the annotation routes. Invariant: whatever an
//! annotation cannot mean is refused when the bundle is read, never ignored when a call is decided.

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::{ActionConstraint, Effect, EntityUid, Policy};

use crate::{
    actions,
    bundle::{BundleProblem, Severity},
    decision::PolicyEffect,
    mentions::Mentions,
    route::WrittenGroup,
};

mod by_hand;
mod lengths;

use lengths::{duration_ms, in_words};

/// How long an approval lives by default.
pub(crate) const EXPIRES_IN_MS_DEFAULT: u64 = 86_400_000;
/// The longest an approval may live.
pub(crate) const EXPIRES_IN_MS_MAX: u64 = 7 * EXPIRES_IN_MS_DEFAULT;
const EXPIRES_IN_MS_MIN: u64 = 1_000;
const QUORUM_MAX: u32 = 20;
const GROUPS_MAX: usize = 20;
const ID_LENGTH_MAX: usize = 128;
const REASON_BYTES_MAX: usize = 1_024;

const FRESH_AUTH_MS_MIN: u64 = 60_000;
const ESCALATIONS_MAX: usize = 8;

/// `@approval`: the condition is generated from the annotations.
const REQUIRED: &str = "required";
/// `@approval`: the condition is written by hand.
const CUSTOM: &str = "custom";
/// `@impersonation`: a permit that allows a credential to present the user as acting in person.
const IMPERSONATION: &str = "impersonation";
/// `@tell`: who learns the `@reason` of the `forbid` that refused a call, besides those who look up the decision.
const TELL: &str = "tell";
/// `@feedback`: what the `forbid` that refused a call has the agent do instead.
const FEEDBACK: &str = "feedback";
/// The annotations that any policy may have.
const GENERAL: [&str; 6] = ["id", "reason", "description", IMPERSONATION, TELL, FEEDBACK];
/// The annotations for policies that can hold a call only; `approval` first.
const ROUTING: [&str; 9] = [
    "approval",
    "approver_group",
    "quorum",
    "deny_threshold",
    "expires",
    "escalate",
    "fresh_auth",
    "once_only",
    "four_eyes",
];

/// A policy of a bundle: what matters about it outside Cedar.
#[derive(Debug, Clone)]
pub(crate) struct PolicyMeta {
    pub(crate) id: String,
    pub(crate) effect: PolicyEffect,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) text: String,
    /// The text with the clause generated from the annotations, if they generate one.
    pub(crate) expanded: Option<String>,
    pub(crate) file: String,
    pub(crate) line: Option<u32>,
    pub(crate) rule: ApprovalRule,
}

/// Whether people can set a `forbid` aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApprovalRule {
    /// They cannot; also the value of every `permit`, where it is never consulted.
    Never,
    /// They can, by this route.
    Required(Route),
}

/// Who is asked about a held call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) groups: BTreeMap<WrittenGroup, u32>,
    pub(crate) quorum: u32,
    pub(crate) deny_threshold: u32,
    pub(crate) expires_in_ms: u64,
    pub(crate) steps: Vec<Step>,
    pub(crate) fresh_auth_ms: Option<u64>,
    pub(crate) once_only: bool,
}

/// A group that may answer for all groups of its policy after a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) after_ms: u64,
    pub(crate) group: WrittenGroup,
    pub(crate) people: u32,
}

impl PolicyMeta {
    /// Whether a credential may present the user as acting in person under this permit.
    pub(crate) fn permits_impersonation(&self) -> bool {
        self.effect == PolicyEffect::Permit && self.annotations.contains_key(IMPERSONATION)
    }

    /// Whether the condition on the approval is generated.
    pub(crate) fn is_generated(&self) -> bool {
        self.annotations.get("approval").is_some_and(|approval| approval == REQUIRED)
    }

    /// Whether a refusal tells the agent the reason.
    pub(crate) fn tells_agent(&self) -> bool {
        self.annotations.contains_key(TELL)
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        self.annotations.get("reason").map(String::as_str)
    }

    /// What a refusal tells the agent to do instead, if the policy says so.
    pub(crate) fn feedback(&self) -> Option<&str> {
        self.annotations.get(FEEDBACK).map(String::as_str)
    }
}

/// Where a policy stands in its bundle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) file: &'a str,
    pub(crate) line: Option<u32>,
}

/// Reads what a policy's annotations say, or everything that is wrong with them.
pub(crate) fn read(
    policy: &Policy,
    place: Place<'_>,
    text: String,
) -> Result<PolicyMeta, Vec<BundleProblem>> {
    let annotations: BTreeMap<String, String> =
        policy.annotations().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let mut reader = Reader {
        place,
        id: annotations.get("id").cloned(),
        annotations: &annotations,
        problems: vec![],
    };
    let id = reader.id();
    reader.names();
    reader.reason();
    reader.impersonation(policy);
    reader.tell(policy);
    reader.feedback(policy);
    let mentions = Mentions::of(policy);
    reader.scope(policy, &mentions);
    let rule = reader.rule(policy, &mentions);
    let problems = reader.problems;
    if !problems.is_empty() {
        return Err(problems);
    }
    let effect = match policy.effect() {
        Effect::Permit => PolicyEffect::Permit,
        Effect::Forbid => PolicyEffect::Forbid,
    };
    let (file, line) = (place.file.to_owned(), place.line);
    Ok(PolicyMeta { id, effect, annotations, text, expanded: None, file, line, rule })
}

struct Reader<'a> {
    place: Place<'a>,
    id: Option<String>,
    annotations: &'a BTreeMap<String, String>,
    problems: Vec<BundleProblem>,
}

impl Reader<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }

    fn problem(&mut self, severity: Severity, message: impl Into<String>, help: &str) {
        self.problems.push(BundleProblem {
            file: self.place.file.to_owned(),
            line: self.place.line,
            policy: self.id.clone(),
            severity,
            message: message.into(),
            help: Some(help.to_owned()),
        });
    }

    fn error(&mut self, message: impl Into<String>, help: &str) {
        self.problem(Severity::Error, message, help);
    }

    fn id(&mut self) -> String {
        let id = self.get("id").unwrap_or_default().to_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if id.is_empty() {
            self.error("the policy has no `@id`", "write `@id(\"what-it-does\")` above it");
        } else if id.len() > ID_LENGTH_MAX || !id.chars().all(plain) {
            self.error(
                format!("`@id` must be 1 to {ID_LENGTH_MAX} letters, digits, `.`, `_` and `-`"),
                "choose a short name that says what the policy does",
            );
        }
        id
    }

    fn names(&mut self) {
        let unknown: Vec<String> = self
            .annotations
            .keys()
            .filter(|name| {
                let mut known = GENERAL.iter().chain(&ROUTING);
                !known.any(|one| one == name) && !name.starts_with("x_")
            })
            .cloned()
            .collect();
        for name in unknown {
            let known: Vec<String> =
                GENERAL.iter().chain(&ROUTING).map(|name| format!("@{name}")).collect();
            let help = format!("known are {}; start your own with `x_`", known.join(", "));
            self.error(format!("the annotation `@{name}` means nothing here"), &help);
        }
    }

    fn reason(&mut self) {
        if self.get("reason").is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
            self.error(
                format!("`@reason` is longer than {REASON_BYTES_MAX} bytes"),
                "say it in a sentence",
            );
        }
    }

    /// Only a `forbid` on tool calls refuses one, and without a reason there is nothing to tell.
    fn tell(&mut self, policy: &Policy) {
        let Some(whom) = self.get(TELL).map(str::to_owned) else { return };
        if whom != "agent" {
            let message = format!("`@{TELL}` can only be `agent`, not `{whom}`");
            self.error(message, "leave it out where agents may not read the reason");
        }
        let refuses_calls =
            policy.effect() == Effect::Forbid && governs_calls(&policy.action_constraint());
        if !refuses_calls {
            let message = format!("`@{TELL}` stands on a policy that cannot refuse a call");
            self.error(message, "only a `forbid` on tool calls has a reason for agents");
        } else if self.get("reason").is_none_or(|reason| reason.trim().is_empty()) {
            self.error(
                format!("`@{TELL}` stands on a policy without a `@reason`"),
                "add the `@reason` that the agent is to read",
            );
        }
    }

    /// Only a `forbid` on tool calls refuses one.
    fn feedback(&mut self, policy: &Policy) {
        let Some(length) = self.get(FEEDBACK).map(|text| text.trim().len()) else { return };
        if policy.effect() != Effect::Forbid || !governs_calls(&policy.action_constraint()) {
            let message = format!("`@{FEEDBACK}` stands on a policy that cannot refuse a call");
            self.error(message, "only a `forbid` on tool calls tells agents what to do instead");
        } else if !(1..=REASON_BYTES_MAX).contains(&length) {
            let message = format!("`@{FEEDBACK}` must have 1 to {REASON_BYTES_MAX} bytes");
            self.error(message, "say in a sentence what the agent is to do instead");
        }
    }

    /// Only a permit can have it, with a single value.
    fn impersonation(&mut self, policy: &Policy) {
        let said = self.get(IMPERSONATION);
        if said.is_some_and(|said| said != "permitted" || policy.effect() != Effect::Permit) {
            self.error(
                format!("`@{IMPERSONATION}` is said by a `permit`, and says `permitted`"),
                "take it out, or fix it",
            );
        }
    }

    /// What a policy's scope must and must not say.
    fn scope(&mut self, policy: &Policy, mentions: &Mentions) {
        if policy.effect() != Effect::Permit {
            return;
        }
        match policy.action_constraint() {
            ActionConstraint::Any => self.error(
                "a `permit` must name its actions: one for every action would also grant approving, viewing and lowering modes",
                "name a `tier_*` group, a tool, or the actions meant",
            ),
            ActionConstraint::Eq(action) => self.permitted_actions(mentions, &[action]),
            ActionConstraint::In(actions) => self.permitted_actions(mentions, &actions),
        }
    }

    fn permitted_actions(&mut self, mentions: &Mentions, actions: &[EntityUid]) {
        for name in actions.iter().map(|action| action.id().unescaped().to_owned()) {
            if !mentions.target && (name == "lower_mode" || name.ends_with("#lower")) {
                self.problem(
                    Severity::Warning,
                    format!("a `permit` for `{name}` does not say to which mode, so every gate is avoided"),
                    "compare `context.mode_target` in its condition",
                );
            }
            if name.starts_with("cap_") || name == "call_tool" {
                self.problem(
                    Severity::Warning,
                    format!(
                        "a `permit` names `{name}`, which also holds stronger tools than are meant"
                    ),
                    "name the `tier_*` groups in permits; `cap_*` and `call_tool` are for forbids",
                );
            }
        }
    }

    fn rule(&mut self, policy: &Policy, mentions: &Mentions) -> ApprovalRule {
        let governs_calls = governs_calls(&policy.action_constraint());
        let routed: Vec<&str> =
            ROUTING.into_iter().filter(|name| self.annotations.contains_key(*name)).collect();
        if policy.effect() == Effect::Permit || !governs_calls {
            if let Some(name) = routed.first() {
                self.error(
                    format!("`@{name}` stands on a policy that cannot hold a call"),
                    "approvals are asked for by a `forbid` on tool calls",
                );
            }
            return ApprovalRule::Never;
        }
        match self.get("approval") {
            Some(kind @ (REQUIRED | CUSTOM)) => {
                let is_custom = kind == CUSTOM;
                let route = self.route();
                self.condition(policy, mentions, is_custom, route.as_ref());
                route.map_or(ApprovalRule::Never, ApprovalRule::Required)
            }
            Some("never") => {
                if let Some(name) = routed.iter().find(|name| **name != "approval") {
                    self.error(
                        format!("`@{name}` means nothing beside `@approval(\"never\")`"),
                        "remove it",
                    );
                }
                ApprovalRule::Never
            }
            Some(other) => {
                let message =
                    format!("`@approval` is `required`, `custom` or `never`, not `{other}`");
                self.error(message, "say whether people can set this `forbid` aside");
                ApprovalRule::Never
            }
            None => {
                self.error(
                    "the `forbid` has no `@approval`",
                    "say `@approval(\"never\")`, or `@approval(\"required\")` with whom to ask",
                );
                ApprovalRule::Never
            }
        }
    }

    fn route(&mut self) -> Option<Route> {
        let groups = self.groups();
        let quorum = self.number("quorum");
        let deny_threshold = self.number("deny_threshold");
        let expires = self.length("expires", EXPIRES_IN_MS_MIN, EXPIRES_IN_MS_MAX);
        let fresh_auth = self.length("fresh_auth", FRESH_AUTH_MS_MIN, EXPIRES_IN_MS_DEFAULT);
        let once_only = self.flag("once_only", "leave it out where a standing grant may count");
        self.flag(
            "four_eyes",
            "the owner of the caller and the user it acts for never count as approvers",
        );
        let steps = self.steps();
        let expires_in_ms = expires?.unwrap_or(EXPIRES_IN_MS_DEFAULT);
        let steps = self.steps_in_time(steps?, groups.as_ref(), expires_in_ms)?;
        let (groups, quorum) = (groups?, quorum?.unwrap_or(1));
        let quorum = groups.values().copied().fold(quorum, u32::max);
        Some(Route {
            groups,
            quorum,
            deny_threshold: deny_threshold?.unwrap_or(1),
            expires_in_ms,
            steps,
            fresh_auth_ms: fresh_auth?,
            once_only: once_only?,
        })
    }

    /// `security`, or `security:2, legal`: the number of distinct people needed of each group, 1 by default.
    fn groups(&mut self) -> Option<BTreeMap<WrittenGroup, u32>> {
        let help = "name groups of the call's tenant, such as `@approver_group(\"security\")` or `(\"security:2, legal\")`, or of another one: `globex/security`, `{input.recipient}/security`";
        let Some(text) = self.get("approver_group").map(str::to_owned) else {
            self.error("`@approval(\"required\")` does not say whom to ask", help);
            return None;
        };
        let groups: Option<BTreeMap<WrittenGroup, u32>> =
            text.split(',').map(|part| group_of(part.trim())).collect();
        let groups = groups
            .filter(|groups| groups.len() <= GROUPS_MAX && groups.len() == text.split(',').count());
        if groups.is_none() {
            self.error(format!("`@approver_group` cannot be read: `{text}`"), help);
        }
        groups
    }

    /// A number of people; `None` when it cannot be read, `Some(None)` when the annotation is absent.
    fn number(&mut self, name: &str) -> Option<Option<u32>> {
        let Some(text) = self.get(name).map(str::to_owned) else { return Some(None) };
        let number = text.parse::<u32>().ok().filter(|number| (1..=QUORUM_MAX).contains(number));
        if number.is_none() {
            self.error(
                format!("`@{name}` cannot be read: `{text}`"),
                "write a number from 1 to 20",
            );
        }
        number.map(Some)
    }

    /// A length of time; `None` when it cannot be read, `Some(None)` when the annotation is absent.
    fn length(&mut self, name: &str, least: u64, most: u64) -> Option<Option<u64>> {
        let Some(text) = self.get(name).map(str::to_owned) else { return Some(None) };
        let length = duration_ms(&text).filter(|ms| (least..=most).contains(ms));
        if length.is_none() {
            let help = format!(
                "write `90s`, `30m`, `4h` or `7d`; at least {}, at most {}",
                in_words(least),
                in_words(most)
            );
            self.error(format!("`@{name}` cannot be read: `{text}`"), &help);
        }
        length.map(Some)
    }

    /// An annotation that is present or absent; `None` when it has a wrong value.
    fn flag(&mut self, name: &str, help: &str) -> Option<bool> {
        match self.get(name) {
            None => Some(false),
            Some("true") => Some(true),
            Some(_) => {
                self.error(format!("`@{name}` can only be `true`"), help);
                None
            }
        }
    }

    /// `2h: managers, 8h: directors:2`: the delay, the group and the number of its people.
    fn steps(&mut self) -> Option<Vec<Step>> {
        let Some(text) = self.get("escalate").map(str::to_owned) else { return Some(Vec::new()) };
        let steps: Option<Vec<Step>> = text.split(',').map(|part| step_of(part.trim())).collect();
        let steps = steps.filter(|steps| steps.len() <= ESCALATIONS_MAX);
        if steps.is_none() {
            self.error(
                format!("`@escalate` cannot be read: `{text}`"),
                "write after how long whom to ask besides, such as `@escalate(\"2h: managers, 8h: directors:2\")`; at most 8 steps",
            );
        }
        steps
    }

    /// The steps in order, if each is reachable and asks a new group.
    fn steps_in_time(
        &mut self,
        mut steps: Vec<Step>,
        groups: Option<&BTreeMap<WrittenGroup, u32>>,
        expires_in_ms: u64,
    ) -> Option<Vec<Step>> {
        steps.sort_by_key(|step| step.after_ms);
        let late = steps.iter().find(|step| step.after_ms >= expires_in_ms).cloned();
        let mut seen: BTreeSet<&WrittenGroup> =
            groups.into_iter().flat_map(BTreeMap::keys).collect();
        let again = steps.iter().find(|step| !seen.insert(&step.group)).cloned();
        if let Some(step) = &late {
            self.error(
                format!("`@escalate` asks `{}` only when the approval has expired", step.group),
                "escalate earlier, or give the approval more time with `@expires`",
            );
        }
        if let Some(step) = &again {
            self.error(
                format!("`@escalate` asks `{}`, which is asked before that already", step.group),
                "escalate to another group, and to each only once",
            );
        }
        let strange = steps.iter().find(|step| {
            groups.is_some_and(|groups| groups.keys().all(|group| group.of != step.group.of))
        });
        if let Some(step) = strange.cloned() {
            self.error(
                format!(
                    "`@escalate` asks `{}`, and no other group of its tenant is asked",
                    step.group
                ),
                "a group answers only for groups of its own tenant",
            );
            return None;
        }
        (late.is_none() && again.is_none()).then_some(steps)
    }
}

fn step_of(part: &str) -> Option<Step> {
    let (after, whom) = part.split_once(':')?;
    let after_ms = duration_ms(after.trim()).filter(|ms| *ms >= EXPIRES_IN_MS_MIN)?;
    let (group, people) = group_of(whom.trim())?;
    Some(Step { after_ms, group, people })
}

fn group_of(part: &str) -> Option<(WrittenGroup, u32)> {
    let (name, count) = part.split_once(':').unwrap_or((part, "1"));
    let count = count.parse::<u32>().ok().filter(|count| (1..=QUORUM_MAX).contains(count))?;
    WrittenGroup::parse(name).map(|group| (group, count))
}

/// Whether a policy with this constraint can apply to a tool call, and not only to reviewing, arranging and lowering.
fn governs_calls(constraint: &ActionConstraint) -> bool {
    let about_calls = |action: &EntityUid| {
        let name = action.id().unescaped();
        let of_people = actions::REVIEWING.iter().chain(&actions::MANAGING);
        !of_people.chain(&["review", "manage", "lower_mode"]).any(|known| *known == name)
            && !name.ends_with("#lower")
    };
    match constraint {
        ActionConstraint::Any => true,
        ActionConstraint::Eq(action) => about_calls(action),
        ActionConstraint::In(actions) => actions.iter().any(about_calls),
    }
}
