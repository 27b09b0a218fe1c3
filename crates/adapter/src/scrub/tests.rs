//! Secrets in every form in which tools repeat them, and texts that only look like secrets.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
};
use placet_types::envelope::result::{Citation, Mutation};
use serde_json::json;

use super::*;

/// Contains everything that an encoder treats specially.
const SECRET: &str = "s3cret?>~ \u{ff}+%/\"\\value=";

fn scrub(values: &[&str]) -> Scrub {
    let values: Vec<SecretString> = values.iter().map(|value| SecretString::from(*value)).collect();
    Scrub::of(&values)
}

fn percent(kept: &str, upper: bool, space: &str) -> String {
    let encoded = SECRET.bytes().map(|byte| match byte {
        b' ' => space.to_owned(),
        byte if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) => {
            char::from(byte).to_string()
        }
        byte if upper => format!("%{byte:02X}"),
        byte => format!("%{byte:02x}"),
    });
    encoded.collect()
}

#[test]
fn a_secret_is_found_as_it_is_in_json_and_in_urls() {
    let scrub = scrub(&[SECRET]);
    let mut forms = vec![SECRET.to_owned()];
    for upper in [false, true] {
        forms.push(percent("-._~", upper, "%20"));
        forms.push(percent("-._~/", upper, "%20"));
        forms.push(percent("-._~!*'()", upper, "%20"));
        forms.push(percent("-._~!*'();/?:@&=+$,#", upper, "%20"));
        forms.push(percent("-._*", upper, "+"));
    }
    for form in forms {
        let scrubbed = scrub.text(format!("kept <{form}> kept"));
        assert_eq!(scrubbed, format!("kept <{REMOVED}> kept"), "{form}");
    }
    let quoted = json!({ "said": SECRET }).to_string();
    assert_eq!(scrub.text(quoted.clone()), json!({ "said": REMOVED }).to_string());
    // As some encoders write a slash.
    let quoted = quoted.replace('/', "\\/");
    assert_eq!(scrub.text(quoted), json!({ "said": REMOVED }).to_string());
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
                    let scrubbed = scrub.text(format!("<{glue}{encoded}>"));
                    assert_eq!(scrubbed, format!("<{REMOVED}>"), "{glue} {before:?} {after:?}");
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
        "100 % sure, 50%25 of %zz, a+b, C:\\temp\\new",
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
    for form in [SECRET.to_owned(), percent("-._~", true, "%20"), STANDARD.encode(SECRET)] {
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
    let said = scrub.answer(answer);
    let text = format!("{said:?}");
    assert!(!text.contains("s3cret") && !text.contains("czNjcmV0"), "{text}");
    assert_eq!(said.output["headers"]["authorization"], format!("Bearer {REMOVED}"));
    assert_eq!(said.output["kept"], "tiny things");
    let refused = AdapterError::Refused("no such key s3cret-value".to_owned());
    let text = format!("{:?}", scrub.error(refused));
    assert!(text.contains(REMOVED) && !text.contains("s3cret-value"), "{text}");
    assert!(!format!("{scrub:?}").contains("s3cret"));
}

/// A token that shares its beginning with others.
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
        let basic = ["", "u:", "user:"].map(|user| STANDARD.encode(format!("{user}{token}")));
        for form in basic.into_iter().chain([token]) {
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
    let (_, end) = whole.split_at(whole.len() - 40);
    assert_eq!(scrub.text(format!("kept={end}&kept")), format!("kept={REMOVED}&kept"));
    let short = Scrub::default().and_tokens(&["short-token".into(), "tiny".into()]);
    assert_eq!(short.text("tiny short-token".to_owned()), format!("tiny {REMOVED}"));
}

#[test]
fn a_token_of_several_words_is_removed_whole() {
    let token = format!("first-word|{}", "second word of more than 32 bytes");
    let scrub = Scrub::default().and_tokens(&[token.clone().into()]);
    assert_eq!(scrub.text(format!("<{token}>")), format!("<{REMOVED}>"));
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
    let scrub = scrub.and_tokens(&["a".repeat(6).into()]);
    assert_eq!(scrub.text("a".repeat(256 * 1024)), REMOVED);
}
