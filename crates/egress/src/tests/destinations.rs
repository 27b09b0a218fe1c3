//! Where requests may go: the allow-list, spellings of hosts, addresses, rebinding.

use std::sync::Arc;

use http::HeaderValue;
use url::Url;

use super::support::{Answers, Detour, Server, client, get, policy};
use crate::connect::{Dialling, TcpDial};
use crate::{
    Destination, EgressClient, EgressError, EgressPolicy, Limits, PrivateRanges, join_segments,
};

const OK: &[&str] = &["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"];

/// Sends a request that must be refused, and checks that no server saw a connection.
async fn refusal(client: &EgressClient, url: &str, server: &Server) -> EgressError {
    let refused = client.send(get(url)).await.unwrap_err();
    assert!(refused.nothing_was_sent(), "{url}: {refused}");
    assert_eq!(server.connections(), 0, "{url}");
    refused
}

#[tokio::test]
async fn a_client_without_destinations_dials_nothing() {
    let server = Server::answering(OK).await;
    let client = EgressClient::new(EgressPolicy::new(Vec::new()), Limits::default()).unwrap();
    let refused = refusal(&client, &server.url("/"), &server).await;
    assert!(matches!(refused, EgressError::DestinationRefused { .. }));
}

#[tokio::test]
async fn another_port_host_or_scheme_is_refused() {
    let server = Server::answering(OK).await;
    let port = server.address.port();
    let client = client(&[("http://localhost:1/", PrivateRanges::Allowed)], Limits::default());
    for url in [
        format!("http://localhost:{port}/"),
        format!("https://localhost:{port}/"),
        format!("http://127.0.0.1:{port}/"),
        "https://localhost:1/".to_owned(),
        "http://localhost.:1/".to_owned(),
    ] {
        let refused = refusal(&client, &url, &server).await;
        assert!(matches!(refused, EgressError::DestinationRefused { .. }), "{url}: {refused}");
    }
}

#[tokio::test]
async fn other_spellings_of_a_permitted_address_are_refused_in_requests() {
    let server = Server::answering(OK).await;
    let port = server.address.port();
    let client = server.client(Limits::default());
    for host in ["0x7f.1", "2130706433", "017700000001", "127.1", "0177.0.0.1", "127.0.0.1."] {
        let refused = refusal(&client, &format!("http://{host}:{port}/"), &server).await;
        assert!(matches!(refused, EgressError::RequestUnusable { .. }), "{host}: {refused}");
    }
    for host in ["[::ffff:7f00:1]", "[::7f00:1]", "[::1]", "localhost"] {
        let refused = refusal(&client, &format!("http://{host}:{port}/"), &server).await;
        assert!(matches!(refused, EgressError::DestinationRefused { .. }), "{host}: {refused}");
    }
}

#[tokio::test]
async fn a_listed_address_must_be_global_unless_private_ranges_are_allowed() {
    let server = Server::answering(OK).await;
    for host in [
        "0x7f.1",
        "2130706433",
        "017700000001",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "0.0.0.0",
        "10.0.0.1",
        "169.254.169.254",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ] {
        let url = Url::parse(&format!("https://{host}:{}/", server.address.port())).unwrap();
        let client = client(&[(url.as_str(), PrivateRanges::Refused)], Limits::default());
        let refused = refusal(&client, url.as_str(), &server).await;
        assert!(matches!(refused, EgressError::AddressRefused { .. }), "{host}: {refused}");
    }
}

#[tokio::test]
async fn unspecified_and_translated_addresses_are_refused_even_where_private_ranges_are_allowed() {
    let server = Server::answering(OK).await;
    for host in
        ["0.0.0.0", "[::]", "[64:ff9b::7f00:1]", "[::7f00:1]", "255.255.255.255", "224.0.0.1"]
    {
        let url = format!("http://{host}:{}/", server.address.port());
        let client = client(&[(&url, PrivateRanges::Allowed)], Limits::default());
        let refused = refusal(&client, &url, &server).await;
        assert!(matches!(refused, EgressError::AddressRefused { .. }), "{host}: {refused}");
    }
}

#[tokio::test]
async fn a_name_that_leads_to_cloud_metadata_is_refused_even_where_private_ranges_are_allowed() {
    let server = Server::answering(OK).await;
    for address in
        ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "fe80::1", "100.100.100.200"]
    {
        let resolver = Answers::new(&[&[address]]);
        let client =
            client(&[("http://tools.test:80/", PrivateRanges::Allowed)], Limits::default());
        let refused = refusal(&client.with_resolver(resolver), "http://tools.test/", &server).await;
        assert!(matches!(refused, EgressError::AddressRefused { .. }), "{address}: {refused}");
    }
}

#[tokio::test]
async fn one_private_address_among_global_ones_refuses_the_host() {
    let server = Server::answering(OK).await;
    for list in [
        ["93.184.216.34", "127.0.0.1"],
        ["127.0.0.1", "93.184.216.34"],
        ["2606:2800::1", "::ffff:10.0.0.1"],
    ] {
        let detour = Detour::to(server.address);
        let client = client(&[("https://tools.test/", PrivateRanges::Refused)], Limits::default())
            .with_resolver(Answers::new(&[&list]))
            .with_dialler(Arc::<Detour>::clone(&detour));
        let refused = refusal(&client, "https://tools.test/", &server).await;
        assert!(matches!(refused, EgressError::AddressRefused { .. }), "{list:?}: {refused}");
        assert!(detour.dialled().is_empty(), "{list:?}");
    }
}

#[tokio::test]
async fn a_host_is_resolved_once_for_a_connection_and_the_checked_address_is_dialled() {
    let server = Server::answering(OK).await;
    let detour = Detour::to(server.address);
    let resolver = Answers::new(&[&["93.184.216.34"], &["127.0.0.1"]]);
    let client = client(&[("https://tools.test/", PrivateRanges::Refused)], Limits::default())
        .with_resolver(Arc::<Answers>::clone(&resolver))
        .with_dialler(Arc::<Detour>::clone(&detour));

    // The network leads the checked address to loopback: the peer is looked at before a byte is written.
    let first = client.send(get("https://tools.test/")).await.unwrap_err();
    assert!(matches!(first, EgressError::PeerMismatch { .. }), "{first}");
    assert!(first.nothing_was_sent());
    assert_eq!(resolver.questions(), 1);
    assert_eq!(detour.dialled(), ["93.184.216.34:443".parse().unwrap()]);

    // The name is rebound: the next connection is checked again and not dialled.
    let second = client.send(get("https://tools.test/")).await.unwrap_err();
    assert!(matches!(second, EgressError::AddressRefused { .. }), "{second}");
    assert_eq!(resolver.questions(), 2);
    assert_eq!(detour.dialled().len(), 1);
}

#[tokio::test]
async fn plain_http_never_leaves_the_private_ranges() {
    let server = Server::answering(OK).await;
    let detour = Detour::to(server.address);
    let client = client(&[("http://tools.test/", PrivateRanges::Allowed)], Limits::default())
        .with_resolver(Answers::new(&[&["93.184.216.34"]]))
        .with_dialler(Arc::<Detour>::clone(&detour));
    let refused = refusal(&client, "http://tools.test/", &server).await;
    assert!(matches!(refused, EgressError::PlainHttpRefused { .. }), "{refused}");
    assert!(detour.dialled().is_empty());
}

#[tokio::test]
async fn our_own_listener_is_not_dialled() {
    let server = Server::answering(OK).await;
    let policy = policy(&[(&server.url("/"), PrivateRanges::Allowed)])
        .refusing_listeners(vec![server.address]);
    let client = EgressClient::new(policy, Limits::default()).unwrap();
    let refused = refusal(&client, &server.url("/"), &server).await;
    assert!(matches!(refused, EgressError::AddressRefused { .. }), "{refused}");
}

/// Loopback stands for an address of this machine that is not known to be one before the connection is open.
#[tokio::test]
async fn an_open_connection_that_ends_at_our_listener_on_all_addresses_is_not_used() {
    let server = Server::answering(OK).await;
    let url = server.url("/");
    let destination =
        Destination::from_url(&Url::parse(&url).unwrap(), PrivateRanges::Allowed).unwrap();
    let port = server.address.port();
    let dial = async |own: String| {
        let dialling = Dialling {
            policy: policy(&[(&url, PrivateRanges::Allowed)])
                .refusing_listeners(vec![own.parse().unwrap()]),
            limits: Limits::default(),
            resolver: Answers::new(&[]),
            dialler: Arc::new(TcpDial),
        };
        dialling.dial_checked(&destination, &[server.address]).await
    };
    for own in [format!("0.0.0.0:{port}"), format!("[::]:{port}")] {
        let refused = dial(own.clone()).await.unwrap_err();
        assert!(matches!(refused, EgressError::AddressRefused { .. }), "{own}: {refused}");
        assert!(refused.nothing_was_sent());
    }
    for other in ["0.0.0.0:1".to_owned(), format!("203.0.113.5:{port}")] {
        assert_eq!(dial(other).await.unwrap().peer_addr().unwrap(), server.address);
    }
}

#[tokio::test]
async fn a_resolver_without_a_usable_answer_is_a_failure_before_the_request() {
    let server = Server::answering(OK).await;
    let many = vec!["93.184.216.34"; 65];
    for list in [&[][..], &many] {
        let client = client(&[("https://tools.test/", PrivateRanges::Refused)], Limits::default())
            .with_resolver(Answers::new(&[list]));
        let refused = refusal(&client, "https://tools.test/", &server).await;
        assert!(matches!(refused, EgressError::ResolveFailed { .. }), "{refused}");
    }
}

#[tokio::test]
async fn requests_in_a_hostile_form_are_refused_before_dialling() {
    let server = Server::answering(OK).await;
    let client =
        server.client(Limits { request_bytes_max: 8, header_bytes_max: 64, ..Limits::default() });
    let mut requests = vec![
        get(&server.url("/a/../../admin")),
        get(&server.url("/users/%2e%2e/%2E%2E/admin")),
        get(&server.url("/").replace("http://", "http://user:secret@")),
        http::Request::connect(server.url("/")).body(bytes::Bytes::new()).unwrap(),
        http::Request::post(server.url("/")).body(bytes::Bytes::from_static(b"nine byte")).unwrap(),
        get("/relative"),
    ];
    for (name, value) in [
        ("host", "evil.test"),
        ("connection", "x-secret"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "Basic eA=="),
        ("proxy-connection", "keep-alive"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("expect", "100-continue"),
        ("content-length", "7"),
        ("x-long", "0123456789012345678901234567890123456789012345678901234567890123456789"),
    ] {
        let mut request = get(&server.url("/"));
        request.headers_mut().insert(name, HeaderValue::from_static(value));
        requests.push(request);
    }
    for request in requests {
        let shown = format!("{} {} {:?}", request.method(), request.uri(), request.headers());
        let refused = client.send(request).await.unwrap_err();
        let expected = matches!(
            refused,
            EgressError::RequestUnusable { .. } | EgressError::RequestTooLarge { .. }
        );
        assert!(expected && refused.nothing_was_sent(), "{shown}: {refused}");
        assert!(!refused.to_string().contains("secret"), "{shown}");
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn each_path_segment_stays_one_segment() {
    let base = Url::parse("https://example.com/api/").unwrap();
    for (segment, encoded) in [
        ("users", "users"),
        ("a/b", "a%2Fb"),
        ("//evil.test", "%2F%2Fevil.test"),
        ("\\\\evil.test", "%5C%5Cevil.test"),
        ("https://evil.test", "https:%2F%2Fevil.test"),
        ("../../admin", "..%2F..%2Fadmin"),
        ("%2e%2e", "%252e%252e"),
        ("a?b#c", "a%3Fb%23c"),
        ("ü", "%C3%BC"),
        ("...", "..."),
    ] {
        let joined = join_segments(&base, &[segment, "end"]).unwrap();
        assert_eq!(joined.as_str(), format!("https://example.com/api/{encoded}/end"), "{segment}");
        assert_eq!(Url::parse(joined.as_str()).unwrap(), joined, "{segment}");
    }
}

#[test]
fn segments_that_a_parser_would_drop_are_refused() {
    let base = Url::parse("https://example.com/api").unwrap();
    let long = "x".repeat(5000);
    for segment in [".", "..", "a\nb", "\t..", "a\0b", &long] {
        assert!(join_segments(&base, &["users", segment]).is_err(), "{segment:?}");
    }
    assert!(join_segments(&base, &["users", "", "x"]).is_err());
    assert!(join_segments(&base, &["", ""]).is_err());
    assert!(join_segments(&Url::parse("data:text/plain,x").unwrap(), &["x"]).is_err());
}

#[test]
fn an_empty_last_segment_is_a_slash_at_the_end() {
    for (base, segments, wanted) in [
        ("https://example.com", vec![""], "https://example.com/"),
        ("https://example.com/", vec![""], "https://example.com/"),
        ("https://example.com/api", vec![""], "https://example.com/api/"),
        ("https://example.com/api/", vec!["users", ""], "https://example.com/api/users/"),
    ] {
        let joined = join_segments(&Url::parse(base).unwrap(), &segments).unwrap();
        assert_eq!(joined.as_str(), wanted);
    }
}
