//! Whose calls a policy can be about, before there is a call.
//!
//! Owns reading a policy's scope and conditions for what they say of the principal: its id, its tenant, its class. Whatever else they ask
//! is unknown. Invariant: a caller is left out only where the policy cannot apply to it, whatever the call.

use placet_types::{
    directory::AgentEntry,
    ids::{PrincipalId, TenantId},
};
use serde_json::Value;

/// A principal whose call is evaluated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) tenant: &'a TenantId,
    /// Which agent; absent: any user of the tenant, for whom an agent calls.
    pub(super) agent: Option<(&'a PrincipalId, &'a AgentEntry)>,
}

/// Whether a policy, in its JSON form, can apply to a principal.
pub(super) fn can_apply(policy: &Value, caller: &Caller<'_>) -> bool {
    let in_scope = policy.get("principal").and_then(|scope| caller.is_in_scope(scope));
    let mut conditions = policy.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let fails = |condition: &Value| {
        let is_unless = condition.get("kind").and_then(Value::as_str) == Some("unless");
        condition.get("body").and_then(|body| caller.truth(body)) == Some(is_unless)
    };
    in_scope != Some(false) && !conditions.any(fails)
}

/// What a part of an expression stands for.
enum Term<'a> {
    Principal,
    /// Of the principal, or of the call, which is the same.
    Tenant,
    /// Of the calling agent.
    Owner,
    /// The user whom the call is made for.
    User,
    Entity {
        type_name: &'a str,
        id: &'a str,
    },
}

impl<'a> Term<'a> {
    fn of(expression: &'a Value) -> Option<Self> {
        let is_principal =
            |one: &Value| one.get("Var").and_then(Value::as_str) == Some("principal");
        if is_principal(expression) {
            return Some(Self::Principal);
        }
        if let Some(access) = expression.get(".") {
            let (of, attribute) = (access.get("left")?, access.get("attr")?.as_str()?);
            let is_request = of.pointer("/./attr").and_then(Value::as_str) == Some("req")
                && of.pointer("/./left/Var").and_then(Value::as_str) == Some("context");
            return match attribute {
                "tenant" if is_request || is_principal(of) => Some(Self::Tenant),
                "owner" if is_principal(of) => Some(Self::Owner),
                "on_behalf_of" if is_request => Some(Self::User),
                _ => None,
            };
        }
        Self::entity(expression.pointer("/Value/__entity")?)
    }

    fn entity(named: &'a Value) -> Option<Self> {
        let type_name = named.get("type")?.as_str()?.rsplit("::").next()?;
        Some(Self::Entity { type_name, id: named.get("id")?.as_str()? })
    }
}

impl Caller<'_> {
    /// `None`: it depends on more than the principal.
    fn is_in_scope(&self, scope: &Value) -> Option<bool> {
        match scope.get("op")?.as_str()? {
            "==" => self.compare(&Term::Principal, &Term::entity(scope.get("entity")?)?, true),
            "in" => self.compare(&Term::Principal, &Term::entity(scope.get("entity")?)?, false),
            "is" => {
                let is_kind = self.is_kind(scope.get("entity_type")?.as_str()?);
                let within = scope.pointer("/in/entity").and_then(Term::entity);
                let is_within = within.map(|named| self.compare(&Term::Principal, &named, false));
                both(is_kind, is_within.unwrap_or(Some(true)))
            }
            _ => None,
        }
    }

    /// Whether an expression is true for the principal; `None`: it depends on more.
    fn truth(&self, expression: &Value) -> Option<bool> {
        let (operator, of) = expression.as_object()?.iter().next()?;
        let side = |name: &str| of.get(name);
        let truth = |name: &str| side(name).and_then(|one| self.truth(one));
        let not = |known: Option<bool>| known.map(std::ops::Not::not);
        let related = |right: &Value, is_exact: bool| {
            let left = Term::of(side("left")?)?;
            match right.get("Set").and_then(Value::as_array) {
                Some(items) => self.is_one_of(&left, items, is_exact),
                None => self.compare(&left, &Term::of(right)?, is_exact),
            }
        };
        match operator.as_str() {
            "Value" => of.as_bool(),
            "!" => not(truth("arg")),
            "&&" => both(truth("left"), truth("right")),
            "||" => not(both(not(truth("left")), not(truth("right")))),
            "==" => related(side("right")?, true),
            "!=" => not(related(side("right")?, true)),
            "in" => related(side("right")?, false),
            "if-then-else" => match truth("if") {
                Some(true) => truth("then"),
                Some(false) => truth("else"),
                None => truth("then").filter(|then| truth("else") == Some(*then)),
            },
            "contains" => {
                let items = side("left")?.get("Set")?.as_array()?;
                self.is_one_of(&Term::of(side("right")?)?, items, true)
            }
            "is" => match Term::of(side("left")?)? {
                Term::Principal => {
                    let is_within = side("in").map_or(Some(true), |group| related(group, false));
                    both(self.is_kind(side("entity_type")?.as_str()?), is_within)
                }
                Term::Tenant | Term::Owner | Term::User | Term::Entity { .. } => None,
            },
            _ => None,
        }
    }

    fn is_one_of(&self, term: &Term<'_>, items: &[Value], is_exact: bool) -> Option<bool> {
        let compared = items.iter().map(|item| self.compare(term, &Term::of(item)?, is_exact));
        let compared: Vec<Option<bool>> = compared.collect();
        let is_none = compared.iter().all(|one| *one == Some(false));
        if is_none { Some(false) } else { compared.into_iter().flatten().find(|is| *is) }
    }

    /// Whether both are the same, or one is in the other.
    fn compare(&self, left: &Term<'_>, right: &Term<'_>, is_exact: bool) -> Option<bool> {
        let (term, type_name, id) = match (left, right) {
            (Term::Entity { type_name, id }, term) if is_exact => (term, *type_name, *id),
            (term, Term::Entity { type_name, id }) => (term, *type_name, *id),
            _ => return None,
        };
        let own_tenant = id == self.tenant.as_str();
        let name = id.split_once('/').filter(|(tenant, _)| *tenant == self.tenant.as_str());
        let name = name.map(|(_, name)| name);
        match (term, type_name, self.agent) {
            (Term::Tenant, "Tenant", _) => Some(own_tenant),
            (Term::Owner, "User", Some((_, entry))) => Some(name == Some(entry.owner.as_str())),
            (Term::Principal, "Tenant", _) => Some(own_tenant && !is_exact),
            // The directory does not say of which of these kinds it is.
            (Term::Principal, "Agent" | "Service" | "Automation", Some((agent, _))) => {
                (name != Some(agent.as_str())).then_some(false)
            }
            (Term::Principal, "AgentClass", Some((_, entry))) if !is_exact => {
                Some(entry.classes.iter().any(|class| name == Some(class.as_str())))
            }
            // A user of the tenant, or one of its groups, may be the one.
            (Term::Principal, "User" | "Group", None) | (Term::User, "User" | "Group", _) => {
                name.is_none().then_some(false)
            }
            (Term::Principal, "Agent" | "Service" | "Automation" | "AgentClass", None)
            | (Term::Principal, "User", Some(_)) => Some(false),
            _ => None,
        }
    }

    fn is_kind(&self, type_name: &str) -> Option<bool> {
        match (type_name.rsplit("::").next()?, self.agent) {
            ("User", agent) => Some(agent.is_none()),
            ("Agent" | "Service" | "Automation", None) => Some(false),
            _ => None,
        }
    }
}

fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        (None, _) | (_, None) => None,
    }
}
