//! How entries of the approval service are named in lists and titles.

use placet_types::directive::DirectiveBody;
use serde_json::json;

use crate::entries::name;

#[test]
fn no_character_of_a_name_is_hidden() {
    for (body, shown) in [
        (json!({ "kind": "break_glass", "ticket": "INC\u{202e}" }), r"Break-glass INC\u{202e}"),
        (json!({ "kind": "freeze", "name": "May\u{202e}" }), r"May\u{202e}"),
        (
            json!({ "kind": "freeze", "name": "May\u{a0}", "lockdown": true }),
            r"Lockdown: May\u{a0}",
        ),
        (json!({ "kind": "revocation", "subject": "ana\u{200b}" }), r"Tokens of ana\u{200b}"),
    ] {
        assert_eq!(name(&serde_json::from_value::<DirectiveBody>(body).unwrap()), shown);
    }
}
