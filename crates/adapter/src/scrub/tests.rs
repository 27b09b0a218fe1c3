//! Secrets in every form in which tools say them again, and texts that only look like it.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
};
use placet_types::envelope::result::{Citation, Mutation};
use serde_json::json;

use super::*;

/// With everything that an encoder treats in its own way.
const SECRET: &str = "s3cret?>~ \u{ff}+%/\"\\value=";

fn scrub(values: &[&str]) -> Scrub {
    let values: Vec<SecretString> = values.iter().map(|value| SecretString::from(*value)).collect();
    Scrub::of(&values)
}

fn percent(every: bool, upper: bool, space: &str) -> String {
    let encoded = SECRET.bytes().map(|byte| match byte {
        b' ' => space.to_owned(),
        byte if !every && byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte if upper => format!("%{byte:02X}"),
        byte => format!("%{byte:02x}"),
    });
    encoded.collect()
}

fn hex(upper: bool) -> String {
    let digits = SECRET.bytes();
    if upper {
        digits.map(|byte| format!("{byte:02X}")).collect()
    } else {
        digits.map(|byte| format!("{byte:02x}")).collect()
    }
}

fn units() -> String {
    SECRET.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect()
}

#[test]
fn a_secret_is_found_in_every_form() {
    let scrub = scrub(&[SECRET]);
    let quoted = json!({ "said": SECRET }).to_string();
    let mut forms = vec![
        SECRET.to_owned(),
        quoted.clone(),
        quoted.replace('/', "\\/"),
        json!({ "inner": quoted }).to_string(),
        units(),
        hex(false),
        hex(true),
        format!("f{}", hex(false)),
    ];
    for every in [false, true] {
        for upper in [false, true] {
            for space in ["%20", "+"] {
                forms.push(percent(every, upper, space));
                forms.push(percent(every, upper, space).replace('%', "%25"));
            }
        }
    }
    let mixed: String = percent(true, true, "%20")
        .chars()
        .enumerate()
        .map(|(at, c)| if at % 2 == 0 { c.to_ascii_lowercase() } else { c })
        .collect();
    forms.push(mixed);
    for form in forms {
        let told = scrub.text(format!("kept <{form}> kept"));
        assert!(told.contains(REMOVED), "{form} is kept: {told}");
        let is_digits = form.bytes().all(|byte| byte.is_ascii_alphanumeric());
        assert!(!told.contains("s3cret") && !told.contains("value"), "{form}: {told}");
        assert!(told.starts_with("kept <") && told.ends_with("> kept"), "{form}: {told}");
        assert!(
            !is_digits || told == format!("kept <{REMOVED}> kept") || form.starts_with('f'),
            "{told}"
        );
    }
}

#[test]
fn a_secret_is_found_in_base64_with_anything_around_it() {
    let scrub = scrub(&[SECRET]);
    for engine in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD] {
        for before in ["", "u:", "me:", "user:", "someone:", "{\"password\":"] {
            for after in ["", "x", "\n", "yz", "abc"] {
                let encoded = engine.encode(format!("{before}{SECRET}{after}"));
                assert_eq!(
                    scrub.text(format!("Basic {encoded} kept")),
                    format!("Basic {REMOVED} kept"),
                    "{before:?} {after:?}"
                );
                // Stuck to other digits, as in an address.
                for glue in ["a", "ab", "abc"] {
                    let told = scrub.text(format!("<{glue}{encoded}>"));
                    assert_eq!(told, format!("<{REMOVED}>"), "{glue} {before:?} {after:?}");
                }
                // As a part of an address, and in lines of a length that encoders like.
                let address = encoded.replace('+', "%2B").replace('/', "%2f").replace('=', "%3D");
                let told = scrub.text(format!("?token={address}&kept=1"));
                assert_eq!(told, format!("?token={REMOVED}&kept=1"), "{before:?} {after:?}");
                let (one, two) = encoded.split_at(encoded.len() / 2);
                for end in ["\n", "\r\n", "\\n"] {
                    let told = scrub.text(format!("<{one}{end}{two}>"));
                    assert_eq!(told, format!("<{REMOVED}>"), "{before:?} {after:?}");
                }
            }
        }
    }
}

#[test]
fn a_key_is_found_line_by_line() {
    let lines = ["MIGHAgEAMBMGByqGSM49AgEGCCqGSM49", "AwEHBG0wawIBAQQgVcB_UNlikely+/00"];
    let key = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n{}\n-----END PRIVATE KEY-----",
        lines[0], lines[1]
    );
    let scrub = scrub(&[&key]);
    for line in lines {
        assert_eq!(scrub.text(format!("at {line} it")), format!("at {REMOVED} it"));
    }
    let begin = "-----BEGIN PRIVATE KEY-----";
    assert_eq!(scrub.text(begin.to_owned()), begin, "every key has this line");
}

#[test]
fn what_is_no_secret_is_kept_as_it_is() {
    let scrub = scrub(&[SECRET, "tiny", "123456789012"]);
    let other = STANDARD.encode("user:something else that is about as long");
    for text in [
        "tiny things",
        "100 % sure, 50%25 of %zz, a+b, C:\\temp\\new, \\u00zz \\ud800 \\",
        "%",
        "\\u12",
        &other,
        "deadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
        "äöü %C3 s3cret?>~ \u{fe}",
        "",
    ] {
        assert_eq!(scrub.text(text.to_owned()), text);
    }
    let document = json!({ "n": 12, "list": [1.5, null, true, "x"], "big": 123_456_789_013_u64 });
    assert_eq!(scrub.value(document.clone()), document);
    assert_eq!(Scrub::default().text(SECRET.to_owned()), SECRET);
    assert!(Scrub::default().is_empty() && Scrub::of(&[SecretString::from("tiny")]).is_empty());
}

#[test]
fn a_number_that_is_a_secret_is_found() {
    let document = scrub(&["123456789012"]).value(json!({ "pin": 123_456_789_012_u64 }));
    assert_eq!(document, json!({ "pin": REMOVED }));
}

#[test]
fn secrets_that_overlap_leave_nothing() {
    let scrub = scrub(&["abcdefgh", "efghijkl", "cdefgh"]);
    assert_eq!(scrub.text("<abcdefghijkl>".to_owned()), format!("<{REMOVED}>"));
    assert_eq!(scrub.text("<cdefgh>".to_owned()), format!("<{REMOVED}>"));
}

#[test]
fn a_secret_that_begins_within_a_limit_is_removed_whole() {
    let scrub = scrub(&[SECRET]);
    for form in [
        SECRET.to_owned(),
        units(),
        percent(true, true, "%20"),
        hex(false),
        STANDARD.encode(SECRET),
    ] {
        let text = format!("<{form}{form}");
        for limit in 0..text.len() {
            let there = text.get(..text.floor_char_boundary(scrub.bytes_needed(limit))).unwrap();
            let told = scrub.beginning(there, limit);
            let expected = if limit == 0 { "" } else { "<" };
            assert_eq!(told.replace(REMOVED, ""), expected, "{limit} of {text}");
        }
    }
}

#[test]
fn a_secret_leaves_no_part_of_an_answer_or_an_error() {
    let scrub = scrub(&["s3cret-value"]);
    let answer = Answer {
        output: json!({
            "headers": {"authorization": "Bearer s3cret-value", "s3cret-value": [1, "s3cret-value"]},
            "basic": "czNjcmV0LXZhbHVl", "kept": "tiny things"
        }),
        citations: vec![Citation {
            uri: "https://a/?k=s3cret-value".to_owned(),
            title: Some("s3cret-value".to_owned()),
        }],
        mutations: vec![Mutation { action: "write".to_owned(), target: "s3cret-value".to_owned() }],
        cost_cents: None,
    };
    let Outcome::Done(said) = scrub.outcome(Outcome::Done(answer)) else { panic!("not done") };
    let text = format!("{said:?}");
    assert!(!text.contains("s3cret") && !text.contains("czNjcmV0"), "{text}");
    assert_eq!(said.output["headers"]["authorization"], format!("Bearer {REMOVED}"));
    assert_eq!(said.output["kept"], "tiny things");
    let refused = AdapterError::Refused("no such key s3cret-value".to_owned());
    let text = format!("{:?}", scrub.outcome(Outcome::NotExecuted(refused)));
    assert!(text.contains(REMOVED) && !text.contains("s3cret-value"), "{text}");
    let unknown = Outcome::Unknown("reset after s3cret-value".to_owned());
    assert!(!format!("{:?}", scrub.outcome(unknown)).contains("s3cret-value"));
    assert!(!format!("{scrub:?}").contains("s3cret"));
}

/// A token with a beginning that it shares with others.
fn token(name: &str) -> String {
    let end = URL_SAFE_NO_PAD.encode(name.repeat(9));
    format!("eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCJ9.{}.{end}", URL_SAFE_NO_PAD.encode(name))
}

fn looks_for_tokens(before: &Scrub, names: &[&str]) -> Scrub {
    let tokens: Vec<SecretString> = names.iter().map(|name| token(name).into()).collect();
    before.and_tokens(&tokens)
}

#[test]
fn a_token_is_found_in_every_form_beside_other_values_and_tokens() {
    let scrub = looks_for_tokens(&looks_for_tokens(&scrub(&[SECRET]), &["ana", "ben"]), &["cy"]);
    for name in ["ana", "ben", "cy"] {
        let token = token(name);
        let hex: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
        let every: String = token.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let braced: String = token.chars().map(|c| c.escape_unicode().to_string()).collect();
        let basic = STANDARD.encode(format!("user:{token}"));
        for form in [token, hex, every, braced, basic] {
            let told = scrub.text(format!("<{form}> kept <{SECRET}>"));
            assert_eq!(told, format!("<{REMOVED}> kept <{REMOVED}>"), "{form}");
        }
    }
    let other = token("dora");
    assert_eq!(scrub.text(other.clone()), other, "nobody was given that one");
    assert!(!format!("{scrub:?}").contains("eyJ"));
}

#[test]
fn the_end_of_a_token_is_removed_without_its_beginning() {
    let scrub = looks_for_tokens(&Scrub::default(), &["ana", "ben"]);
    let whole = token("ana");
    for cut in 0..whole.len() - 32 {
        let told = scrub.text(format!("cut: {}", whole.get(cut..).unwrap()));
        assert_eq!(told, format!("cut: {REMOVED}"), "{cut}");
    }
    // Only what belongs to it is removed with it.
    let (_, end) = whole.split_at(whole.len() - 40);
    assert_eq!(scrub.text(format!("kept.{end}.kept")), format!("kept.{REMOVED}.kept"));
    let short = Scrub::default().and_tokens(&["short-token".into(), "tiny".into()]);
    assert_eq!(short.text("tiny short-token".to_owned()), format!("tiny {REMOVED}"));
}

#[test]
fn tokens_with_the_same_end_are_both_removed_whole() {
    let end = "the-same-end-of-more-than-32-bytes";
    let scrub =
        Scrub::default().and_tokens(&[format!("one.{end}").into(), format!("other.{end}").into()]);
    for begin in ["one", "other"] {
        assert_eq!(scrub.text(format!("<{begin}.{end}>")), format!("<{REMOVED}>"));
    }
}

#[test]
fn a_text_that_is_all_ends_of_a_token_costs_no_more_than_its_length() {
    let scrub = Scrub::default().and_tokens(&["a".repeat(16 * 1024).into()]);
    assert_eq!(scrub.text("a".repeat(256 * 1024)), REMOVED);
}
