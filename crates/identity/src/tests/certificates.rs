//! Client certificates: whose they are, and tokens that are bound to one.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use placet_testkit::clock::TestClock;
use placet_types::{principal::PrincipalKind, proof::AuthType};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{NOW_S, Signer, claims_with, clock_at, issuer, key_set};
use crate::{
    ClientAuthority, ClientCertificate, IdentityConfig, IdentityError, KeySource, Presented,
    VerifiedCaller, Verifier,
};

/// An authority that signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn certificate(&self, change: impl FnOnce(&mut CertificateParams)) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2027, 1, 1);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        ClientCertificate::of_handshake(&[CertificateDer::from(made.der().to_vec())]).unwrap()
    }

    fn with_uris(&self, uris: &[&str]) -> ClientCertificate {
        let sans = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
        self.certificate(|params| params.subject_alt_names = sans)
    }

    fn with_name(&self, name: &str) -> ClientCertificate {
        let sans = vec![SanType::DnsName(name.try_into().unwrap())];
        self.certificate(|params| params.subject_alt_names = sans)
    }
}

/// A verifier that knows some authorities.
struct Known {
    folder: TempDir,
    verifier: Verifier,
}

impl Known {
    fn path(folder: &TempDir, name: &str) -> PathBuf {
        folder.path().join(format!("{name}.pem"))
    }

    /// Each with the rest of its configuration.
    fn new(authorities: &[(&str, &Authority, Value)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut all: Vec<ClientAuthority> = Vec::new();
        for (name, authority, rest) in authorities {
            let path = Self::path(&folder, name);
            fs::write(&path, &authority.pem).unwrap();
            let mut config = json!({ "name": name, "ca": path, "tenant": "acme" });
            for (key, value) in rest.as_object().unwrap() {
                config[key] = value.clone();
            }
            all.push(serde_json::from_value(config).unwrap());
        }
        let config = IdentityConfig { client_authorities: all, ..IdentityConfig::default() };
        let verifier = Verifier::new(config, clock_at(NOW_S), None).unwrap();
        Self { folder, verifier }
    }

    async fn caller(&self, shown: &ClientCertificate) -> Result<VerifiedCaller, IdentityError> {
        let presented = Presented { certificate: Some(shown), ..Presented::default() };
        self.verifier.caller(presented).await
    }

    async fn name_of(&self, shown: &ClientCertificate) -> Option<String> {
        let caller = self.caller(shown).await.ok()?;
        Some(caller.actor.principal().id.to_string())
    }
}

fn spiffe(domain: &str) -> Value {
    json!({ "trust_domain": domain, "workloads": { "below": "/agent/" } })
}

fn named(names: Value) -> Value {
    json!({ "workloads": { "names": names } })
}

#[tokio::test]
async fn a_spiffe_certificate_is_an_agent_until_its_time_is_over() {
    let ca = Authority::new("prod");
    let known = Known::new(&[("mesh", &ca, spiffe("prod.example"))]);
    let shown = ca.with_uris(&["spiffe://prod.example/agent/bot"]);
    let caller = known.caller(&shown).await.unwrap();
    assert_eq!(caller.chain().actor.id.as_str(), "bot");
    assert_eq!(caller.actor.kind(), PrincipalKind::Agent);
    assert_eq!(caller.actor.issuer(), "x509:mesh");
    assert_eq!(caller.actor.subject(), "spiffe://prod.example/agent/bot");
    let proof = caller.proof();
    assert_eq!((proof.actor.auth_type, proof.attested), (AuthType::X509Svid, true));
    assert_eq!(proof.actor.spiffe_id(), Some("spiffe://prod.example/agent/bot"));
    assert_eq!(caller.expires_at().as_ms(), 1_798_761_600_000, "2027-01-01");
    assert!(caller.actor.token_ref().starts_with("crt_"));
    assert_eq!(caller.actor.said_issued_at(), None, "a handshake is no moment of issue");

    let old = ca.certificate(|params| {
        params.subject_alt_names =
            vec![SanType::URI("spiffe://prod.example/agent/bot".try_into().unwrap())];
        params.not_after = date_time_ymd(2026, 9, 1);
    });
    let refused = known.caller(&old).await.unwrap_err();
    assert!(matches!(refused, IdentityError::CertificateRefused(_)), "{refused}");
    let late = ca.certificate(|params| {
        params.subject_alt_names =
            vec![SanType::URI("spiffe://prod.example/agent/bot".try_into().unwrap())];
        params.not_after = date_time_ymd(2055, 1, 1);
    });
    let caller = known.caller(&late).await.unwrap();
    assert_eq!(caller.expires_at().as_ms(), 2_682_374_400_000, "the other form of a time");
}

#[tokio::test]
async fn an_authority_names_only_its_own_workloads() {
    let (prod, test) = (Authority::new("prod"), Authority::new("test"));
    let mut other = spiffe("test.example");
    other["workloads"]["principal_prefix"] = json!("test:");
    let mut first = spiffe("prod.example");
    first["workloads"]["principal_prefix"] = json!("prod:");
    let known = Known::new(&[("prod", &prod, first), ("test", &test, other)]);
    let bot = "spiffe://prod.example/agent/bot";
    assert_eq!(known.name_of(&prod.with_uris(&[bot])).await.as_deref(), Some("prod:bot"));
    assert_eq!(known.name_of(&test.with_uris(&[bot])).await, None);
    let own = test.with_uris(&["spiffe://test.example/agent/bot"]);
    assert_eq!(known.name_of(&own).await.as_deref(), Some("test:bot"));
    let stranger = Authority::new("prod").with_uris(&[bot]);
    assert_eq!(known.name_of(&stranger).await, None, "an authority of the same name");
}

#[tokio::test]
async fn a_spiffe_certificate_has_one_uri_and_the_path_counts() {
    let ca = Authority::new("prod");
    let known = Known::new(&[("mesh", &ca, spiffe("prod.example"))]);
    for uris in [
        &["spiffe://prod.example/agent/bot", "spiffe://prod.example/agent/other"][..],
        &["spiffe://prod.example/agent/bot", "https://prod.example/"],
        &["spiffe://prod.example/db/one"],
        &["spiffe://prod.example"],
        &["https://prod.example/agent/bot"],
        &[],
    ] {
        assert_eq!(known.name_of(&ca.with_uris(uris)).await, None, "{uris:?}");
    }
    assert_eq!(known.name_of(&ca.with_name("bot.prod.example")).await, None);
}

#[tokio::test]
async fn a_name_in_the_certificate_is_who_the_configuration_says() {
    let ca = Authority::new("corp");
    let names = json!({
        "bot.corp.example": "bot", "bot-2.corp.example": "bot", "mail.corp.example": "mailer",
        "urn:corp:sync": "sync",
    });
    let known = Known::new(&[("corp", &ca, named(names))]);
    assert_eq!(known.name_of(&ca.with_name("bot.corp.example")).await.as_deref(), Some("bot"));
    assert_eq!(known.name_of(&ca.with_uris(&["urn:corp:sync"])).await.as_deref(), Some("sync"));
    let proof = known.caller(&ca.with_uris(&["urn:corp:sync"])).await.unwrap().proof();
    assert_eq!((proof.actor.auth_type, proof.attested), (AuthType::X509, true));
    assert_eq!(proof.actor.spiffe_id(), None);
    for unknown in ["x.corp.example", "bot.corp.example.evil.test", "BOT.corp.example"] {
        assert_eq!(known.name_of(&ca.with_name(unknown)).await, None, "{unknown}");
    }
    let two = |second: &str| {
        let sans = ["bot.corp.example", second];
        let sans = sans.map(|name| SanType::DnsName(name.try_into().unwrap())).to_vec();
        ca.certificate(|params| params.subject_alt_names = sans)
    };
    let named_twice = known.caller(&two("bot-2.corp.example")).await.unwrap().actor;
    assert_eq!(named_twice.principal().id.as_str(), "bot");
    let names: Vec<_> = named_twice.subjects().collect();
    assert_eq!(names, ["bot.corp.example", "bot-2.corp.example"], "it is revoked by either");
    assert_eq!(known.name_of(&two("mail.corp.example")).await, None, "two owners are none");
    // The subject's common name identifies nobody.
    let common = ca.certificate(|params| {
        params.distinguished_name.push(DnType::CommonName, "bot.corp.example");
    });
    assert_eq!(known.name_of(&common).await, None);
    // A certificate for servers is not one for clients.
    let server = ca.certificate(|params| {
        params.subject_alt_names = vec![SanType::DnsName("bot.corp.example".try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert_eq!(known.name_of(&server).await, None);
}

#[tokio::test]
async fn a_changed_authority_counts_without_a_restart_and_a_broken_file_changes_nothing() {
    let (old, new) = (Authority::new("old"), Authority::new("newer"));
    let known = Known::new(&[("mesh", &old, spiffe("prod.example"))]);
    let bot = &["spiffe://prod.example/agent/bot"];
    let (by_old, by_new) = (old.with_uris(bot), new.with_uris(bot));
    let authorities = known.verifier.client_authorities().unwrap();
    let path = Known::path(&known.folder, "mesh");
    assert!(!authorities.reload_if_changed().unwrap());
    for broken in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "x"] {
        fs::write(&path, broken).unwrap();
        assert!(authorities.reload_if_changed().is_err(), "{broken:?}");
        assert!(known.name_of(&by_old).await.is_some());
    }
    fs::write(&path, format!("{}{}", old.pem, new.pem)).unwrap();
    assert!(authorities.reload_if_changed().unwrap());
    assert!(known.name_of(&by_old).await.is_some() && known.name_of(&by_new).await.is_some());
    fs::write(&path, &new.pem).unwrap();
    assert!(known.verifier.refresh().await.is_empty());
    assert!(known.name_of(&by_old).await.is_none() && known.name_of(&by_new).await.is_some());
}

#[tokio::test]
async fn an_authority_is_read_again_whatever_has_become_of_the_file_of_another() {
    let (old, new, other) = (Authority::new("old"), Authority::new("new"), Authority::new("other"));
    let mut prefixed = spiffe("other.example");
    prefixed["workloads"]["principal_prefix"] = json!("other:");
    let mut own = spiffe("prod.example");
    own["workloads"]["principal_prefix"] = json!("prod:");
    let known = Known::new(&[("mesh", &old, own), ("other", &other, prefixed)]);
    let bot = new.with_uris(&["spiffe://prod.example/agent/bot"]);
    let of_other = other.with_uris(&["spiffe://other.example/agent/bot"]);
    let authorities = known.verifier.client_authorities().unwrap();
    let before = authorities.generation();
    fs::remove_file(Known::path(&known.folder, "other")).unwrap();
    fs::write(Known::path(&known.folder, "mesh"), &new.pem).unwrap();
    let problem = authorities.reload_if_changed().unwrap_err().to_string();
    assert!(problem.contains("other"), "{problem}");
    assert!(authorities.generation() > before, "listeners take what was read");
    assert!(known.name_of(&bot).await.is_some(), "its authority was not read again");
    assert!(known.name_of(&of_other).await.is_some(), "it is used on for a while");
    assert!(authorities.reload_if_changed().is_err());
    assert_eq!(authorities.generation(), before + 1, "what is read already is read again");
}

#[tokio::test]
async fn an_authority_that_is_replaced_by_one_of_the_same_length_at_the_same_moment_is_noticed() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let known = Known::new(&[("mesh", &old, spiffe("prod.example"))]);
    let path = Known::path(&known.folder, "mesh");
    let at = fs::metadata(&path)
        .unwrap()
        .modified()
        .unwrap()
        .checked_add(Duration::from_secs(1))
        .unwrap();
    // Longer than either, so that the first writing is a change too.
    let length = old.pem.len().max(new.pem.len()) + 1;
    let write = |authority: &Authority| {
        fs::write(&path, format!("{:<length$}", authority.pem)).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
    };
    let authorities = known.verifier.client_authorities().unwrap();
    write(&old);
    assert!(authorities.reload_if_changed().unwrap());
    assert!(!authorities.reload_if_changed().unwrap());
    write(&new);
    assert!(authorities.reload_if_changed().unwrap());
    assert!(known.name_of(&new.with_uris(&["spiffe://prod.example/agent/bot"])).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_authority_whose_file_is_gone_is_used_for_an_hour_and_readiness_says_so() {
    let (gone, there) = (Authority::new("gone"), Authority::new("there"));
    let mut prefixed = spiffe("there.example");
    prefixed["workloads"]["principal_prefix"] = json!("there:");
    let mut own = spiffe("prod.example");
    own["workloads"]["principal_prefix"] = json!("prod:");
    let known = Known::new(&[("gone", &gone, own), ("there", &there, prefixed)]);
    let bot = gone.with_uris(&["spiffe://prod.example/agent/bot"]);
    let other = there.with_uris(&["spiffe://there.example/agent/bot"]);
    let verifier = &known.verifier;
    let notes = || (verifier.issuers_with_old_keys(), verifier.issuers_without_keys());
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    verifier.refresh().await;
    assert_eq!(notes(), (vec![], vec![]));
    let path = Known::path(&known.folder, "gone");
    fs::remove_file(&path).unwrap();
    verifier.refresh().await;
    assert_eq!(notes(), (named(&["x509:gone"]), vec![]));
    assert!(known.caller(&bot).await.is_ok(), "it is used on");
    tokio::time::advance(Duration::from_secs(3_601)).await;
    verifier.refresh().await;
    assert_eq!(notes(), (vec![], named(&["x509:gone"])));
    let refused = known.caller(&bot).await.unwrap_err();
    assert_eq!(refused, IdentityError::KeysUnavailable("x509:gone".to_owned()));
    assert!(known.caller(&other).await.is_ok(), "the file of the other is there");
    fs::write(&path, &gone.pem).unwrap();
    verifier.refresh().await;
    assert_eq!(notes(), (vec![], vec![]));
    assert!(known.caller(&bot).await.is_ok());
}

#[tokio::test]
async fn a_token_that_is_bound_to_a_certificate_counts_only_with_it() {
    let signer = Signer::es256("k1");
    let ca = Authority::new("prod");
    let (own, other) = (ca.with_name("bot.example"), ca.with_name("bot.example"));
    let issuers = vec![issuer(KeySource::Inline(key_set(&[&signer])))];
    let config = IdentityConfig { issuers, ..IdentityConfig::default() };
    let verifier = Verifier::new(config, clock_at(NOW_S), None).unwrap();
    let bound_to = |client: &str| {
        let mut bound = claims_with("cnf", json!({ "x5t#S256": own.thumbprint() }));
        bound["client_id"] = json!(client);
        signer.sign(&bound)
    };
    let (bound, delegation) = (bound_to("cli"), bound_to("portal"));
    for (certificate, accepted) in [(Some(&own), true), (Some(&other), false), (None, false)] {
        let presented = Presented { token: Some(&bound), certificate, ..Presented::default() };
        let caller = verifier.caller(presented).await;
        assert_eq!(caller.is_ok(), accepted, "{certificate:?}: {caller:?}");
        // The same for the user's token.
        let mut agent = claims_with("sub", json!("bot"));
        agent["placet_kind"] = json!("agent");
        agent["client_id"] = json!("portal");
        let agent = signer.sign(&agent);
        let presented =
            Presented { token: Some(&agent), delegation: Some(&delegation), certificate };
        let caller = verifier.caller(presented).await;
        assert_eq!(caller.is_ok(), accepted);
        // The user's token is bound, and the agent's own proves nothing of the workload.
        assert!(!caller.is_ok_and(|caller| caller.proof().attested));
    }
    let mut own_token = claims_with("cnf", json!({ "x5t#S256": own.thumbprint() }));
    own_token["placet_kind"] = json!("agent");
    own_token["client_id"] = json!("portal");
    let own_token = signer.sign(&own_token);
    let presented =
        Presented { token: Some(&own_token), certificate: Some(&own), delegation: None };
    let proof = verifier.caller(presented).await.unwrap().proof();
    assert_eq!((proof.actor.auth_type, proof.attested), (AuthType::BoundJwt, true));
    for value in [
        json!({ "jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I" }),
        json!({ "x5t#S256": own.thumbprint(), "jkt": "x" }),
        json!({ "x5t#S256": "short" }),
        json!({}),
        json!("x"),
    ] {
        let token = signer.sign(&claims_with("cnf", value.clone()));
        let presented =
            Presented { token: Some(&token), certificate: Some(&own), delegation: None };
        assert!(verifier.caller(presented).await.is_err(), "{value}");
    }
}

/// What a connection with a certificate of the agent `bot` and these tokens is taken for.
async fn beside_a_certificate(
    token: &Value,
    delegation: Option<&Value>,
) -> Result<VerifiedCaller, IdentityError> {
    let (signer, ca) = (Signer::es256("k1"), Authority::new("corp"));
    let folder = tempfile::tempdir().unwrap();
    let path = Known::path(&folder, "corp");
    fs::write(&path, &ca.pem).unwrap();
    let corp = json!({
        "name": "corp", "ca": path, "tenant": "acme", "workloads": { "names": { "bot.example": "bot" } },
    });
    let mut trusted = issuer(KeySource::Inline(key_set(&[&signer])));
    trusted.act = Some(crate::ActingRule::default());
    let config = IdentityConfig {
        issuers: vec![trusted],
        client_authorities: vec![serde_json::from_value(corp).unwrap()],
        ..IdentityConfig::default()
    };
    let verifier = Verifier::new(config, clock_at(NOW_S), None).unwrap();
    let (token, delegation) = (signer.sign(token), delegation.map(|claims| signer.sign(claims)));
    let shown = |certificate| Presented {
        token: Some(&token),
        delegation: delegation.as_deref(),
        certificate,
    };
    // Without a certificate, and with one that identifies nobody here, each token is what it says.
    let person = ca.with_name("laptop.example");
    for certificate in [None, Some(&person)] {
        verifier.caller(shown(certificate)).await.unwrap();
    }
    verifier.caller(shown(Some(&ca.with_name("bot.example")))).await
}

#[tokio::test]
async fn anyone_who_shows_an_agents_certificate_calls_as_that_agent_or_not_at_all() {
    let user = claims_with("client_id", json!("cli"));
    let agent = |name: &str| {
        let mut claims = claims_with("sub", json!(name));
        (claims["placet_kind"], claims["client_id"]) = (json!("agent"), json!("app"));
        claims
    };
    let delegation = claims_with("client_id", json!("app"));
    let held = beside_a_certificate(&user, None).await.unwrap_err();
    assert!(matches!(held, IdentityError::HeldByAgent(_)), "{held}");
    let another = beside_a_certificate(&agent("other"), None).await.unwrap_err();
    assert_eq!(another, IdentityError::CertificateRefused("the token is another caller's"));
    assert_eq!(
        beside_a_certificate(&agent("other"), Some(&delegation)).await.unwrap_err(),
        another
    );
    let both = |actor: &str| claims_with("act", json!({ "sub": actor }));
    assert_eq!(beside_a_certificate(&both("other"), None).await.unwrap_err(), another);
    assert!(beside_a_certificate(&agent("bot"), None).await.is_ok());
    assert!(beside_a_certificate(&agent("bot"), Some(&delegation)).await.is_ok());
    assert!(beside_a_certificate(&both("bot"), None).await.is_ok());
}

#[tokio::test]
async fn each_request_of_a_connection_checks_its_certificate_again() {
    let ca = Authority::new("prod");
    let clock = clock_at(NOW_S);
    let mut known = Known::new(&[("mesh", &ca, spiffe("prod.example"))]);
    known.verifier = {
        let config = IdentityConfig {
            client_authorities: vec![
                serde_json::from_value(json!({
                    "name": "mesh", "ca": Known::path(&known.folder, "mesh"), "tenant": "acme",
                    "trust_domain": "prod.example", "workloads": { "below": "/agent/" },
                }))
                .unwrap(),
            ],
            ..IdentityConfig::default()
        };
        Verifier::new(config, Arc::<TestClock>::clone(&clock), None).unwrap()
    };
    let authorities = known.verifier.client_authorities().unwrap().clone();
    let shown = ca.with_uris(&["spiffe://prod.example/agent/bot"]);
    assert_eq!(known.name_of(&shown).await.as_deref(), Some("bot"));
    clock.set((1_798_761_600 + 1) * 1_000);
    assert!(known.name_of(&shown).await.is_none(), "it has ended");
    clock.set(NOW_S * 1_000);
    assert!(known.name_of(&shown).await.is_some());
    // Another authority in its place: the very next request of the same connection is refused.
    fs::write(Known::path(&known.folder, "mesh"), &Authority::new("new").pem).unwrap();
    assert!(authorities.reload_if_changed().unwrap());
    assert!(known.name_of(&shown).await.is_none());
}

#[tokio::test]
async fn nothing_and_an_unknown_certificate_are_nobody() {
    let known = Known::new(&[("mesh", &Authority::new("a"), spiffe("prod.example"))]);
    let nothing = known.verifier.caller(Presented::default()).await.unwrap_err();
    assert_eq!(nothing, IdentityError::NothingShown);
    let stranger = Authority::new("b").with_uris(&["spiffe://prod.example/agent/bot"]);
    let refused = known.caller(&stranger).await.unwrap_err();
    assert_eq!(refused.refusal().message, "the client certificate is not valid for this service");
    assert!(ClientCertificate::of_handshake(&[]).is_none());
}
