//! The configuration: one YAML file, everything with a default.
//!
//! Owns the file's form ([`file`], [`ledger`], [`console`], [`trust`]), its reading and check ([`load`], [`names`]). Does not read contracts, policies or the directory it
//! names: that is [`crate::world`].

mod args;
pub(crate) mod console;
pub(crate) mod file;
pub(crate) mod ledger;
pub(crate) mod load;
pub(crate) mod names;
pub(crate) mod otel;
pub(crate) mod trust;

#[cfg(test)]
mod tests;
