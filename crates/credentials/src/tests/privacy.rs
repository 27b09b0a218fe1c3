//! What is printed, and what is not.

use std::fmt::Debug;

use super::support::{
    AGENT_TOKEN, NOW, ORIGIN, SECRET, Service, USER_TOKEN, good, request, tokens,
};
use crate::{
    AssertionAudience, Bearer, Broker, BrokerError, CallTokens, ClientAuth, ConfigError, Grant,
    GrantRequest, Leniency, PresentedAs, Purge, Remedy, Revoked, StsConfig, SubjectName,
};

/// The public types of this crate, each printable; that none is missing here is looked up below.
const fn is_printable<T: Debug>() {}
const _: () = {
    is_printable::<AssertionAudience>();
    is_printable::<Bearer<'_>>();
    is_printable::<Broker>();
    is_printable::<BrokerError>();
    is_printable::<CallTokens>();
    is_printable::<ClientAuth>();
    is_printable::<ConfigError>();
    is_printable::<Grant>();
    is_printable::<GrantRequest>();
    is_printable::<Leniency>();
    is_printable::<PresentedAs>();
    is_printable::<Purge>();
    is_printable::<Remedy>();
    is_printable::<Revoked>();
    is_printable::<StsConfig>();
    is_printable::<SubjectName>();
};

#[tokio::test]
async fn debug_of_every_public_type_hides_secrets() {
    let service = Service::answering(200, good()).await;
    let (broker, _) = service.broker();
    let grant = broker.mint(request()).await.unwrap();
    let value = grant.value_for(ORIGIN, NOW).unwrap();
    let shown = format!(
        "{grant:?} {grant:#?} {:?} {value:?} {broker:?} {:?} {:?} {:?}",
        grant.used(),
        request(),
        tokens(),
        service.config(),
    );
    for secret in [USER_TOKEN, AGENT_TOKEN, SECRET, "minted-token-1", "c4nary"] {
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
    // It can be found at all.
    assert!(format!("{shown}{}", good()).contains("minted-token-1"));
}

#[test]
fn no_public_type_is_missing_in_the_list() {
    let (exported, own) = (include_str!("../lib.rs"), include_str!("privacy.rs"));
    let uses = exported.split("pub use ").skip(1).filter_map(|part| part.split(';').next());
    let names = uses.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let types: Vec<&str> =
        names.filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase())).collect();
    assert!(types.len() > 15, "{types:?}");
    for name in types {
        let listed = [format!("is_printable::<{name}>"), format!("is_printable::<{name}<")];
        assert!(listed.iter().any(|line| own.contains(line)), "`{name}` is not in the list");
    }
}
