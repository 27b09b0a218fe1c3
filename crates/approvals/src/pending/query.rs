//! Queries of the index: which held calls a viewer sees, which of them they can decide, in which order, and how many there are.
//!
//! Owns the cheap part of visibility: tenant, groups, ownership. Cedar is asked in addition about each approval of the page that is shown.
//! Invariant: of other tenants this filter lets through only what asks a group of the viewer's own tenant that the viewer is in.

use std::{cmp::Reverse, collections::BTreeSet};

use placet_ledger::approval::ApprovalRecord;
use placet_types::{
    clock::Timestamp,
    directory::Directory,
    ids::{ApprovalId, GroupId, PrincipalId, TenantId},
    mode::ApprovalMode,
    principal::PrincipalChain,
};

use super::{PendingIndex, Place, Row};
use crate::views::{InboxOrder, InboxQuery, QueueMetrics, Whose};

/// The upper age limits of the chart's columns, in milliseconds; older calls are in the last column.
const AGES_MS: [i64; 4] = [15 * 60_000, 60 * 60_000, 4 * 60 * 60_000, 24 * 60 * 60_000];

/// Who is looking.
#[derive(Debug, Clone)]
pub(crate) struct Viewer {
    pub(crate) tenant: TenantId,
    pub(crate) chain: PrincipalChain,
    /// Groups from claims and directory; empty unless the viewer is a person acting directly.
    pub(crate) groups: BTreeSet<GroupId>,
    pub(crate) is_person: bool,
    pub(crate) is_auditor: bool,
    /// The duties delegated to them.
    pub(crate) duties: Vec<Duty>,
}

/// A duty that a colleague delegated.
#[derive(Debug, Clone)]
pub(crate) struct Duty {
    pub(crate) author: PrincipalId,
    pub(crate) groups: BTreeSet<GroupId>,
    /// Those of the groups that only the author's token confirms.
    pub(crate) claimed: BTreeSet<GroupId>,
    pub(crate) since: Timestamp,
}

/// The result of a query.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The page, and for each whether the viewer can decide it.
    pub(crate) page: Vec<(ApprovalId, bool)>,
    /// How many there are in all.
    pub(crate) total: usize,
    /// How many of all pending ones the viewer can decide.
    pub(crate) mine: usize,
}

impl PendingIndex {
    /// The page of the inbox that `viewer` asks for.
    pub(crate) fn look(&self, viewer: &Viewer, query: &InboxQuery, limit: usize) -> Found {
        let inner = self.lock();
        let wanted = Wanted::of(query);
        let mut mine_in_all = 0_usize;
        let mut found: Vec<(Order, bool, &ApprovalId)> = Vec::new();
        for (place, row) in inner.rows.iter().filter(|(_, row)| viewer.sees(row)) {
            let mine = viewer.may_decide(row);
            mine_in_all = mine_in_all.saturating_add(usize::from(mine));
            if (mine || query.whose != Whose::Mine) && wanted.wants(viewer, row) {
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
        let page = page.map(|(_, mine, id)| (id.clone(), mine)).collect();
        Found { page, total, mine: mine_in_all }
    }

    /// The queue metrics of a tenant.
    pub(crate) fn load(&self, tenant: &TenantId, now: Timestamp) -> QueueMetrics {
        let inner = self.lock();
        let mut load = QueueMetrics::default();
        load.decided_in_ms.extend(inner.decided.get(tenant).into_iter().flatten());
        load.decided_in_ms.sort_unstable();
        let is_counted = |row: &Row| row.is_pending && row.tenant() == tenant;
        for (place, row) in inner.rows.iter().filter(|(_, row)| is_counted(row)) {
            let age_ms = now.since_ms(place.0);
            let column = AGES_MS.iter().position(|until| age_ms < *until).unwrap_or(AGES_MS.len());
            if let Some(waiting) = load.waiting_by_age.get_mut(column) {
                *waiting = waiting.saturating_add(1);
            }
            for group in &row.asked {
                let waiting = load.waiting_by_group.entry(group.clone()).or_default();
                *waiting = waiting.saturating_add(1);
            }
        }
        load
    }
}

/// The same for one approval that has ended, which the index does not keep: whether it is visible and wanted.
pub(crate) fn is_wanted(
    approval: &ApprovalRecord,
    directory: &Directory,
    viewer: &Viewer,
    query: &InboxQuery,
) -> bool {
    let row = Row { is_pending: false, ..Row::of(approval, directory, 0) };
    viewer.sees(&row) && Wanted::of(query).wants(viewer, &row)
}

impl Viewer {
    const fn id(&self) -> &PrincipalId {
        &self.chain.actor.id
    }

    /// Whether a row is of the viewer's own tenant.
    fn is_at_home(&self, row: &Row) -> bool {
        *row.tenant() == self.tenant
    }

    /// Whether the viewer waits for it, or answers for the one who does.
    fn is_own(&self, row: &Row) -> bool {
        if !self.is_at_home(row) {
            return false;
        }
        if self.is_person {
            return [&row.owner, &row.user].into_iter().flatten().any(|person| person == self.id());
        }
        let user = self.chain.on_behalf_of.as_ref().map(|user| &user.id);
        row.agent.1 == *self.id() && row.user.as_ref() == user
    }

    /// Whether it asks a group of the viewer: for another tenant's call, as an external approver.
    fn is_asked(&self, row: &Row) -> bool {
        let of = (!self.is_at_home(row)).then_some(&self.tenant);
        self.is_person && row.asked.iter().any(|group| group.has(of, &self.groups))
    }

    fn asked_for(&self, row: &Row) -> impl Iterator<Item = &PrincipalId> {
        let asks = |duty: &&Duty| row.asked.iter().any(|group| group.has(None, &duty.groups));
        self.duties.iter().filter(asks).map(|duty| &duty.author)
    }

    fn sees(&self, row: &Row) -> bool {
        if !self.is_at_home(row) {
            return self.is_asked(row);
        }
        self.is_auditor
            || self.is_own(row)
            || self.is_asked(row)
            || self.asked_for(row).next().is_some()
    }

    fn may_decide(&self, row: &Row) -> bool {
        if !self.is_person || !row.is_pending {
            return false;
        }
        if !self.is_at_home(row) {
            let is_own = |voice: &(Option<TenantId>, PrincipalId)| {
                voice.0.as_ref() == Some(&self.tenant) && voice.1 == *self.id()
            };
            return !row.voices.iter().any(is_own) && self.is_asked(row);
        }
        !is_bound(row, self.id())
            && (self.is_asked(row)
                || self.asked_for(row).any(|colleague| !is_bound(row, colleague)))
    }
}

/// Whether a person of the call's tenant has an interest in it, or has decided.
fn is_bound(row: &Row, person: &PrincipalId) -> bool {
    let interested = [&row.owner, &row.user].into_iter().flatten();
    let decided = row.voices.iter().filter(|(tenant, _)| tenant.is_none());
    interested.chain(decided.map(|(_, person)| person)).any(|other| other == person)
}

/// Which visible rows a query wants.
struct Wanted<'a> {
    query: &'a InboxQuery,
    pending: Option<bool>,
    /// The search text, in lower case.
    search: Option<String>,
}

impl<'a> Wanted<'a> {
    fn of(query: &'a InboxQuery) -> Self {
        let search = query.search.as_deref().map(str::trim).filter(|text| !text.is_empty());
        let pending = match query.state.as_deref() {
            None | Some("pending") => Some(true),
            Some("approved") => Some(false),
            Some(_) => None,
        };
        Self { query, pending, search: search.map(str::to_lowercase) }
    }

    /// An external approver's filters do not see what is hidden from them: for whom a call is, and who else is asked.
    fn wants(&self, viewer: &Viewer, row: &Row) -> bool {
        let at_home = viewer.is_at_home(row);
        let user = row.user.as_ref().filter(|_| at_home);
        self.pending.is_none_or(|pending| row.is_pending == pending)
            && (self.query.whose != Whose::Asked || viewer.is_own(row))
            && self.query.mode.is_none_or(|mode| row.mode == mode)
            && self.query.group.as_ref().is_none_or(|group| {
                let is_shown = at_home || group.external_tenant() == Some(&viewer.tenant);
                is_shown && row.asked.contains(group)
            })
            && self.search.as_ref().is_none_or(|text| {
                let finds = |name: &str| name.to_lowercase().contains(text);
                finds(&row.capability.to_string())
                    || finds(row.agent.1.as_str())
                    || user.is_some_and(|user| finds(user.as_str()))
                    || finds(row.id.as_str())
            })
    }
}

/// The sort key; the stronger mode comes first.
type Order = (bool, Option<Reverse<ApprovalMode>>, i64, i64, u64);

fn order_of(order: InboxOrder, mine: bool, place: Place, row: &Row) -> Order {
    let (asked_ms, serial) = (place.0.as_ms(), place.1);
    match order {
        InboxOrder::Urgent => (!mine, None, row.expires_at.as_ms(), asked_ms, serial),
        InboxOrder::Oldest => (false, None, 0, asked_ms, serial),
        InboxOrder::Newest => {
            (false, None, 0, asked_ms.saturating_neg(), u64::MAX.saturating_sub(serial))
        }
        InboxOrder::Risk => (false, Some(Reverse(row.mode)), 0, asked_ms, serial),
    }
}
