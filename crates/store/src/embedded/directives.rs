//! Lists of directives of the approval service, in the order of their age.
//!
//! Owns which list answers a query: by age, or, for open ones, by the time until which they are open. Not here: single look-ups (`state`),
//! the keys (`keys`). Invariant: a closed directive costs nothing to queries for open ones.

use std::cmp::Ordering;

use placet_ledger::directive::Directive;
use placet_ledger::store::{DirectiveQuery, StoreError};
use placet_types::clock::Timestamp;
use placet_types::directive::DirectiveKind;
use placet_types::ids::DirectiveId;

use super::keys;
use super::query::{PAGE, lists_at, order, page_of_ids};
use super::state::State;
use super::tree::{Order, Tree};

/// A directive's place among the others, by age.
type Placed<'a> = (Timestamp, &'a DirectiveId);

/// Directives.
pub(super) fn entries(state: &State, query: &DirectiveQuery) -> Result<Vec<Directive>, StoreError> {
    let tree = state.tree()?;
    let after = match &query.after {
        Some(after) => state.directive(&tree, after)?,
        None => None,
    };
    let after = after.as_ref().map(Directive::place);
    match query.open_at {
        Some(at) => open(state, &tree, query, at, after),
        None => by_age(state, &tree, query, after),
    }
}

fn kinds(query: &DirectiveQuery) -> Vec<DirectiveKind> {
    query.kind.map_or_else(|| DirectiveKind::ALL.to_vec(), |kind| vec![kind])
}

fn by_age(
    state: &State,
    tree: &Tree,
    query: &DirectiveQuery,
    after: Option<Placed<'_>>,
) -> Result<Vec<Directive>, StoreError> {
    let list = |kind| keys::directive_by_age(query.tenant.as_ref(), kind, &[]);
    let prefixes: Vec<_> = kinds(query).into_iter().map(list).collect();
    let mut place = after.map(|(at, id)| keys::place(at, id.as_str().as_bytes()));
    if query.newest_first {
        let made_before = query.made_before.map(|at| keys::ordered(at).to_vec());
        place = place.into_iter().chain(made_before).min();
    }
    let mut found = Vec::new();
    while found.len() < query.limit {
        let most = query.limit.saturating_sub(found.len()).min(PAGE);
        let lists = lists_at(&prefixes, place.as_deref());
        let page = page_of_ids(state, tree, &lists, order(query.newest_first), most)?;
        for id in page.found.iter().filter_map(|place| directive_id(place)) {
            found.extend(state.directive(tree, &id)?.filter(|entry| query.wants(entry)));
        }
        match page.next {
            Some(next) => place = Some(next),
            None => break,
        }
    }
    Ok(found)
}

/// All that are open after a time, sorted: they are few.
fn open(
    state: &State,
    tree: &Tree,
    query: &DirectiveQuery,
    at: Timestamp,
    after: Option<Placed<'_>>,
) -> Result<Vec<Directive>, StoreError> {
    let list = |kind| keys::directive_open(query.tenant.as_ref(), kind, &[]);
    let prefixes: Vec<_> = kinds(query).into_iter().map(list).collect();
    // A directive open until a time is no longer open at that time.
    let begin = Timestamp::from_ms(at.as_ms().saturating_add(1));
    let mut place = keys::ordered(begin).to_vec();
    let beyond = if query.newest_first { Ordering::Less } else { Ordering::Greater };
    let mut found: Vec<Directive> = Vec::new();
    loop {
        let lists = lists_at(&prefixes, Some(&place));
        let page = page_of_ids(state, tree, &lists, Order::Ascending, PAGE)?;
        for id in page.found.iter().filter_map(|place| directive_id(place)) {
            let entry = state.directive(tree, &id)?.filter(|entry| query.wants(entry));
            let is_beyond =
                |entry: &Directive| after.is_none_or(|after| entry.place().cmp(&after) == beyond);
            found.extend(entry.filter(is_beyond));
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

/// The directive at a place: eight bytes of time, then its id.
fn directive_id(place: &[u8]) -> Option<DirectiveId> {
    let (_time, id) = place.split_first_chunk::<8>()?;
    DirectiveId::new(std::str::from_utf8(id).ok()?).ok()
}
