//! Hosts and origins that are taken, and the many that are not.

use http::{HeaderMap, HeaderValue, Uri, header};

use super::Guard;

fn guard(hosts: &[&str], origins: &[&str]) -> Guard {
    let own = |list: &[&str]| list.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
    Guard::new("127.0.0.1:7411".parse().unwrap(), &own(hosts), &own(origins)).unwrap()
}

fn headers(hosts: &[&str], origins: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for host in hosts {
        headers.append(header::HOST, HeaderValue::from_str(host).unwrap());
    }
    for origin in origins {
        headers.append(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
    }
    headers
}

fn is_taken(guard: &Guard, hosts: &[&str], origins: &[&str]) -> bool {
    guard.check(&Uri::from_static("/v1/tools"), &headers(hosts, origins)).is_ok()
}

#[test]
fn loopback_names_with_the_port_are_taken() {
    let guard = guard(&[], &[]);
    for host in [
        "localhost:7411",
        "LocalHost:7411",
        "127.0.0.1:7411",
        "[::1]:7411",
        "[0:0:0:0:0:0:0:1]:7411",
    ] {
        assert!(is_taken(&guard, &[host], &[]), "{host}");
    }
}

#[test]
fn any_other_host_is_refused() {
    let guard = guard(&["placet.example", "other.example:99"], &[]);
    for host in [
        "",
        "localhost",
        "localhost:80",
        "localhost:7411:7411",
        "localhost:+7411",
        "localhost.:7411",
        "evil.example:7411",
        "[::1].evil.example:7411",
        "[::1]evil:7411",
        "::1:7411",
        "[127.0.0.1]:7411",
        "user@localhost:7411",
        "localhost:7411@evil.example",
        "127.0.0.1.evil.example:7411",
        "127.1:7411",
        "0x7f.1:7411",
        "other.example",
        "other.example:98",
        "localhost:7411/",
        "localhost:7411, evil.example",
    ] {
        assert!(!is_taken(&guard, &[host], &[]), "{host}");
    }
    assert!(!is_taken(&guard, &[], &[]), "no host");
    assert!(!is_taken(&guard, &["localhost:7411", "localhost:7411"], &[]), "two hosts");
    for host in ["placet.example", "placet.example:443", "PLACET.example:1", "other.example:99"] {
        assert!(is_taken(&guard, &[host], &[]), "{host}");
    }
}

#[test]
fn a_request_line_with_another_host_is_refused() {
    let headers = headers(&["localhost:7411"], &[]);
    let check = |uri: &'static str| guard(&[], &[]).check(&Uri::from_static(uri), &headers).is_ok();
    assert!(check("http://localhost:7411/v1/tools"));
    assert!(!check("http://evil.example/v1/tools"));
}

#[test]
fn an_origin_is_refused_unless_it_is_in_the_list() {
    let host = ["localhost:7411"];
    let closed = guard(&[], &[]);
    assert!(is_taken(&closed, &host, &[]));
    for origin in ["null", "http://localhost:7411", "https://evil.example", ""] {
        assert!(!is_taken(&closed, &host, &[origin]), "{origin}");
    }
    let open = guard(&[], &["https://console.example"]);
    assert!(is_taken(&open, &host, &["https://console.example"]));
    for origins in [
        &["http://console.example"][..],
        &["https://console.example.evil.example"],
        &["https://console.example:444"],
        &["null"],
        &["https://console.example", "https://console.example"],
        &["https://console.example", "https://evil.example"],
    ] {
        assert!(!is_taken(&open, &host, origins), "{origins:?}");
    }
}

#[test]
fn only_the_admin_api_takes_any_address_and_even_it_no_other_name() {
    let plain = guard(&[], &[]);
    let admin = plain.clone().with_addresses_allowed();
    for host in ["10.1.2.3:7412", "[fd00::1]:7412"] {
        assert!(is_taken(&admin, &[host], &[]), "{host}");
        assert!(!is_taken(&plain, &[host], &[]), "{host}");
    }
    assert!(!is_taken(&admin, &["evil.example:7412"], &[]));
    assert!(!is_taken(&admin, &["10.1.2.3:7412"], &["http://evil.example"]));
}

#[test]
fn an_entry_that_is_no_host_or_origin_is_refused_at_start() {
    let bound = "127.0.0.1:7411".parse().unwrap();
    for host in ["", "*", "https://placet.example", "placet.example:http", "placet example"] {
        assert!(Guard::new(bound, &[host.to_owned()], &[]).is_err(), "{host}");
    }
    for origin in [
        "",
        "*",
        "null",
        "placet.example",
        "https://placet.example/",
        "ftp://placet.example",
        "https://",
    ] {
        assert!(Guard::new(bound, &[], &[origin.to_owned()]).is_err(), "{origin}");
    }
}
