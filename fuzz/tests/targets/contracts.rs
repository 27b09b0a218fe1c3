//! Contract files, as JSON and as YAML.

use placet_types::contract::Contract;
use placet_types::contract::file::ContractFile;
use placet_types::json::{JsonError, JsonLimits, from_value_strict, parse_strict};

use crate::fuzz;

const DOCUMENTS: [&str; 2] = [
    r#"{"contract_version":"placet.contract.v1","adapter":"notes","environment":"dev","tenants":["acme"],
"transport":{"type":"internal","builtin":"files","root":"notes"},"protocol_version":"files/1","capabilities":{
"look":{"input_schema":{"type":"object","properties":{"note":{"type":"string","maxLength":9}},"required":["note"],"additionalProperties":false},
"mode":"read_only","effect":"none","pin":"sha256:9020d78ef66e40014e2da76935891a5fe2f1d482453207324005f5dec3afedb2"},
"erase":{"input_schema":{"type":"object"},"mode":"destructive","effect":"write","dedup":{"class":"opaque"},
"pin":"sha256:9020d78ef66e40014e2da76935891a5fe2f1d482453207324005f5dec3afedb2"}}}"#,
    "contract_version: placet.contract.v1\nadapter: notes\nenvironment: dev\ntenants: [acme]\ntransport:\n  type: internal\n  builtin: files\n  root: notes\nprotocol_version: files/1\ncapabilities:\n  push:\n    input_schema: {type: object, properties: {n: {type: integer, minimum: 0}}}\n    mode: local_write\n    effect: write\n    dedup: {class: keyed, window_ms: 10000}\n    pin: sha256:9020d78ef66e40014e2da76935891a5fe2f1d482453207324005f5dec3afedb2\n",
];

#[test]
fn a_contract_that_is_read_has_one_digest() {
    fuzz!(3_000, |input| {
        let bytes = input.apply(&DOCUMENTS);
        if let Ok(file) = read(&bytes) {
            sound(file);
        }
        if let Ok(text) = std::str::from_utf8(&bytes)
            && let Ok(file) = serde_saphyr::from_str::<ContractFile>(text)
        {
            sound(file);
        }
    });
}

fn read(bytes: &[u8]) -> Result<ContractFile, JsonError> {
    parse_strict(bytes, &JsonLimits::default()).and_then(from_value_strict)
}

/// What was accepted is accepted again when it is written down, and is the same contract.
fn sound(file: ContractFile) {
    let written = serde_json::to_vec(&file).unwrap();
    let Ok(contract) = Contract::from_file(file) else { return };
    let again = read(&written).unwrap();
    assert_eq!(Contract::from_file(again).unwrap().digest, contract.digest);
    assert!(
        !contract
            .capabilities
            .values()
            .any(|capability| capability.id.adapter() != &contract.adapter)
    );
}

#[test]
fn the_documents_that_are_edited_are_contracts() {
    let json = read(DOCUMENTS[0].as_bytes()).unwrap();
    let yaml: ContractFile = serde_saphyr::from_str(DOCUMENTS[1]).unwrap();
    assert!(Contract::from_file(json).is_ok() && Contract::from_file(yaml).is_ok());
}
