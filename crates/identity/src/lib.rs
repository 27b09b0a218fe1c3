//! Callers' verified identity from bearer tokens, SVIDs and client certificates, the development key, and static secrets for outbound
//! calls.
//!
//! Owns the only verifier of tokens, the key sets it checks against, the binding of a workload's token to a user's delegation, sign-in of
//! people with an OpenID provider, the local development key, and the reading of secrets at the time of use, from files, the environment
//! and the agent of the SPIFFE Workload API. Does not decide what anybody may do, opens no sockets itself, reads no clock and no
//! environment.
//!
//! Invariants, written as absences:
//! - no [`VerifiedToken`] exists whose signature, issuer, audience, type and times were not checked;
//! - no [`VerifiedCaller`] exists whose delegation names another actor or another tenant;
//! - no type in here shows a token or a secret when it is printed.

mod caller;
mod certificate;
mod claims;
mod config;
mod dev;
mod error;
mod inbound;
mod jitter;
mod jws;
mod key_cache;
mod key_set;
mod remembered;
mod sealed;
mod sealing;
mod secrets;
mod sign_in;
mod sign_in_proof;
mod signature;
mod spiffe;
mod token;
mod verifier;
mod workload_api;

pub use caller::VerifiedCaller;
pub use certificate::{ClientAuthorities, ClientCertificate, not_after};
pub use config::{
    ActingRule, Algorithm, ClientAuthority, IdentityConfig, IssuerConfig, KIND_CLAIM, KeySource,
    KindRule, LEEWAY_S_MAX, TrustDomainConfig, WorkloadNames,
};
pub use dev::{
    DEV_ISSUER, DEV_LIFETIME_S_MAX, DevKey, MintRequest, SIGN_IN_CODE_MS, SignInCode,
    refuse_off_loopback,
};
pub use error::{IdentityError, KeyError, SetupError};
pub use inbound::Presented;
pub use placet_egress::{file_digest, read_bounded};
pub use sealed::{Acting, ActorClaim, SubjectToken, TokenFacts};
pub use secrets::{LiveSecret, LiveVersion, SecretError, SecretSource, Secrets, SvidKeeper};
pub use sign_in::{
    Beginning, Callback, Provider, SignInConfig, SignInError, SignedIn, basic_authorization,
    fresh_text,
};
pub use sign_in_proof::SignInProof;
pub use token::{TokenRole, VerifiedToken};
pub use verifier::{NextIssuers, Verifier};

#[cfg(test)]
mod tests;
