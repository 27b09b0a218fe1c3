//! Typed Cedar entities for principals, tools and approvals.
//!
//! Owns which entities a request needs: with validation at level 2, those within reach of one query. Invariant: an unknown or
//! inactive principal is presented to policy as inactive, and the engine denies it whatever the bundle says.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use cedar_policy::{Entities, Entity, EntityAttrEvaluationError, EntityUid, RestrictedExpression};
use parking_lot::Mutex;
use placet_types::{
    approval::ApproverGroup,
    contract::{Capability, Contract, file::TenantsFile},
    directory::Directory,
    ids::{CapabilityId, GroupId, PrincipalId, TenantId},
    principal::{Principal, PrincipalChain, PrincipalKind},
    proof::{Proof, ShownClaims},
};

use crate::{
    approval::ApprovalRecord,
    context,
    decision::Link,
    facts::Facts,
    schema,
    vocabulary::{self, Vocabulary, count, datetime, flag, long, text, uids},
};

pub(crate) type EntityResult<T> = Result<T, EntityAttrEvaluationError>;

type Attrs = Vec<(&'static str, RestrictedExpression)>;

pub(crate) fn entity(
    uid: EntityUid,
    attrs: Attrs,
    parents: impl IntoIterator<Item = EntityUid>,
) -> EntityResult<Entity> {
    Entity::new_with_tags(
        uid,
        attrs.into_iter().map(|(name, value)| (name.to_owned(), value)),
        parents,
        [],
    )
}

fn leaf(uid: EntityUid) -> Entity {
    Entity::new_no_attrs(uid, HashSet::new())
}

/// The entities of a tool: itself, its adapter, and its two actions with the groups that hold them.
#[derive(Debug, Clone)]
pub(crate) struct ToolEntities {
    pub(crate) tool: Entity,
    pub(crate) adapter: Entity,
    pub(crate) call: Entity,
    pub(crate) lower: Entity,
}

impl ToolEntities {
    pub(crate) fn of(
        names: &Vocabulary,
        contract: &Contract,
        capability: &Capability,
    ) -> EntityResult<Self> {
        let adapter_uid = vocabulary::uid(&names.adapter, contract.adapter.as_str());
        let environment = vocabulary::uid(&names.environment, contract.environment.as_str());
        let data_class = vocabulary::uid(&names.data_class, contract.data_class.as_str());
        let (all_tenants, tenants) = match &contract.tenants {
            TenantsFile::All(_) => (true, vec![]),
            TenantsFile::Only(tenants) => {
                (false, tenants.iter().map(|tenant| names.tenant_uid(tenant)).collect())
            }
        };
        let adapter = entity(
            adapter_uid.clone(),
            vec![
                ("environment", RestrictedExpression::new_entity_uid(environment)),
                ("data_class", RestrictedExpression::new_entity_uid(data_class)),
                ("all_tenants", flag(all_tenants)),
                ("tenants", uids(tenants)),
            ],
            [],
        )?;
        let tool = entity(
            names.tool_uid(&capability.id),
            vec![
                ("adapter", RestrictedExpression::new_entity_uid(adapter_uid.clone())),
                ("contract_digest", text(contract.digest.to_string())),
                ("pinned", flag(capability.pin.is_some())),
                ("enabled", flag(capability.enabled)),
                ("writes", flag(capability.is_write_class())),
                ("cost_cents", count(capability.cost_cents)),
            ],
            [adapter_uid],
        )?;
        let mut groups: HashSet<EntityUid> =
            schema::parents(capability).iter().map(|group| names.action_uid(group)).collect();
        groups.insert(names.action_uid("call_tool"));
        let call = Entity::new_no_attrs(names.action_uid(&capability.id.to_string()), groups);
        let lower = Entity::new_no_attrs(
            names.action_uid(&vocabulary::lower_action(&capability.id)),
            HashSet::from([names.action_uid("lower_mode")]),
        );
        Ok(Self { tool, adapter, call, lower })
    }
}

/// What the entities of a call are made from, with a bundle, its contracts and its directory.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Facets {
    capability: CapabilityId,
    chain: PrincipalChain,
    user_groups: BTreeSet<GroupId>,
    break_glass: Option<PrincipalId>,
    actor: ShownClaims,
    user: Option<ShownClaims>,
}

impl Facets {
    fn of(facts: &Facts<'_>) -> Self {
        Self {
            capability: facts.capability.id.clone(),
            chain: facts.chain.clone(),
            user_groups: facts.user_groups.clone(),
            break_glass: context::in_force(facts).map(|record| record.actor.clone()),
            actor: facts.proof.actor.claims.clone(),
            user: facts.proof.user.as_ref().map(|proof| proof.claims.clone()),
        }
    }
}

/// A cache of entities, by everything that they depend on; for one bundle, with its contracts and its directory.
#[derive(Clone, Default)]
pub(crate) struct KnownEntities(Arc<Mutex<HashMap<Facets, Arc<Entities>>>>);

/// The most that are cached; beyond that, all are dropped.
const KNOWN_MAX: usize = 2_048;

impl KnownEntities {
    /// Those of a call, made by `make` where they are not known.
    pub(crate) fn of<E>(
        &self,
        facts: &Facts<'_>,
        make: impl FnOnce() -> Result<Entities, E>,
    ) -> Result<Arc<Entities>, E> {
        let facets = Facets::of(facts);
        if let Some(known) = self.0.lock().get(&facets) {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(make()?);
        let mut known = self.0.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(facets, Arc::clone(&made));
        Ok(made)
    }
}

/// The people and workloads that the policies of a call may look at: its principals, and who broke the glass, each once.
pub(crate) fn people(
    names: &Vocabulary,
    directory: &Directory,
    facts: &Facts<'_>,
) -> EntityResult<Vec<Entity>> {
    let mut known = principals(names, directory, facts.chain, facts.user_groups)?;
    if let Some(record) = context::in_force(facts) {
        let tenant = facts.chain.tenant();
        let made = person(names, directory, tenant, &record.actor, &BTreeSet::new())?;
        let missing = made.into_iter().filter(|one| known.iter().all(|k| k.uid() != one.uid()));
        let missing: Vec<Entity> = missing.collect();
        known.extend(missing);
    }
    let proofs = [(Link::Actor, Some(&facts.proof.actor)), (Link::User, facts.proof.user.as_ref())];
    for (link, proof) in proofs {
        known.extend(proof.map(|proof| claims(names, link, proof)).transpose()?);
    }
    Ok(known)
}

/// The claims of a token, as tags. They belong to a call, so they do not affect which tools exist for somebody.
fn claims(names: &Vocabulary, link: Link, proof: &Proof) -> EntityResult<Entity> {
    let tags = proof.claims.iter().map(|(name, texts)| {
        let texts = texts.iter().map(|one| text(one.clone()));
        (name.clone(), RestrictedExpression::new_set(texts))
    });
    Entity::new_with_tags(names.claims_uid(link), [], [], tags)
}

/// The principals of a call as entities, each once: the actor, its owner, and the user it acts for.
pub(crate) fn principals(
    names: &Vocabulary,
    directory: &Directory,
    chain: &PrincipalChain,
    user_groups: &BTreeSet<GroupId>,
) -> EntityResult<Vec<Entity>> {
    let mut found: BTreeMap<EntityUid, Entity> = BTreeMap::new();
    let mut add = |made: Vec<Entity>| {
        for one in made {
            found.entry(one.uid()).or_insert(one);
        }
    };
    // The user first: the claims of the user's own token count wherever the same person appears again.
    if let Some(user) = &chain.on_behalf_of {
        add(person(names, directory, &user.tenant_id, &user.id, user_groups)?);
    }
    let tenant = &chain.actor.tenant_id;
    match chain.actor.kind {
        PrincipalKind::User => {
            add(person(names, directory, tenant, &chain.actor.id, &BTreeSet::new())?);
        }
        PrincipalKind::Agent | PrincipalKind::Service | PrincipalKind::Automation => {
            if let Some(entry) = directory.agent(tenant, &chain.actor.id) {
                add(person(names, directory, tenant, &entry.owner, &BTreeSet::new())?);
            }
            add(workload(names, directory, &chain.actor)?);
        }
    }
    Ok(found.into_values().collect())
}

fn workload(
    names: &Vocabulary,
    directory: &Directory,
    actor: &Principal,
) -> EntityResult<Vec<Entity>> {
    let tenant = &actor.tenant_id;
    let entry = directory.agent(tenant, &actor.id);
    let owner =
        entry.map_or_else(|| names.nobody(tenant), |entry| names.user_uid(tenant, &entry.owner));
    let classes: Vec<EntityUid> = entry
        .into_iter()
        .flat_map(|entry| &entry.classes)
        .map(|class| names.class_uid(tenant, class))
        .collect();
    let lifecycle = vocabulary::uid(&names.lifecycle, directory.lifecycle(tenant, &actor.id));
    let role = entry.and_then(|entry| entry.classes.first());
    let role = role.map(|role| ("role", text(role.as_str())));
    let tenant_uid = names.tenant_uid(tenant);
    let made = entity(
        names.principal_uid(actor),
        vec![
            ("tenant", RestrictedExpression::new_entity_uid(tenant_uid.clone())),
            ("owner", RestrictedExpression::new_entity_uid(owner)),
            ("active", flag(entry.is_some_and(|entry| entry.active))),
            ("lifecycle", RestrictedExpression::new_entity_uid(lifecycle)),
        ]
        .into_iter()
        .chain(role)
        .collect(),
        classes.iter().cloned().chain([tenant_uid.clone()]),
    )?;
    Ok(classes.into_iter().map(leaf).chain([leaf(tenant_uid), made]).collect())
}

/// A person with the groups of the directory and those of verified claims.
pub(crate) fn person(
    names: &Vocabulary,
    directory: &Directory,
    tenant: &TenantId,
    id: &PrincipalId,
    claimed: &BTreeSet<GroupId>,
) -> EntityResult<Vec<Entity>> {
    let listed = directory.user(tenant, id);
    let groups = listed.into_iter().flat_map(|user| &user.groups).chain(claimed).collect();
    person_in(names, directory, tenant, id, &groups)
}

/// A person in exactly these groups.
pub(crate) fn person_in(
    names: &Vocabulary,
    directory: &Directory,
    tenant: &TenantId,
    id: &PrincipalId,
    groups: &BTreeSet<&GroupId>,
) -> EntityResult<Vec<Entity>> {
    let listed = directory.user(tenant, id);
    let groups: Vec<EntityUid> =
        groups.iter().map(|group| names.group_uid(tenant, group)).collect();
    let tenant_uid = names.tenant_uid(tenant);
    let made = entity(
        names.user_uid(tenant, id),
        vec![
            ("tenant", RestrictedExpression::new_entity_uid(tenant_uid.clone())),
            ("active", flag(listed.is_none_or(|user| user.active))),
        ],
        groups.iter().cloned().chain([tenant_uid.clone()]),
    )?;
    Ok(groups.into_iter().map(leaf).chain([leaf(tenant_uid), made]).collect())
}

/// The approval of a call.
///
/// Its tags are the groups both as the record names them and as policies write them, so that a policy can use its own notation.
pub(crate) fn approval(
    names: &Vocabulary,
    record: &ApprovalRecord,
    written: &[(String, ApproverGroup)],
) -> EntityResult<Entity> {
    let named = record.by_group.iter().map(|(group, people)| (group.to_string(), *people));
    let as_written = written.iter().filter_map(|(text, group)| {
        record.by_group.get(group).map(|people| (text.clone(), *people))
    });
    let tags: BTreeMap<String, u32> = named.chain(as_written).collect();
    let scope = vocabulary::uid(&names.approval_scope, record.scope);
    let approvers = record.approvers.iter().map(|id| vocabulary::uid(&names.user, id));
    Entity::new_with_tags(
        names.approval_uid(),
        [
            ("request_digest".to_owned(), text(record.request_digest.to_string())),
            ("scope".to_owned(), RestrictedExpression::new_entity_uid(scope)),
            ("args_edited".to_owned(), flag(record.args_edited)),
            ("expires_at".to_owned(), datetime(record.expires_at)),
            ("approvers".to_owned(), uids(approvers)),
            ("total".to_owned(), long(record.total)),
            ("denied".to_owned(), flag(false)),
        ],
        [],
        tags.into_iter().map(|(group, people)| (group, long(people))),
    )
}
