//! The operations about what decides on a node.

use placet_engine::views::status::{ReloadRequest, ReloadView, StatusView};
use utoipa::openapi::path::OperationBuilder;

use super::{body, ok, start};

pub(in crate::openapi) fn show() -> OperationBuilder {
    start("showStatus", "status", "What decides on this node, and whether the files on disk differ")
        .description(Some(
            "For every verified caller: digests, the epoch, and since when. Where nodes share a ledger, `epoch_elsewhere` is the epoch that \
             another node has activated and this one does not have; it decides nothing until it has the same files.",
        ))
        .response("200", ok::<StatusView>("What is active"))
}

pub(in crate::openapi) fn reload() -> OperationBuilder {
    start("reload", "status", "Reads policies, contracts, directory and issuers again; for operators")
        .description(Some(
            "All or nothing: everything is read and checked as at a start, and files that cannot be used change nothing and are named in \
             `problems`. Every call is decided by what was active before or by what is active now, never by a mixture. Of the rest of the \
             configuration, `needs_restart` names the keys that have changed.",
        ))
        .request_body(Some(body::<ReloadRequest>()))
        .response("200", ok::<ReloadView>("What changed, and what is active now"))
}
