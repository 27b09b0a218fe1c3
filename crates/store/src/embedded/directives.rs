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
use super::query::{lists_at, order, page_of_ids, paged};
use super::state::State;
use super::tree::{Order, Tree};

/// A directive's place among the others, by age.
type Placed<'a> = (Timestamp, &'a DirectiveId);

/// Directives.
pub(super) fn entries(state: &State, query: &DirectiveQuery) -> Result<Vec<Directive>, StoreError> {
    let tree = state.tree()?;
    let after = match &query.after {
        Some(after) => state.record(&tree, &keys::directive(after))?,
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
    let order = order(query.newest_first);
    let page = |place: Option<&[u8]>, most| {
        page_of_ids(state, tree, &lists_at(&prefixes, place), order, most)
    };
    paged(query.limit, place, page, |id| {
        Ok(state.record(tree, &keys::directive(id))?.filter(|entry| query.wants(entry)))
    })
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
    let place = keys::ordered(begin).to_vec();
    let beyond = if query.newest_first { Ordering::Less } else { Ordering::Greater };
    let is_wanted = |entry: &Directive| {
        query.wants(entry) && after.is_none_or(|after| entry.place().cmp(&after) == beyond)
    };
    let page = |place: Option<&[u8]>, most| {
        page_of_ids(state, tree, &lists_at(&prefixes, place), Order::Ascending, most)
    };
    let mut found = paged(usize::MAX, Some(place), page, |id| {
        Ok(state.record(tree, &keys::directive(id))?.filter(is_wanted))
    })?;
    found.sort_unstable_by(|a, b| a.place().cmp(&b.place()));
    found.dedup_by(|a, b| a.directive_id == b.directive_id);
    if query.newest_first {
        found.reverse();
    }
    found.truncate(query.limit);
    Ok(found)
}
