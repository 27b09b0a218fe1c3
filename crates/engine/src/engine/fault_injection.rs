//! Fault injection: the live tree by name, and how to make a part of it fail.
//!
//! Owns what fault tests need. Not reachable through any API.

use super::Engine;

impl Engine {
    /// The paths of all live actors, `root/gate/0` and so on.
    pub fn actors(&self) -> Vec<String> {
        self.tree.names()
    }

    /// How many actors the runtime knows in this tree; equals the number of [`Self::actors`].
    pub fn actor_count(&self) -> usize {
        self.tree.runtime_count()
    }

    /// The identity of the actor now living under a path; changes when it is started again.
    pub fn actor_id(&self, path: &str) -> Option<String> {
        self.tree.id(path)
    }

    /// Makes the actor under a path panic: fault injection. `false` when there is none.
    pub fn inject_fault(&self, path: &str) -> bool {
        self.tree.fail(path)
    }
}
