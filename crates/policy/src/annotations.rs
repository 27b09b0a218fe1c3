//! One policy with what its annotations say, and the rules a policy keeps to beyond Cedar's own.
//!
//! Owns the vocabulary of annotations: the condition enforces, the annotation routes. Invariant: whatever an
//! annotation cannot mean is refused when the bundle is read, never ignored when a call is decided.

use std::collections::BTreeMap;

use cedar_policy::{ActionConstraint, Effect, EntityUid, Policy};
use placet_types::ids::GroupId;

use crate::{
    bundle::{BundleProblem, Severity},
    verdict::PolicyEffect,
};

/// How long an approval lives when nothing else is said.
pub(crate) const EXPIRES_IN_MS_DEFAULT: u64 = 86_400_000;
/// The longest an approval may live.
pub(crate) const EXPIRES_IN_MS_MAX: u64 = 7 * EXPIRES_IN_MS_DEFAULT;
const EXPIRES_IN_MS_MIN: u64 = 1_000;
const QUORUM_MAX: u32 = 20;
const GROUPS_MAX: usize = 20;
const ID_LENGTH_MAX: usize = 128;
const REASON_BYTES_MAX: usize = 1_024;

const KNOWN: [&str; 8] =
    ["id", "approval", "approver_group", "quorum", "expires", "four_eyes", "reason", "description"];

/// A policy of a bundle, as far as it matters outside Cedar.
#[derive(Debug, Clone)]
pub(crate) struct PolicyMeta {
    pub(crate) id: String,
    pub(crate) effect: PolicyEffect,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) text: String,
    pub(crate) file: String,
    pub(crate) line: Option<u32>,
    pub(crate) rule: ApprovalRule,
}

/// Whether people can set a `forbid` aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApprovalRule {
    /// They cannot; also said of every `permit`, where it is never asked.
    Never,
    /// They can, these.
    Required(Route),
}

/// Whom a held call is put to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) groups: BTreeMap<GroupId, u32>,
    pub(crate) quorum: u32,
    pub(crate) expires_in_ms: u64,
}

impl PolicyMeta {
    pub(crate) fn reason(&self) -> Option<&str> {
        self.annotations.get("reason").map(String::as_str)
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
    reader.scope(policy);
    let rule = reader.rule(policy);
    let problems = reader.problems;
    if !problems.is_empty() {
        return Err(problems);
    }
    let effect = match policy.effect() {
        Effect::Permit => PolicyEffect::Permit,
        Effect::Forbid => PolicyEffect::Forbid,
    };
    let (file, line) = (place.file.to_owned(), place.line);
    Ok(PolicyMeta { id, effect, annotations, text, file, line, rule })
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
            .filter(|name| !KNOWN.contains(&name.as_str()) && !name.starts_with("x_"))
            .cloned()
            .collect();
        for name in unknown {
            self.error(
                format!("the annotation `@{name}` means nothing here"),
                "known are @id, @approval, @approver_group, @quorum, @expires, @four_eyes, @reason, @description; start your own with `x_`",
            );
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

    /// What a policy's scope must and must not say.
    fn scope(&mut self, policy: &Policy) {
        if policy.effect() != Effect::Permit {
            return;
        }
        match policy.action_constraint() {
            ActionConstraint::Any => self.error(
                "a `permit` must name its actions: one for every action would also grant approving, viewing and lowering modes",
                "name a `tier_*` group, a tool, or the actions meant",
            ),
            ActionConstraint::Eq(action) => self.permitted_actions(&[action]),
            ActionConstraint::In(actions) => self.permitted_actions(&actions),
        }
    }

    fn permitted_actions(&mut self, actions: &[EntityUid]) {
        for name in actions.iter().map(|action| action.id().unescaped().to_owned()) {
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

    fn rule(&mut self, policy: &Policy) -> ApprovalRule {
        let governs_calls = governs_calls(&policy.action_constraint());
        let routed: Vec<&str> = ["approval", "approver_group", "quorum", "expires", "four_eyes"]
            .into_iter()
            .filter(|name| self.annotations.contains_key(*name))
            .collect();
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
            Some("required") => self.route().map_or(ApprovalRule::Never, ApprovalRule::Required),
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
                let message = format!("`@approval` is `required` or `never`, not `{other}`");
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
        let quorum = self.quorum();
        let expires = self.expires();
        if self.get("four_eyes").is_some_and(|value| value != "true") {
            self.error(
                "`@four_eyes` can only be `true`",
                "the owner of the caller and the user it acts for never count as approvers",
            );
        }
        let (groups, quorum, expires_in_ms) = (groups?, quorum?, expires?);
        let quorum = groups.values().copied().fold(quorum, u32::max);
        Some(Route { groups, quorum, expires_in_ms })
    }

    /// `security`, or `security:2, legal`: of each group so many distinct people, one if nothing is said.
    fn groups(&mut self) -> Option<BTreeMap<GroupId, u32>> {
        let help = "name groups of the call's tenant, such as `@approver_group(\"security\")` or `(\"security:2, legal\")`";
        let Some(text) = self.get("approver_group").map(str::to_owned) else {
            self.error("`@approval(\"required\")` does not say whom to ask", help);
            return None;
        };
        let groups: Option<BTreeMap<GroupId, u32>> =
            text.split(',').map(|part| group_of(part.trim())).collect();
        let groups = groups
            .filter(|groups| groups.len() <= GROUPS_MAX && groups.len() == text.split(',').count());
        if groups.is_none() {
            self.error(format!("`@approver_group` cannot be read: `{text}`"), help);
        }
        groups
    }

    fn quorum(&mut self) -> Option<u32> {
        let Some(text) = self.get("quorum").map(str::to_owned) else { return Some(1) };
        let quorum = text.parse::<u32>().ok().filter(|quorum| (1..=QUORUM_MAX).contains(quorum));
        if quorum.is_none() {
            self.error(
                format!("`@quorum` cannot be read: `{text}`"),
                "write a number from 1 to 20",
            );
        }
        quorum
    }

    fn expires(&mut self) -> Option<u64> {
        let Some(text) = self.get("expires").map(str::to_owned) else {
            return Some(EXPIRES_IN_MS_DEFAULT);
        };
        let expires =
            duration_ms(&text).filter(|ms| (EXPIRES_IN_MS_MIN..=EXPIRES_IN_MS_MAX).contains(ms));
        if expires.is_none() {
            self.error(
                format!("`@expires` cannot be read: `{text}`"),
                "write `90s`, `30m`, `4h` or `7d`; at most 7 days",
            );
        }
        expires
    }
}

fn group_of(part: &str) -> Option<(GroupId, u32)> {
    let (name, count) = part.split_once(':').unwrap_or((part, "1"));
    let count = count.parse::<u32>().ok().filter(|count| *count <= QUORUM_MAX)?;
    GroupId::new(name).ok().map(|group| (group, count))
}

fn duration_ms(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let unit_ms: u64 = match unit {
        's' => 1_000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        _ => return None,
    };
    text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(unit_ms)
}

/// Whether a policy with this constraint can apply to a tool call, and not only to reviewing and lowering.
fn governs_calls(constraint: &ActionConstraint) -> bool {
    let about_calls = |action: &EntityUid| {
        let name = action.id().unescaped();
        !matches!(name, "review" | "approve" | "deny" | "view" | "lower_mode")
            && !name.ends_with("#lower")
    };
    match constraint {
        ActionConstraint::Any => true,
        ActionConstraint::Eq(action) => about_calls(action),
        ActionConstraint::In(actions) => actions.iter().any(about_calls),
    }
}
