//! The start of a connection: `initialize`, or `server/discover` from revision 2026-07-28 on.
//!
//! Owns which revisions are supported and what a failed start means. Does not compare the result with a contract: the connector
//! does. Invariant: no tool is called during a handshake, so a failure never leaves an effect in doubt.

use rmcp::{
    model::{ErrorCode, ProtocolVersion},
    service::{
        ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService,
    },
    transport::Transport,
};

use placet_adapter::outcome::AdapterError;

use crate::{
    failure,
    listener::{Heard, Listener},
    text::whole,
};

/// The revisions that a contract may pin, newest first.
pub(crate) const SUPPORTED: [ProtocolVersion; 5] = [
    ProtocolVersion::V_2026_07_28,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2024_11_05,
];

/// An established connection.
pub(crate) type Service = RunningService<RoleClient, Listener>;

/// Performs the handshake of `version`.
pub(crate) async fn shake<T>(
    transport: T,
    listener: Listener,
    version: &ProtocolVersion,
) -> Result<Service, AdapterError>
where
    T: Transport<RoleClient> + 'static,
{
    let lifecycle = if version.has_initialize() {
        ClientLifecycleMode::Initialize
    } else {
        ClientLifecycleMode::Discover { preferred_versions: vec![version.clone()] }
    };
    let heard = Heard { transport, listener: listener.clone() };
    listener.serve_with_lifecycle(heard, lifecycle).await.map_err(|error| meaning(&error, version))
}

fn meaning(error: &ClientInitializeError, version: &ProtocolVersion) -> AdapterError {
    let garbled =
        || AdapterError::InvalidResponse("its answer to the handshake is none".to_owned());
    if let ClientInitializeError::TransportError { error, .. } = error {
        return failure::of_transport(error).into_handshake_error();
    }
    if let ClientInitializeError::JsonRpcError(error) = error {
        let said = whole(&error.message);
        // A server of an older revision does not know `server/discover` at all.
        let is_older = !version.has_initialize() && error.code != ErrorCode::INTERNAL_ERROR;
        return if is_older || error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION {
            AdapterError::SchemaMismatch(format!(
                "it does not support the protocol version `{version}`: {said}"
            ))
        } else {
            AdapterError::Refused(format!(
                "it refused the handshake with code {}: {said}",
                error.code.0
            ))
        };
    }
    if let ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } = error {
        let spoken = server_supported.iter().take(8).map(|v| whole(v.as_str())).collect::<Vec<_>>();
        return AdapterError::SchemaMismatch(format!(
            "it supports only the protocol versions `{}`",
            spoken.join(", ")
        ));
    }
    if let ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled = error {
        return AdapterError::Unavailable("it ended before the handshake was complete".to_owned());
    }
    garbled()
}
