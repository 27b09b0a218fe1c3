//! Lists: effects in the order of their records (or, for retention, of their age), approvals by age.
//!
//! Owns paging and filters. Not here: single look-ups (`state`), lists that begin with the newest (`newest`), the directives (`directives`). Invariants: what is listed is durable, and it fits the question
//! when it is answered, though it moved while the list was read; open effects come from the journal's own list; the writer waits
//! for no more than one page.

use std::sync::Arc;

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_ledger::record::EffectRecord;
use placet_ledger::store::{ApprovalQuery, EffectQuery, StoreError};
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, RecordId, ToolCallId};

use super::index::{Index, List};
use super::slip::Slip;
use super::state::State;
use super::{keys, newest};

/// How many identifiers are gathered in one go.
const PAGE: usize = 256;
/// How many keys are looked at in one go, fitting or not: no batch is taken over meanwhile.
const LOOKED_AT_MAX: usize = 4096;

/// A part of a list.
struct Page<T> {
    found: Vec<T>,
    /// Where to go on; `None`: this was the end.
    next: Option<Vec<u8>>,
}

/// Effect records.
pub(super) fn effects(state: &State, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError> {
    let index = state.index()?;
    if query.open_only || query.orphaned {
        return open_effects(state, &index, query);
    }
    let lists = |code| match query.settled_before {
        Some(_) => keys::settled_at(code, None),
        None => keys::effect_state_at(code, None),
    };
    let codes = codes(query.state.as_deref(), keys::effect_state_code, keys::effect_state_codes);
    let prefixes: Vec<Vec<u8>> = codes.into_iter().map(lists).collect();
    let mut found = Vec::new();
    let mut place = start(&index, query).map_err(|fault| state.fail_index(&fault))?;
    while found.len() < query.limit {
        let most = query.limit.saturating_sub(found.len()).min(PAGE);
        let page = page_of_effects(state, &index, query, (&prefixes, &place, most))?;
        for record_id in page.found {
            let record =
                state.effect(&index, &record_id)?.filter(|record| fits(state, query, record));
            found.extend(record.map(Arc::unwrap_or_clone));
        }
        match page.next {
            Some(next) => place = next,
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

fn open_effects(
    state: &State,
    index: &Index,
    query: &EffectQuery,
) -> Result<Vec<EffectRecord>, StoreError> {
    let mut found = Vec::new();
    let mut after = query.after;
    while found.len() < query.limit {
        let page = index.open_after(after, PAGE);
        let Some(last) = page.last() else { break };
        after = Some(*last);
        for record_id in page {
            let record =
                state.effect(index, &record_id)?.filter(|record| fits(state, query, record));
            found.extend(record.map(Arc::unwrap_or_clone));
        }
    }
    found.truncate(query.limit);
    Ok(found)
}

/// The place in the lists at which to begin.
fn start(index: &Index, query: &EffectQuery) -> Result<Vec<u8>, super::index::IndexFault> {
    let Some(after) = &query.after else { return Ok(Vec::new()) };
    let digest = after.digest().as_bytes().to_vec();
    if query.settled_before.is_none() {
        return Ok(digest);
    }
    // By age: the record says where it stands. One that has moved on, or gone, since it was listed leaves no trace of where it stood,
    // and what is listed from the beginning then is what has not moved on.
    let stored = index.read(&keys::effect(after))?;
    let slip = stored.and_then(|stored| Slip::decode(&stored.body)).filter(|slip| {
        let wanted = query.state.as_deref().and_then(keys::effect_state_code);
        keys::is_settled_code(slip.code)
            && wanted.is_none_or(|wanted| wanted == slip.code)
            && query.settled_before.is_none_or(|before| slip.at < before)
    });
    Ok(slip.map_or_else(Vec::new, |slip| [keys::ordered(slip.at).as_slice(), &digest].concat()))
}

fn page_of_effects(
    state: &State,
    index: &Index,
    query: &EffectQuery,
    (prefixes, place, most): (&[Vec<u8>], &[u8], usize),
) -> Result<Page<RecordId>, StoreError> {
    let tenant = query.tenant.as_ref().map(|tenant| tenant.as_str().as_bytes());
    let mut page = Page { found: Vec::new(), next: None };
    let (mut looked_at, mut is_over) = (0_usize, true);
    let mut visit = |rest: &[u8], value: &[u8]| {
        let (age, digest) = match query.settled_before {
            Some(_) => rest.split_at_checked(8).unwrap_or((rest, &[])),
            None => (&[][..], rest),
        };
        if query.settled_before.is_some_and(|before| moved_at(age) >= Some(before)) {
            return false;
        }
        if tenant.is_none_or(|tenant| tenant == value) {
            page.found.extend(record_id(digest));
        }
        looked_at = looked_at.saturating_add(1);
        is_over = page.found.len() < most && looked_at < LOOKED_AT_MAX;
        if !is_over {
            page.next = Some(rest.to_vec());
        }
        is_over
    };
    let lists = lists_at(prefixes, place);
    index.merge(&lists, &mut visit).map_err(|fault| state.fail_index(&fault))?;
    Ok(page)
}

pub(super) fn lists_at(prefixes: &[Vec<u8>], place: &[u8]) -> Vec<List> {
    prefixes.iter().map(|prefix| List { prefix: prefix.clone(), after: place.to_vec() }).collect()
}

fn moved_at(age: &[u8]) -> Option<Timestamp> {
    Some(keys::from_ordered(age.try_into().ok()?))
}

/// Approvals.
pub(super) fn approvals(
    state: &State,
    query: &ApprovalQuery,
) -> Result<Vec<ApprovalRecord>, StoreError> {
    let index = state.index()?;
    let fits = |approval: &ApprovalRecord| query.wants(approval);
    let after = match &query.after {
        Some(after) => state.approval(&index, after)?.map(|after| {
            let id = after.approval_id.as_str().as_bytes();
            [keys::ordered(after.created_at).as_slice(), id].concat()
        }),
        None => None,
    };
    let prefixes = approval_lists(query);
    if query.newest_first {
        return newest::approvals(state, &index, (&prefixes, after), (query.limit, &fits));
    }
    let mut place = after.unwrap_or_default();
    let mut found = Vec::new();
    while found.len() < query.limit {
        let most = query.limit.saturating_sub(found.len()).min(PAGE);
        let page = page_of_approvals(state, &index, (&prefixes, &place, most))?;
        for approval_id in page.found {
            let approval = state.approval(&index, &approval_id)?.filter(|approval| fits(approval));
            found.extend(approval.map(Arc::unwrap_or_clone));
        }
        match page.next {
            Some(next) => place = next,
            None => break,
        }
    }
    Ok(found)
}

fn approval_lists(query: &ApprovalQuery) -> Vec<Vec<u8>> {
    let mut codes =
        codes(query.state.as_deref(), keys::approval_state_code, keys::approval_state_codes);
    if query.decided {
        let pending = keys::approval_state_code(ApprovalState::Pending.name());
        codes.retain(|code| Some(*code) != pending);
    }
    let list = |code| match (&query.external, &query.tenant, &query.capability) {
        (Some(external), _, _) => keys::external_list(external, code, None),
        (None, Some(tenant), Some(capability)) => {
            keys::capability_list(tenant, capability, code, None)
        }
        (None, tenant, _) => keys::approval_list(tenant.as_ref(), code, None),
    };
    codes.into_iter().map(list).collect()
}

/// The latest approval of a call.
pub(super) fn approval_of_call(
    state: &State,
    call_id: &ToolCallId,
) -> Result<Option<ApprovalRecord>, StoreError> {
    let index = state.index()?;
    let prefixes = [keys::call_approval(call_id, None)];
    let (mut place, mut last) = (Vec::new(), None);
    loop {
        let page = page_of_approvals(state, &index, (&prefixes, &place, PAGE))?;
        last = page.found.last().cloned().or(last);
        match page.next {
            Some(next) => place = next,
            None => break,
        }
    }
    let Some(last) = last else { return Ok(None) };
    let approval = state.approval(&index, &last)?;
    Ok(approval.filter(|approval| approval.call_id == *call_id).map(Arc::unwrap_or_clone))
}

fn page_of_approvals(
    state: &State,
    index: &Index,
    (prefixes, place, most): (&[Vec<u8>], &[u8], usize),
) -> Result<Page<ApprovalId>, StoreError> {
    let mut page = Page { found: Vec::new(), next: None };
    let mut visit = |rest: &[u8], _value: &[u8]| {
        page.found.extend(approval_id(rest));
        let goes_on = page.found.len() < most;
        if !goes_on {
            page.next = Some(rest.to_vec());
        }
        goes_on
    };
    let lists = lists_at(prefixes, place);
    index.merge(&lists, &mut visit).map_err(|fault| state.fail_index(&fault))?;
    Ok(page)
}

/// The lists to look in: that of one state, all, or (a state that there is not) none.
fn codes(
    state: Option<&str>,
    one: impl Fn(&str) -> Option<u8>,
    all: impl Fn() -> Vec<u8>,
) -> Vec<u8> {
    state.map_or_else(all, |name| one(name).into_iter().collect())
}

/// The record whose digest these bytes are.
pub(super) fn record_id(bytes: &[u8]) -> Option<RecordId> {
    Digest::from_bytes(bytes.try_into().ok()?).to_string().parse().ok()
}

/// The approval in a place: eight bytes of time, then its id.
pub(super) fn approval_id(place: &[u8]) -> Option<ApprovalId> {
    let (_created_at, id) = place.split_first_chunk::<8>()?;
    ApprovalId::new(std::str::from_utf8(id).ok()?).ok()
}
