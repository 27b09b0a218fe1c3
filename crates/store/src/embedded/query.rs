//! Lists: effects in the order of their records, approvals oldest first.
//!
//! Owns paging and filters. Not here: single look-ups (`state`). Invariants: what is listed is durable, and it fits the question
//! when it is answered, though it moved while the list was read; open effects come from the journal's own list.

use std::sync::Arc;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::record::EffectRecord;
use placet_ledger::store::{ApprovalQuery, EffectQuery, StoreError};
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, RecordId, ToolCallId};

use super::index::{Index, List};
use super::keys;
use super::state::State;

/// How many identifiers are looked at in one go.
const PAGE: usize = 256;

/// Effect records.
pub(super) fn effects(state: &State, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError> {
    let index = state.index()?;
    let fits = |record: &EffectRecord| {
        query.tenant.as_ref().is_none_or(|tenant| record.scope.tenant == *tenant)
            && query.state.as_ref().is_none_or(|state| record.state.name() == state)
            && (!query.open_only || record.state.is_open())
            && (!query.orphaned || record.is_orphaned(state.epoch))
            && query.settled_before.is_none_or(|before| record.is_past_retention(before))
    };
    let mut found = Vec::new();
    let mut after = query.after;
    while found.len() < query.limit {
        let wanted = query.limit.saturating_sub(found.len()).min(PAGE);
        let page = if query.open_only || query.orphaned {
            index.open_after(after, PAGE)
        } else {
            page_of_effects(state, &index, query, (after, wanted))?
        };
        let Some(last) = page.last() else { break };
        after = Some(*last);
        for record_id in page {
            let record = state.effect(&index, &record_id)?.filter(|record| fits(record));
            found.extend(record.map(Arc::unwrap_or_clone));
        }
    }
    found.truncate(query.limit);
    Ok(found)
}

fn page_of_effects(
    state: &State,
    index: &Index,
    query: &EffectQuery,
    (after, most): (Option<RecordId>, usize),
) -> Result<Vec<RecordId>, StoreError> {
    let codes = codes(query.state.as_deref(), keys::effect_state_code, keys::effect_state_codes);
    let lists: Vec<List> = codes
        .into_iter()
        .map(|code| List {
            prefix: keys::effect_state_at(code, None),
            from: keys::effect_state_at(code, after.as_ref()),
        })
        .collect();
    let tenant = query.tenant.as_ref().map(|tenant| tenant.as_str().as_bytes());
    let mut page = Vec::new();
    let mut visit = |rest: &[u8], value: &[u8]| {
        if tenant.is_none_or(|tenant| tenant == value) {
            page.extend(record_id(rest));
        }
        page.len() < most
    };
    index.merge(&lists, &mut visit).map_err(|fault| state.fail(&fault.to_string()))?;
    Ok(page)
}

/// Approvals.
pub(super) fn approvals(
    state: &State,
    query: &ApprovalQuery,
) -> Result<Vec<ApprovalRecord>, StoreError> {
    let index = state.index()?;
    let fits = |approval: &ApprovalRecord| {
        query.tenant.as_ref().is_none_or(|tenant| approval.chain.tenant() == tenant)
            && query.state.as_ref().is_none_or(|state| approval.state.name() == state)
    };
    let mut after = match &query.after {
        Some(after) => state.approval(&index, after)?,
        None => None,
    };
    let mut found = Vec::new();
    while found.len() < query.limit {
        let wanted = query.limit.saturating_sub(found.len()).min(PAGE);
        let page = page_of_approvals(state, &index, query, (after.as_deref(), wanted))?;
        let mut last = None;
        for approval_id in page {
            let approval = state.approval(&index, &approval_id)?;
            let fitting = approval.as_deref().filter(|approval| fits(approval));
            found.extend(fitting.cloned());
            last = approval.or(last);
        }
        let Some(last) = last else { break };
        after = Some(last);
    }
    Ok(found)
}

/// The latest approval of a call.
pub(super) fn approval_of_call(
    state: &State,
    call_id: &ToolCallId,
) -> Result<Option<ApprovalRecord>, StoreError> {
    let mut query = ApprovalQuery { limit: PAGE, ..ApprovalQuery::default() };
    let mut found = None;
    loop {
        let page = approvals(state, &query)?;
        let Some(last) = page.last() else { return Ok(found) };
        query.after = Some(last.approval_id.clone());
        found = page.into_iter().rfind(|approval| approval.call_id == *call_id).or(found);
    }
}

fn page_of_approvals(
    state: &State,
    index: &Index,
    query: &ApprovalQuery,
    (after, most): (Option<&ApprovalRecord>, usize),
) -> Result<Vec<ApprovalId>, StoreError> {
    let codes =
        codes(query.state.as_deref(), keys::approval_state_code, keys::approval_state_codes);
    let tenant = query.tenant.as_ref();
    let place = after.map(|after| (after.created_at, &after.approval_id));
    let lists: Vec<List> = codes
        .into_iter()
        .map(|code| List {
            prefix: keys::approval_list(tenant, code, None),
            from: keys::approval_list(tenant, code, place),
        })
        .collect();
    let mut page = Vec::new();
    let mut visit = |rest: &[u8], _value: &[u8]| {
        page.extend(approval_id(rest));
        page.len() < most
    };
    index.merge(&lists, &mut visit).map_err(|fault| state.fail(&fault.to_string()))?;
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
fn approval_id(place: &[u8]) -> Option<ApprovalId> {
    let (_created_at, id) = place.split_first_chunk::<8>()?;
    ApprovalId::new(std::str::from_utf8(id).ok()?).ok()
}
