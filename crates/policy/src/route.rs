//! Whom a gate asks, as its author writes it: a group of the call's own tenant, of another tenant, or of the one that an argument names.
//!
//! Owns the text form of such a group, and which group it means for one call. Invariant: a tenant that is not configured, or that has no
//! such group, is never asked; if an argument names no existing group, the call is refused.

use std::fmt;

use placet_types::{
    approval::ApproverGroup,
    contract::Capability,
    directory::Directory,
    ids::{GroupId, TenantId},
};
use serde_json::{Map, Value};

use crate::{
    facts::Facts,
    input::{Field, InputType},
};

const FIELD_BYTES_MAX: usize = 64;

/// A group as it is written in an annotation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WrittenGroup {
    pub(crate) of: WrittenTenant,
    pub(crate) group: GroupId,
}

/// Whose group it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WrittenTenant {
    /// Of the tenant of the call: `approvers`.
    Own,
    /// Of this tenant: `globex/approvers`.
    Named(TenantId),
    /// Of the tenant that an argument names: `{input.recipient}/approvers`.
    Input(String),
}

impl WrittenGroup {
    /// Reads `group`, `tenant/group` or `{input.field}/group`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let Some((tenant, group)) = text.rsplit_once('/') else {
            return Some(Self { of: WrittenTenant::Own, group: GroupId::new(text).ok()? });
        };
        let group = GroupId::new(group).ok()?;
        let field = tenant.strip_prefix("{input.").and_then(|rest| rest.strip_suffix('}'));
        let of = match field {
            Some(field) if is_field(field) => WrittenTenant::Input(field.to_owned()),
            Some(_) => return None,
            None => WrittenTenant::Named(TenantId::new(tenant).ok()?),
        };
        Some(Self { of, group })
    }

    /// The group that it is for a call.
    ///
    /// # Errors
    /// The reason for the audit, when there is nobody to ask.
    pub(crate) fn resolve(
        &self,
        facts: &Facts<'_>,
        directory: &Directory,
    ) -> Result<ApproverGroup, String> {
        let nobody = |why: &str| format!("`{self}` asks nobody: {why}");
        let tenant = match &self.of {
            WrittenTenant::Own => return Ok(ApproverGroup::own(self.group.clone())),
            WrittenTenant::Named(tenant) => tenant.clone(),
            WrittenTenant::Input(field) => named_by(facts, field).map_err(nobody)?,
        };
        let own = facts.chain.tenant();
        if !has_group(directory, &tenant, &self.group) {
            return Err(nobody("there is no such tenant, or its directory has no such group"));
        }
        Ok(ApproverGroup::of(own, tenant, self.group.clone()))
    }

    /// Why it cannot be written in any policy, whatever is called.
    pub(crate) fn flaw(&self, directory: &Directory) -> Option<String> {
        let WrittenTenant::Named(tenant) = &self.of else { return None };
        let group = &self.group;
        (!has_group(directory, tenant, group)).then(|| {
            format!("`{self}` asks a group that the directory of tenant `{tenant}` does not have")
        })
    }

    /// Why it cannot be written in a policy that can hold this tool.
    pub(crate) fn flaw_for(
        &self,
        capability: &Capability,
        input: Option<&InputType>,
    ) -> Option<String> {
        let WrittenTenant::Input(name) = &self.of else { return None };
        // A tool whose schema cannot be enforced is never called.
        let Ok(arguments) = &capability.arguments else { return None };
        let tool = &capability.id;
        let is_text = match input {
            Some(InputType::Record(fields)) => {
                fields.get(name) == Some(&Field { of: InputType::Text, required: true })
            }
            Some(_) | None => false,
        };
        if !is_text {
            return Some(format!(
                "`{self}` needs an argument `{name}` that `{tool}` does not require as a text"
            ));
        }
        let sample = Value::Object(Map::from_iter([(name.clone(), Value::from("x"))]));
        let hidden = arguments.sensitive_pointers(&sample).contains(&format!("/{name}"));
        hidden.then(|| format!("`{self}` would show `{name}` of `{tool}`, which is sensitive"))
    }
}

/// Groups as they are written, each with the group it means for a call; those that cannot be resolved are left out.
pub(crate) fn resolved(
    written: &[WrittenGroup],
    facts: &Facts<'_>,
    directory: &Directory,
) -> Vec<(String, ApproverGroup)> {
    let known = written.iter().filter_map(|one| {
        let group = one.resolve(facts, directory).ok()?;
        Some((one.to_string(), group))
    });
    known.collect()
}

/// The tenant that an argument names.
fn named_by(facts: &Facts<'_>, field: &str) -> Result<TenantId, &'static str> {
    let hidden =
        facts.capability.arguments.as_ref().is_ok_and(|schema| {
            schema.sensitive_pointers(facts.args).contains(&format!("/{field}"))
        });
    if hidden {
        return Err("the argument is sensitive");
    }
    let text = facts.args.get(field).and_then(Value::as_str).ok_or("the argument is no text")?;
    TenantId::new(text).map_err(|_unfit| "the argument names no tenant")
}

/// Whether a tenant lets this group be asked: its directory declares it.
pub(crate) fn has_group(directory: &Directory, tenant: &TenantId, group: &GroupId) -> bool {
    directory.tenants.get(tenant).is_some_and(|entry| entry.groups.contains_key(group))
}

fn is_field(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.len() <= FIELD_BYTES_MAX && text.chars().all(word)
}

impl fmt::Display for WrittenGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            WrittenTenant::Own => self.group.fmt(f),
            WrittenTenant::Named(tenant) => write!(f, "{tenant}/{}", self.group),
            WrittenTenant::Input(field) => write!(f, "{{input.{field}}}/{}", self.group),
        }
    }
}

#[cfg(test)]
mod tests;
