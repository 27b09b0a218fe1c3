//! Strict JSON and the canonical form.

use placet_types::json::{
    JsonLimits, canonical_bytes, canonical_digest, check_value, parse_strict,
};

use crate::fuzz;

const DOCUMENTS: [&str; 5] = [
    r#"{"a":1,"b":[true,false,null,-0.5,1e21,"x\u00e9\ud83d\ude00"],"c":{"":{}}}"#,
    r#"[9007199254740991,-9007199254740991,0.1,1.5e-7,123456789012,"\u001f\"\\\/"]"#,
    r#" { "numbers" : [ 1.0 , 100e-2 , -0 , 4.35 ] , "z" : "" , "A" : "é" , "a" : "e\u0301" } "#,
    r#""text""#,
    r#"[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"#,
];

#[test]
fn what_is_strict_json_has_one_canonical_form() {
    fuzz!(20_000, |input| {
        let limits = JsonLimits::default();
        let bytes = input.apply(&DOCUMENTS);
        let Ok(value) = parse_strict(&bytes, &limits) else { return };
        assert!(
            serde_json::from_slice::<serde_json::Value>(&bytes).is_ok(),
            "more than JSON is accepted"
        );
        let canonical = canonical_bytes(&value);
        let again = parse_strict(&canonical, &limits).unwrap();
        assert_eq!(canonical_bytes(&again), canonical, "the canonical form has another one");
        assert_eq!(canonical_digest(&again), canonical_digest(&value));
        assert_eq!(canonical_bytes(&check_value(&value, &limits).unwrap()), canonical);
    });
}
