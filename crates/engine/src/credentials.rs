//! What calls are sent with: static secrets, the broker that mints, and what was handed out.
//!
//! Owns only the bundle of these handles. How a credential is planned and proved is in `stages::credential`.

mod faults;

use std::sync::Arc;

use placet_credentials::Broker;
use placet_identity::Secrets;
use placet_telemetry::metrics::Metrics;
use placet_types::clock::Clock;

use crate::adapters::known_secrets::KnownSecrets;

pub(crate) use faults::CredentialFaults;

/// Where credentials come from.
#[derive(Debug)]
pub(crate) struct Credentials {
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) broker: Broker,
    pub(crate) clock: Arc<dyn Clock>,
    /// Secrets given to adapters, kept out of what they return.
    pub(crate) known: KnownSecrets,
    pub(crate) faults: CredentialFaults,
    pub(crate) metrics: Metrics,
}
