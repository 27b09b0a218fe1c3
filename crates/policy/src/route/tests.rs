//! Which texts name a group.

use super::{WrittenGroup, WrittenTenant};

#[test]
fn a_group_is_written_plainly_or_with_its_tenant() {
    for text in ["approvers", "globex/credit-approvers", "{input.recipient}/credit-approvers"] {
        let written = WrittenGroup::parse(text).unwrap();
        assert_eq!(written.to_string(), text);
    }
    assert_eq!(WrittenGroup::parse("approvers").unwrap().of, WrittenTenant::Own);
    let named = WrittenGroup::parse("globex/a").unwrap().of;
    assert_eq!(named, WrittenTenant::Named("globex".parse().unwrap()));
    let by_input = WrittenGroup::parse("{input.recipient_1}/a").unwrap().of;
    assert_eq!(by_input, WrittenTenant::Input("recipient_1".to_owned()));
}

#[test]
fn nothing_else_names_a_group() {
    for text in [
        "",
        "/a",
        "globex/",
        "a/b/c",
        "{input.}/a",
        "{input.a.b}/a",
        "{input.a}",
        "{a}/b",
        "{input.a}x/b",
        "x{input.a}/b",
        "{input.a}/{input.b}",
        "{input.a b}/c",
        "glo bex/a",
    ] {
        assert_eq!(WrittenGroup::parse(text), None, "{text}");
    }
}
