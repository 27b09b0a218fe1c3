//! Lists of entries of the approval service, in the order of their age.
//!
//! Owns which list a question is answered from: by age, or, for what is still open, by the time until which it is. Not here: single
//! look-ups (`state`), the keys (`keys`, `slip`). Invariant: an entry that is over costs nothing to those who ask for open ones.

use std::cmp::Ordering;

use placet_ledger::directive::Directive;
use placet_ledger::store::{DirectiveQuery, StoreError};
use placet_types::clock::Timestamp;
use placet_types::directive::DirectiveKind;
use placet_types::ids::DirectiveId;

use super::index::{Index, List};
use super::keys;
use super::newest;
use super::query::lists_at;
use super::state::State;

/// How many identifiers are gathered in one go.
const PAGE: usize = 256;

/// Directives.
pub(super) fn entries(state: &State, query: &DirectiveQuery) -> Result<Vec<Directive>, StoreError> {
    let index = state.index()?;
    let after = match &query.after {
        Some(after) => state.directive(&index, after)?,
        None => None,
    };
    let after = after.as_ref().map(Directive::place);
    match query.open_at {
        Some(at) => open(state, &index, query, (at, after)),
        None if query.newest_first => newest(state, &index, query, after),
        None => by_age(state, &index, query, after),
    }
}

fn kinds(query: &DirectiveQuery) -> Vec<DirectiveKind> {
    query.kind.map_or_else(|| DirectiveKind::ALL.to_vec(), |kind| vec![kind])
}

fn by_age(
    state: &State,
    index: &Index,
    query: &DirectiveQuery,
    after: Option<(Timestamp, &DirectiveId)>,
) -> Result<Vec<Directive>, StoreError> {
    let prefixes = lists_by_age(query);
    let mut place = after.map_or_else(Vec::new, key_of);
    let mut found = Vec::new();
    while found.len() < query.limit {
        let most = query.limit.saturating_sub(found.len()).min(PAGE);
        let page = page(state, index, &lists_at(&prefixes, &place), most)?;
        for id in &page.found {
            found.extend(state.directive(index, id)?.filter(|entry| query.wants(entry)));
        }
        match page.next {
            Some(next) => place = next,
            None => break,
        }
    }
    Ok(found)
}

/// The same from the other end.
fn newest(
    state: &State,
    index: &Index,
    query: &DirectiveQuery,
    after: Option<(Timestamp, &DirectiveId)>,
) -> Result<Vec<Directive>, StoreError> {
    let made_before = query.made_before.map(|at| keys::ordered(at).to_vec());
    let before = after.map(key_of).into_iter().chain(made_before).min();
    let mut found = Vec::new();
    if query.limit == 0 {
        return Ok(found);
    }
    newest::backwards(state, index, (&lists_by_age(query), before), &mut |place| {
        if let Some(id) = directive_id(place) {
            found.extend(state.directive(index, &id)?.filter(|entry| query.wants(entry)));
        }
        Ok(found.len() < query.limit)
    })?;
    Ok(found)
}

fn lists_by_age(query: &DirectiveQuery) -> Vec<Vec<u8>> {
    let list = |kind| keys::directive_by_age(query.tenant.as_ref(), kind, None);
    kinds(query).into_iter().map(list).collect()
}

fn key_of((created_at, id): (Timestamp, &DirectiveId)) -> Vec<u8> {
    [keys::ordered(created_at).as_slice(), id.as_str().as_bytes()].concat()
}

/// All that are open after a time, put in order: they are few.
fn open(
    state: &State,
    index: &Index,
    query: &DirectiveQuery,
    (at, after): (Timestamp, Option<(Timestamp, &DirectiveId)>),
) -> Result<Vec<Directive>, StoreError> {
    let list = |kind| keys::directive_open(query.tenant.as_ref(), kind, None);
    let prefixes: Vec<Vec<u8>> = kinds(query).into_iter().map(list).collect();
    // What is open until a time is not open at it.
    let begin = Timestamp::from_ms(at.as_ms().saturating_add(1));
    let mut place = keys::ordered(begin).to_vec();
    let beyond = if query.newest_first { Ordering::Less } else { Ordering::Greater };
    let mut found: Vec<Directive> = Vec::new();
    loop {
        let page = page(state, index, &lists_at(&prefixes, &place), PAGE)?;
        for id in &page.found {
            let entry = state.directive(index, id)?.filter(|entry| query.wants(entry));
            found.extend(
                entry.filter(|entry| after.is_none_or(|after| entry.place().cmp(&after) == beyond)),
            );
        }
        match page.next {
            Some(next) => place = next,
            None => break,
        }
    }
    found.sort_unstable_by(|a, b| a.place().cmp(&b.place()));
    found.dedup_by(|a, b| a.directive_id == b.directive_id);
    if query.newest_first {
        found.reverse();
    }
    found.truncate(query.limit);
    Ok(found)
}

struct Page {
    found: Vec<DirectiveId>,
    /// Where to go on; `None`: this was the end.
    next: Option<Vec<u8>>,
}

fn page(state: &State, index: &Index, lists: &[List], most: usize) -> Result<Page, StoreError> {
    let mut page = Page { found: Vec::new(), next: None };
    let mut visit = |rest: &[u8], _value: &[u8]| {
        page.found.extend(directive_id(rest));
        let goes_on = page.found.len() < most;
        if !goes_on {
            page.next = Some(rest.to_vec());
        }
        goes_on
    };
    index.merge(lists, &mut visit).map_err(|fault| state.fail_index(&fault))?;
    Ok(page)
}

/// The entry in a place: eight bytes of time, then its id.
fn directive_id(place: &[u8]) -> Option<DirectiveId> {
    let (_time, id) = place.split_first_chunk::<8>()?;
    DirectiveId::new(std::str::from_utf8(id).ok()?).ok()
}
