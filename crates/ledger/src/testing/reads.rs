//! Faults of reads, for tests that ask for them.
//!
//! Owns which reads fail or wait. Not here: what is read.

use std::{
    future::poll_fn,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    task::{Poll, Waker},
};

use parking_lot::Mutex;

use super::MemoryStore;
use crate::{run::RunKey, store::StoreError};

/// The faults of one node's reads.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// How many more lists of approvals are answered; `None`: all.
    lists_left: Mutex<Option<u64>>,
    directive_hidden: AtomicBool,
    entries_hidden: AtomicBool,
    damaged_run: Mutex<Option<RunKey>>,
    content_hidden: AtomicBool,
    content_held: AtomicBool,
    content_read: AtomicU64,
    directive_held: AtomicBool,
    directive_read: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

impl Reads {
    pub(super) fn list(&self) -> Result<(), StoreError> {
        let mut left = self.lists_left.lock();
        match *left {
            Some(0) => Err(StoreError::Unreachable("no lists".to_owned())),
            Some(lists) => {
                *left = Some(lists.saturating_sub(1));
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) async fn content(&self) -> Result<(), StoreError> {
        self.content_read.fetch_add(1, Ordering::SeqCst);
        self.until_free(&self.content_held).await;
        if self.content_hidden.load(Ordering::SeqCst) {
            return Err(StoreError::Unreachable("no content".to_owned()));
        }
        Ok(())
    }

    pub(super) fn entry(&self) -> Result<(), StoreError> {
        if self.entries_hidden.load(Ordering::SeqCst) {
            return Err(StoreError::Unreachable("no entries".to_owned()));
        }
        Ok(())
    }

    pub(super) fn run(&self, key: &RunKey) -> Result<(), StoreError> {
        let damaged = self.damaged_run.lock();
        if damaged.as_ref() == Some(key) {
            return Err(StoreError::Damaged("a run has an unknown form".to_owned()));
        }
        Ok(())
    }

    pub(super) async fn entries(&self) -> Result<(), StoreError> {
        self.directive_read.fetch_add(1, Ordering::SeqCst);
        self.until_free(&self.directive_held).await;
        if self.directive_hidden.load(Ordering::SeqCst) {
            return Err(StoreError::Damaged("an entry has an unknown form".to_owned()));
        }
        Ok(())
    }

    async fn until_free(&self, held: &AtomicBool) {
        poll_fn(|task| {
            let mut waiting = self.waiting.lock();
            if !held.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            waiting.push(task.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn hold(&self, what: &AtomicBool, held: bool) {
        let mut waiting = self.waiting.lock();
        what.store(held, Ordering::SeqCst);
        waiting.drain(..).for_each(Waker::wake);
    }
}

impl MemoryStore {
    /// Answers only this many more lists of approvals; `None`: all.
    pub fn answer_lists(&self, lists: Option<u64>) {
        *self.reads.lists_left.lock() = lists;
    }

    /// Makes lists of directives fail for this node, or succeed again: as if one of them had an unknown version.
    pub fn hide_directives(&self, hidden: bool) {
        self.reads.directive_hidden.store(hidden, Ordering::SeqCst);
    }

    /// Makes single directives unreadable for this node, or readable again.
    pub fn hide_entries(&self, hidden: bool) {
        self.reads.entries_hidden.store(hidden, Ordering::SeqCst);
    }

    /// Makes this run unreadable for this node, as if its row were damaged; `None`: all are readable.
    pub fn damage_run(&self, run: Option<RunKey>) {
        *self.reads.damaged_run.lock() = run;
    }

    /// Makes content unreadable for this node, or readable again.
    pub fn hide_content(&self, hidden: bool) {
        self.reads.content_hidden.store(hidden, Ordering::SeqCst);
    }

    /// Holds up lists of directives for this node, or lets them go.
    pub fn hold_directives(&self, held: bool) {
        self.reads.hold(&self.reads.directive_held, held);
    }

    /// Holds up reads of content for this node, or lets them go.
    pub fn hold_content(&self, held: bool) {
        self.reads.hold(&self.reads.content_held, held);
    }

    /// How often this node has read content.
    pub fn content_reads(&self) -> u64 {
        self.reads.content_read.load(Ordering::SeqCst)
    }

    /// How often this node has listed directives.
    pub fn directive_reads(&self) -> u64 {
        self.reads.directive_read.load(Ordering::SeqCst)
    }
}
