//! The pipeline against a store in memory and an adapter that keeps its own witness.
//!
//! Owns the behaviour of a whole engine without listeners: the way of a call, duplicates, approvals, faults of actors, schedules. What
//! needs a disk, a network or a process is in the end-to-end tests. `#[cfg(test)]` tells the lints that a module is test code.

#[cfg(test)]
mod fake;
#[cfg(test)]
mod world;

#[cfg(test)]
mod approval_service;
#[cfg(test)]
mod approvals;
#[cfg(test)]
mod attached;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod embedded;
#[cfg(test)]
mod evidence;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod identities;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod references;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod sent_again;
#[cfg(test)]
mod stops;
#[cfg(test)]
mod taint;
#[cfg(test)]
mod told;
#[cfg(test)]
mod uncertain;
