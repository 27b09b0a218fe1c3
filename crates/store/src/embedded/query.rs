//! Lists: effects by their last move, approvals by age.
//!
//! Owns paging and filters. Not here: single look-ups (`state`), the directives (`directives`). Invariants: what is listed is durable, and
//! matches the query when it is answered, though it moved while the list was read; the writer waits for no more than one page.

use std::str::FromStr;

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_ledger::outbox::Outbox;
use placet_ledger::record::EffectRecord;
use placet_ledger::store::{ApprovalQuery, EffectQuery, StoreError};
use placet_types::ids::{RecordPlace, ToolCallId};

use super::codec::decode_value;
use super::state::State;
use super::tree::{List, Order, Tree, TreeFault};
use super::{keys, read};

/// How many identifiers are gathered at a time.
const PAGE: usize = 256;
/// How many keys are read at a time, matching or not: no batch is applied meanwhile.
const LOOKED_AT_MAX: usize = 4096;

/// A part of a list.
pub(super) struct Page<T> {
    pub(super) found: Vec<T>,
    /// Where to continue; `None`: this was the end.
    pub(super) next: Option<Vec<u8>>,
}

/// Effect records.
pub(super) fn effects(state: &State, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError> {
    let tree = state.tree()?;
    let mut states = match query.open_only || query.orphaned {
        true => keys::OPEN_STATES.to_vec(),
        false => keys::effect_states(),
    };
    states.retain(|state| query.state.as_deref().is_none_or(|wanted| wanted == *state));
    let prefixes: Vec<Vec<u8>> = states.into_iter().map(keys::effect_list).collect();
    let place = query.after.as_ref().map(keys::effect_place);
    let page = |place: Option<&[u8]>, most| {
        page_of_effects(state, &tree, query, &lists_at(&prefixes, place), most)
    };
    paged(query.limit, place, page, |place| {
        let record = state.record(&tree, &keys::effect(&place.record_id))?;
        // One that has moved since is found once more, at its new place.
        Ok(record
            .filter(|record: &EffectRecord| record.place() == *place && fits(state, query, record)))
    })
}

/// Reads the records of one page after the other, until there are as many as asked for.
pub(super) fn paged<I, T>(
    limit: usize,
    mut place: Option<Vec<u8>>,
    page: impl Fn(Option<&[u8]>, usize) -> Result<Page<I>, StoreError>,
    record: impl Fn(&I) -> Result<Option<T>, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut found = Vec::new();
    while found.len() < limit {
        let most = limit.saturating_sub(found.len()).min(PAGE);
        let page = page(place.as_deref(), most)?;
        for id in &page.found {
            found.extend(record(id)?);
        }
        match page.next {
            Some(next) => place = Some(next),
            None => break,
        }
    }
    Ok(found)
}

fn fits(state: &State, query: &EffectQuery, record: &EffectRecord) -> bool {
    query.tenant.as_ref().is_none_or(|tenant| record.scope.tenant == *tenant)
        && query.state.as_ref().is_none_or(|state| record.state.name() == state)
        && (!query.open_only || record.state.is_open())
        && (!query.orphaned || record.is_orphaned(state.epoch))
        && query.settled_before.is_none_or(|before| record.is_past_retention(before))
}

fn page_of_effects(
    state: &State,
    tree: &Tree,
    query: &EffectQuery,
    lists: &[List],
    most: usize,
) -> Result<Page<RecordPlace>, StoreError> {
    let tenant = query.tenant.as_ref().map(|tenant| tenant.as_str().as_bytes());
    let mut page = Page { found: Vec::new(), next: None };
    let mut looked_at = 0_usize;
    let mut visit = |rest: &[u8], value: &[u8]| {
        let place = keys::effect_place_of(rest);
        let updated_at = place.map(|place| place.updated_at);
        if query.settled_before.is_some_and(|before| updated_at >= Some(before)) {
            return false;
        }
        if tenant.is_none_or(|tenant| tenant == value) {
            page.found.extend(place);
        }
        looked_at = looked_at.saturating_add(1);
        // Also after the last one: what has moved since is behind it.
        page.next = Some(rest.to_vec());
        page.found.len() < most && looked_at < LOOKED_AT_MAX
    };
    let merged = tree.merge(lists, Order::Ascending, &mut visit);
    merged.map_err(|fault| state.fail_tree(&fault))?;
    Ok(page)
}

/// The lists with these prefixes, after a place.
pub(super) fn lists_at(prefixes: &[Vec<u8>], place: Option<&[u8]>) -> Vec<List> {
    let list = |prefix: &Vec<u8>| List { prefix: prefix.clone(), after: place.map(<[u8]>::to_vec) };
    prefixes.iter().map(list).collect()
}

/// The order of a list.
pub(super) const fn order(newest_first: bool) -> Order {
    if newest_first { Order::Descending } else { Order::Ascending }
}

/// Approvals.
pub(super) fn approvals(
    state: &State,
    query: &ApprovalQuery,
) -> Result<Vec<ApprovalRecord>, StoreError> {
    let tree = state.tree()?;
    let place = match &query.after {
        Some(after) => {
            let approval: Option<ApprovalRecord> = state.record(&tree, &keys::approval(after))?;
            approval.map(|found| keys::place(found.created_at, after.as_str().as_bytes()))
        }
        None => None,
    };
    let (prefixes, order) = (approval_lists(query), order(query.newest_first));
    let page = |place: Option<&[u8]>, most| {
        page_of_ids(state, &tree, &lists_at(&prefixes, place), order, most)
    };
    paged(query.limit, place, page, |approval_id| {
        let approval = state.record(&tree, &keys::approval(approval_id))?;
        Ok(approval.filter(|approval| query.wants(approval)))
    })
}

fn approval_lists(query: &ApprovalQuery) -> Vec<Vec<u8>> {
    let is_read = |state: &&str| {
        query.state.as_deref().is_none_or(|wanted| wanted == *state)
            && !(query.decided && *state == ApprovalState::Pending.name())
    };
    let list = |state| match (&query.external, &query.tenant, &query.capability) {
        (Some(external), _, _) => keys::external_list(external, state, &[]),
        (None, Some(tenant), Some(capability)) => {
            keys::capability_list(tenant, capability, state, &[])
        }
        (None, tenant, _) => keys::approval_list(tenant.as_ref(), state, &[]),
    };
    ApprovalState::NAMES.into_iter().filter(is_read).map(list).collect()
}

/// The latest approval of a call.
pub(super) fn approval_of_call(
    state: &State,
    call_id: &ToolCallId,
) -> Result<Option<ApprovalRecord>, StoreError> {
    let tree = state.tree()?;
    let lists = lists_at(&[keys::call_approval(call_id, &[])], None);
    let page = page_of_ids(state, &tree, &lists, Order::Descending, 1)?;
    let Some(last) = page.found.first() else { return Ok(None) };
    let approval: Option<ApprovalRecord> = state.record(&tree, &keys::approval(last))?;
    Ok(approval.filter(|approval| approval.call_id == *call_id))
}

/// The messages that people are to be sent.
pub(super) fn outbox(state: &State) -> Result<Outbox, StoreError> {
    let tree = state.tree()?;
    let read = || -> Result<Outbox, TreeFault> {
        let read_to = read::record(&tree, &keys::read_to())?;
        let mut waiting = Vec::new();
        for pair in tree.walk(&keys::message(None)) {
            let (key, value) = pair?;
            if !keys::is_message(&key) {
                break;
            }
            waiting.push(read::parsed(&decode_value(&key, &value).ok_or(TreeFault::Altered)?)?);
        }
        Ok(Outbox { read_to, waiting })
    };
    read().map_err(|fault| state.fail_tree(&fault))
}

/// What is in some lists by age.
pub(super) fn page_of_ids<I: FromStr>(
    state: &State,
    tree: &Tree,
    lists: &[List],
    order: Order,
    most: usize,
) -> Result<Page<I>, StoreError> {
    let mut page = Page { found: Vec::new(), next: None };
    let mut visit = |rest: &[u8], _value: &[u8]| {
        page.found.extend(keys::id_at(rest));
        let goes_on = page.found.len() < most;
        if !goes_on {
            page.next = Some(rest.to_vec());
        }
        goes_on
    };
    tree.merge(lists, order, &mut visit).map_err(|fault| state.fail_tree(&fault))?;
    Ok(page)
}
