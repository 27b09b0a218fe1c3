//! What goes wrong with reading, where a test asks for it.
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
    /// How many lists of approvals are answered still; nothing: all.
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
    /// So many lists of approvals are answered from now on, and then none; nothing: all.
    pub fn answer_lists(&self, lists: Option<u64>) {
        *self.reads.lists_left.lock() = lists;
    }

    /// Lists of the approval service's entries fail for this node from now on, or no longer: as where one of them is in a form it does not know.
    pub fn hide_directives(&self, hidden: bool) {
        self.reads.directive_hidden.store(hidden, Ordering::SeqCst);
    }

    /// Single entries of the approval service cannot be read by this node from now on, or can again.
    pub fn hide_entries(&self, hidden: bool) {
        self.reads.entries_hidden.store(hidden, Ordering::SeqCst);
    }

    /// This run cannot be read by this node from now on, as where its row is damaged; nothing: each can.
    pub fn damage_run(&self, run: Option<RunKey>) {
        *self.reads.damaged_run.lock() = run;
    }

    /// Content cannot be read by this node from now on, or can again.
    pub fn hide_content(&self, hidden: bool) {
        self.reads.content_hidden.store(hidden, Ordering::SeqCst);
    }

    /// Lists of the approval service's entries are not answered to this node from now on, or are again.
    pub fn hold_directives(&self, held: bool) {
        self.reads.hold(&self.reads.directive_held, held);
    }

    /// Content is not read by this node from now on, or is again.
    pub fn hold_content(&self, held: bool) {
        self.reads.hold(&self.reads.content_held, held);
    }

    /// How often this node has asked for content.
    #[must_use]
    pub fn content_reads(&self) -> u64 {
        self.reads.content_read.load(Ordering::SeqCst)
    }

    /// How often this node has asked for a list of the approval service's entries.
    #[must_use]
    pub fn directive_reads(&self) -> u64 {
        self.reads.directive_read.load(Ordering::SeqCst)
    }
}
