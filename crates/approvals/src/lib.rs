//! Approvals: what people are asked, what they decide, and what they arrange in addition to single decisions.
//!
//! Owns requests, votes, edits, standing grants, freezes, break-glass, delegations, revocations, the inbox and the timeline:
//! [`service::Approvals`], a service on the ledger and the policies. Cedar decides who may do what; the ledger keeps it; calls belong to
//! the engine, which is reached through [`calls::Calls`]. Invariants: nothing is dispatched from here; an approval binds one request, and
//! nobody decides on what they are not shown.

/// The longest an approval lives, in milliseconds: seven days.
pub const LIFETIME_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1_000;

pub mod service;

pub mod calls;
pub mod feed;
pub mod node;
pub mod pending;
pub mod rules;
pub mod views;

pub mod audit;
pub mod refusals;

pub mod redecision;
pub mod reviewer;
pub mod timeline;

mod arrangement;
mod decision;
mod detail;
mod edit;
mod endings;
mod entries;
mod entry_actions;
mod entry_draft;
mod events;
mod grant_proposal;
mod inbox;
mod listing;
mod masking;
mod outcome;
mod presentation;
mod sent_calls;
mod similar;
mod summary;
