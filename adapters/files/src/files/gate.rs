//! The point of no return of one call.
//!
//! A blocking operation cannot be cancelled. So that a call that runs out of time can still be answered truthfully, the operation
//! passes its gate right before its first visible change, and a caller that stops waiting closes it. Invariant: exactly one of the
//! two happens first; a closed gate is never passed, so a call answered with "nothing happened" changes nothing afterwards.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

const OPEN: u8 = 0;
const PASSED: u8 = 1;
const CLOSED: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU8);

impl Gate {
    /// Whether the operation may change something; once passed, it may continue.
    pub(crate) fn pass(&self) -> bool {
        self.turn(PASSED) == PASSED
    }

    /// Whether the operation is kept from ever changing anything.
    pub(crate) fn close(&self) -> bool {
        self.turn(CLOSED) == CLOSED
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst) == CLOSED
    }

    /// Moves an open gate to `wanted`; returns its state afterwards.
    fn turn(&self, wanted: u8) -> u8 {
        match self.0.compare_exchange(OPEN, wanted, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => wanted,
            Err(standing) => standing,
        }
    }
}

/// Closes the gate when the caller that waits for the operation goes away.
#[derive(Debug)]
pub(crate) struct CloseOnDrop(pub(crate) Arc<Gate>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        // A gate that was passed before stays passed.
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::Gate;

    #[test]
    fn a_closed_gate_is_never_passed() {
        let gate = Gate::default();
        assert!(gate.close());
        assert!(!gate.pass());
        assert!(gate.is_closed());
        assert!(gate.close());
    }

    #[test]
    fn a_passed_gate_is_never_closed() {
        let gate = Gate::default();
        assert!(gate.pass());
        assert!(!gate.close());
        assert!(!gate.is_closed());
        assert!(gate.pass());
    }

    #[test]
    fn of_two_that_race_exactly_one_wins() {
        for _ in 0..500 {
            let gate = Arc::new(Gate::default());
            let other = Arc::clone(&gate);
            let passer = thread::spawn(move || other.pass());
            let closed = gate.close();
            assert_ne!(passer.join().unwrap(), closed);
        }
    }
}
