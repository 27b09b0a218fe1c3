//! What only a build for tests has: no feature that is on by default compiles any of it.

pub(crate) mod sabotage;
