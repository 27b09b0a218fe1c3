//! A look at the index: which held calls somebody sees, which of them are theirs to decide, in which order, and how much there is.
//!
//! Owns the cheap part of visibility: tenant, groups, ownership. Anyone who is shown an approval is asked about at Cedar besides, for the
//! page that is shown. Invariant: of other tenants this filter lets through only what asks a group of the viewer's own tenant that the
//! viewer is in.

use std::{collections::BTreeSet, sync::Arc};

use placet_ledger::approval::ApprovalRecord;
use placet_types::{
    approval::Voice,
    clock::Timestamp,
    directory::Directory,
    ids::{ApprovalId, GroupId, PrincipalId, TenantId},
    mode::ApprovalMode,
    principal::PrincipalChain,
};

use super::{Inner, NONE, Name, PendingIndex, Place, Row, voice_name};
use crate::views::{InboxOrder, InboxQuery, QueueMetrics, Whose};

/// Until which age a call is in which of the columns of the chart, in milliseconds; what is older is in the last.
const AGES_MS: [i64; 4] = [15 * 60_000, 60 * 60_000, 4 * 60 * 60_000, 24 * 60 * 60_000];

/// Who looks.
#[derive(Debug, Clone)]
pub(crate) struct Viewer {
    pub(crate) tenant: TenantId,
    pub(crate) chain: PrincipalChain,
    /// Groups of claims and directory; empty unless it is a person by themselves.
    pub(crate) groups: BTreeSet<GroupId>,
    pub(crate) is_person: bool,
    pub(crate) is_auditor: bool,
    /// Whose duty was handed over to them, and for which groups.
    pub(crate) duties: Vec<Duty>,
}

/// A duty that somebody handed over.
#[derive(Debug, Clone)]
pub(crate) struct Duty {
    pub(crate) author: PrincipalId,
    pub(crate) groups: BTreeSet<GroupId>,
    /// Those of them that only the author's token said.
    pub(crate) claimed: BTreeSet<GroupId>,
    pub(crate) since: Timestamp,
}

/// What a look found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The page, each with whether it is theirs to decide.
    pub(crate) page: Vec<(ApprovalId, bool)>,
    /// How many there are in all.
    pub(crate) total: usize,
    /// How many of all that wait are theirs to decide.
    pub(crate) mine: usize,
}

impl PendingIndex {
    /// The page of the inbox that `viewer` asks for.
    pub(crate) fn look(&self, viewer: &Viewer, query: &InboxQuery, limit: usize) -> Found {
        self.lock().look(viewer, query, limit)
    }

    /// How things stand in approvals of a tenant.
    pub(crate) fn load(&self, tenant: &TenantId, now: Timestamp) -> QueueMetrics {
        let mut load = self.lock().load(tenant, now);
        load.decided_in_ms = self.decided_in_ms(tenant);
        load
    }
}

/// The same look at approvals that are over, which the index does not keep.
pub(crate) fn look_at(
    approvals: &[ApprovalRecord],
    directory: &Directory,
    viewer: &Viewer,
    query: &InboxQuery,
    limit: usize,
) -> Found {
    let mut inner = Inner::default();
    for approval in approvals {
        let place = inner.next_place(approval.created_at);
        inner.insert(place, approval, directory);
        if let Some(row) = inner.rows.get_mut(&place) {
            row.is_pending = false;
        }
    }
    inner.look(viewer, query, limit)
}

/// A viewer in the index's numbers.
struct Seen {
    tenant: Name,
    actor: Name,
    user: Name,
    /// Whether the one acted for has a number, or there is nobody.
    knows_user: bool,
    sees_all: bool,
    is_person: bool,
    asks_me: Vec<bool>,
    /// Sets that ask the viewer as an external approver, and the viewer's name as one.
    asks_external: Vec<bool>,
    external: Name,
    duties: Vec<(Name, Vec<bool>)>,
}

impl Seen {
    fn of(inner: &Inner, viewer: &Viewer) -> Self {
        let names = &inner.names;
        let any = |tenant: Option<&TenantId>, groups: &BTreeSet<GroupId>| {
            names.sets_where(|set| set.iter().any(|group| group.has(tenant, groups)))
        };
        let asks = |groups: &BTreeSet<GroupId>| any(None, groups);
        let own = Voice { tenant: Some(&viewer.tenant), person: &viewer.chain.actor.id };
        Self {
            tenant: names.known(viewer.tenant.as_str()),
            actor: names.known(viewer.chain.actor.id.as_str()),
            user: viewer
                .chain
                .on_behalf_of
                .as_ref()
                .map_or(NONE, |user| names.known(user.id.as_str())),
            knows_user: viewer
                .chain
                .on_behalf_of
                .as_ref()
                .is_none_or(|user| names.known(user.id.as_str()) != NONE),
            sees_all: viewer.is_auditor,
            is_person: viewer.is_person,
            asks_me: asks(&viewer.groups),
            asks_external: any(Some(&viewer.tenant), &viewer.groups),
            external: names.known(&voice_name(own)),
            duties: viewer
                .duties
                .iter()
                .map(|duty| (names.known(duty.author.as_str()), asks(&duty.groups)))
                .collect(),
        }
    }

    /// Whether somebody waits for it who is the viewer, or whom the viewer answers for.
    fn is_own(&self, row: &Row) -> bool {
        if self.actor == NONE || !self.is_at_home(row) {
            return false;
        }
        if !self.is_person {
            return row.actor == self.actor && row.user == self.user && self.knows_user;
        }
        row.owner == self.actor || row.user == self.actor
    }

    /// Whether a row is of the viewer's own tenant; what is of none that is known is no one's.
    fn is_at_home(&self, row: &Row) -> bool {
        row.tenant == self.tenant && self.tenant != NONE
    }

    fn sees(&self, row: &Row) -> bool {
        if !self.is_at_home(row) {
            return self.is_person && has(&self.asks_external, row.asked);
        }
        self.sees_all
            || self.is_own(row)
            || has(&self.asks_me, row.asked)
            || self.duties.iter().any(|(_, asks)| has(asks, row.asked))
    }

    fn may_decide(&self, row: &Row) -> bool {
        if !self.is_at_home(row) {
            let decided = self.external != NONE && row.voices.contains(&self.external);
            return row.is_pending && !decided && self.sees(row);
        }
        if !self.is_person || !row.is_pending || self.is_bound(row, self.actor) {
            return false;
        }
        has(&self.asks_me, row.asked)
            || self
                .duties
                .iter()
                .any(|(author, asks)| has(asks, row.asked) && !self.is_bound(row, *author))
    }

    /// Whether somebody is interested, or has decided.
    fn is_bound(&self, row: &Row, person: Name) -> bool {
        person != NONE
            && (row.owner == person || row.user == person || row.voices.contains(&person))
    }
}

fn has(table: &[bool], name: Name) -> bool {
    usize::try_from(name).ok().and_then(|at| table.get(at)).copied().unwrap_or(false)
}

/// Which rows a query wants, besides those that are visible.
struct Wanted<'a> {
    query: &'a InboxQuery,
    pending: Option<bool>,
    groups: Option<Vec<bool>>,
    /// Whether the group that is looked for is one of the viewer's tenant, asked elsewhere.
    groups_are_external_tenants: bool,
    search: Option<(String, Vec<bool>)>,
}

impl<'a> Wanted<'a> {
    fn of(inner: &Inner, query: &'a InboxQuery, tenant: &TenantId) -> Self {
        let group = query.group.as_ref();
        let search = query.search.as_deref().map(str::trim).filter(|text| !text.is_empty());
        Self {
            query,
            pending: match query.state.as_deref() {
                None | Some("pending") => Some(true),
                Some("approved") => Some(false),
                Some(_) => None,
            },
            groups_are_external_tenants: group
                .is_some_and(|group| group.external_tenant() == Some(tenant)),
            groups: group.map(|group| inner.names.sets_where(|set| set.contains(group))),
            search: search.map(|text| {
                let text = text.to_lowercase();
                let names = inner.names.texts_with(&text);
                (text, names)
            }),
        }
    }

    /// An external approver's filters look at nothing that an external approver is not shown: not for whom a call is, nor who else is asked.
    fn wants(&self, row: &Row, at_home: bool) -> bool {
        let user = if at_home { row.user } else { NONE };
        self.pending.is_none_or(|pending| row.is_pending == pending)
            && self.query.mode.is_none_or(|mode| row.mode == mode)
            && self.groups.as_ref().is_none_or(|groups| {
                has(groups, row.asked) && (at_home || self.groups_are_external_tenants)
            })
            && self.search.as_ref().is_none_or(|(text, names)| {
                [row.capability, row.actor, user].into_iter().any(|name| has(names, name))
                    || row.id.as_str().to_lowercase().contains(text)
            })
    }
}

type Order = (bool, i64, i64, u64);

fn order_of(order: InboxOrder, mine: bool, place: Place, row: &Row) -> Order {
    let (asked_ms, serial) = (place.0.as_ms(), place.1);
    match order {
        InboxOrder::Urgent => (!mine, row.expires_at.as_ms(), asked_ms, serial),
        InboxOrder::Oldest => (false, 0, asked_ms, serial),
        InboxOrder::Newest => {
            (false, 0, asked_ms.saturating_neg(), u64::MAX.saturating_sub(serial))
        }
        InboxOrder::Risk => (false, weakness(row.mode), asked_ms, serial),
    }
}

/// How far from the strongest mode.
const fn weakness(mode: ApprovalMode) -> i64 {
    match mode {
        ApprovalMode::Destructive => 0,
        ApprovalMode::Delegated => 1,
        ApprovalMode::Network => 2,
        ApprovalMode::LocalWrite => 3,
        ApprovalMode::ReadOnly => 4,
    }
}

impl Inner {
    fn look(&self, viewer: &Viewer, query: &InboxQuery, limit: usize) -> Found {
        let seen = Seen::of(self, viewer);
        let wanted = Wanted::of(self, query, &viewer.tenant);
        let mut mine_in_all = 0_usize;
        let mut found: Vec<(Order, bool, &Arc<ApprovalId>)> = Vec::new();
        for (place, row) in &self.rows {
            if !seen.sees(row) {
                continue;
            }
            let mine = seen.may_decide(row);
            mine_in_all = mine_in_all.saturating_add(usize::from(mine));
            let whose = match query.whose {
                Whose::All => true,
                Whose::Mine => mine,
                Whose::Asked => seen.is_own(row),
            };
            if whose && wanted.wants(row, seen.is_at_home(row)) {
                found.push((order_of(query.order, mine, *place, row), mine, &row.id));
            }
        }
        let total = found.len();
        let end = query.offset.saturating_add(limit);
        if end < total {
            found.select_nth_unstable_by_key(end, |one| one.0);
            found.truncate(end);
        }
        found.sort_unstable_by_key(|one| one.0);
        let page = found.into_iter().skip(query.offset);
        let page = page.map(|(_, mine, id)| (id.as_ref().clone(), mine)).collect();
        Found { page, total, mine: mine_in_all }
    }

    fn load(&self, tenant: &TenantId, now: Timestamp) -> QueueMetrics {
        let tenant = self.names.known(tenant.as_str());
        let mut load = QueueMetrics::default();
        let mut by_set: std::collections::BTreeMap<Name, u32> = std::collections::BTreeMap::new();
        for (place, row) in self.rows.iter().filter(|(_, row)| row.tenant == tenant) {
            if !row.is_pending || tenant == NONE {
                continue;
            }
            let age_ms = now.since_ms(place.0);
            let column = AGES_MS.iter().position(|until| age_ms < *until).unwrap_or(AGES_MS.len());
            if let Some(waiting) = load.waiting_by_age.get_mut(column) {
                *waiting = waiting.saturating_add(1);
            }
            let waiting = by_set.entry(row.asked).or_default();
            *waiting = waiting.saturating_add(1);
        }
        for (set, waiting) in by_set {
            for group in self.names.set(set).into_iter().flatten() {
                let all = load.waiting_by_group.entry(group.clone()).or_default();
                *all = all.saturating_add(waiting);
            }
        }
        load
    }
}
