//! A client's secret that is rotated here before the provider knows it.

use super::*;

#[tokio::test]
async fn a_client_whose_newest_secret_is_not_known_yet_shows_the_one_before_once() {
    let world = World::new(|config, _| config.client_secret = Some("console".to_owned())).await;
    world.says.lock().metadata["token_endpoint_auth_methods_supported"] =
        json!(["client_secret_post"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "older-secret").unwrap();
    let source = SecretSource::File(file.path().to_owned());
    let secrets = Secrets::new([("console".to_owned(), source)].into());
    secrets.get("console").unwrap();
    let (config, _) = world.parts.clone();
    let policy = EgressPolicy::new(config.destinations().unwrap());
    let egress = EgressClient::new(policy, Limits::default()).unwrap();
    let clock: Arc<dyn Clock> = clock_at(NOW_S);
    let provider = Provider::new(config, world.verifier.clone(), secrets, egress, clock);
    let url = world.begin(false).await.unwrap();
    world.give(&world.id_token(&world.claims(&url)));
    let posts = || {
        let asked = world.asked().into_iter().filter(|(head, _)| head.starts_with("POST"));
        asked.map(|(_, body)| body).collect::<Vec<_>>()
    };
    std::fs::write(file.path(), "newer-secret").unwrap();
    let mut before = 0;
    for (turned_away, answer, tries, passes) in [
        ("newer-secret", (401, "{}"), 2, true),
        ("newer-secret", (400, "{\"error\":\"invalid_client\"}"), 2, true),
        ("secret", (401, "{}"), 2, false),
        ("newer-secret", (400, "{\"error\":\"invalid_grant\"}"), 1, false),
        ("newer-secret", (503, "{}"), 1, false),
        ("another", (401, "{}"), 1, true),
    ] {
        let answer = (answer.0, answer.1.to_owned());
        world.says.lock().turns_away = Some((turned_away.to_owned(), answer.clone()));
        let back = provider.finish(BROWSER, world.back(&url)).await;
        assert_eq!(back.is_ok(), passes, "{turned_away} {answer:?}");
        let posts = posts();
        assert_eq!(posts.len() - before, tries, "{turned_away} {answer:?}");
        assert!(posts[before].contains("newer-secret"), "the newest comes first");
        before = posts.len();
    }
}
