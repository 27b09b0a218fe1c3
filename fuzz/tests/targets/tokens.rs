//! Bearer tokens.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use placet_identity::{DevKey, IdentityConfig, MintRequest, TokenRole, Verifier};
use placet_testkit::clock::TestClock;
use placet_types::ids::{PrincipalId, TenantId};
use placet_types::principal::PrincipalKind;

use crate::fuzz;

#[test]
fn no_token_but_the_one_that_was_signed_is_accepted() {
    let (key, tenant) = (DevKey::generate().unwrap(), TenantId::new("acme").unwrap());
    let audiences = BTreeSet::from(["placet".to_owned()]);
    let issuer =
        key.issuer_config(IpAddr::V4(Ipv4Addr::LOCALHOST), tenant.clone(), audiences).unwrap();
    let config = IdentityConfig { issuers: vec![issuer], ..IdentityConfig::default() };
    let clock = TestClock::at(1_800_000_000_000);
    let verifier = Verifier::new(config, Arc::<TestClock>::clone(&clock), None).unwrap();
    let agent = PrincipalId::new("scribe").unwrap();
    let token = key
        .mint(&MintRequest::new(tenant, PrincipalKind::Agent, agent, "placet"), &*clock)
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let verify = |token: &str| runtime.block_on(verifier.verify(token, TokenRole::Actor)).is_ok();
    assert!(verify(&token));
    let (token, verify) =
        (std::panic::AssertUnwindSafe(token), std::panic::AssertUnwindSafe(verify));
    fuzz!(3_000, move |input| {
        let bytes = input.apply(&[token.as_bytes()]);
        let Ok(text) = std::str::from_utf8(&bytes) else { return };
        assert_eq!(verify(text), *text == **token, "`{text}` is taken for `{}`", *token);
    });
}
