//! The commands, one module each.

pub(crate) mod adapters;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod console;
pub(crate) mod decisions;
pub(crate) mod difference;
pub(crate) mod directives;
pub(crate) mod doctor;
pub(crate) mod init;
pub(crate) mod ledger;
pub(crate) mod mcp;
pub(crate) mod notifications;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod reload;
pub(crate) mod report;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod times;
pub(crate) mod token;
pub(crate) mod tools;
