//! The contract that goes with `files` when an operator has written none, pins included.
//!
//! Owns which mode each tool has. Does not write it anywhere. The committed sample, `contracts/files.yaml`, is this contract for the
//! environment `dev`; a test fails when it is stale.

use std::collections::{BTreeMap, BTreeSet};

use placet_types::{
    contract::{
        LiveTool,
        file::{
            CapabilityFile, ContractFile, ContractVersion, DataClass, DedupFile, LimitsFile,
            TenantsFile, TransportFile,
        },
    },
    ids::{AdapterName, CapabilityName, EnvironmentName, TenantId},
    mode::{ApprovalMode, Effect},
};

use crate::files::{BUILTIN, PROTOCOL_VERSION, live_tools};

/// The policy that lowers the mode of a `write` which replaces nothing; it fits a contract with the adapter's own name only.
pub const LOWERING_POLICY: &str = include_str!("../policies/15-files.cedar");

/// The largest answer, in bytes.
const RESULT_BYTES_MAX: u64 = 1_048_576;

/// The reviewed and pinned contract for `environment`, with one directory below `root` for each of `tenants`.
pub fn builtin_contract(
    environment: EnvironmentName,
    tenants: BTreeSet<TenantId>,
    root: &str,
) -> ContractFile {
    let adapter = adapter_name();
    let capabilities =
        live_tools().into_iter().map(|tool| capability(&adapter, tool)).collect::<BTreeMap<_, _>>();
    ContractFile {
        contract_version: ContractVersion::V1,
        environment,
        description: "Files in one directory for each tenant".to_owned(),
        tenants: TenantsFile::Only(tenants),
        data_class: DataClass::Internal,
        transport: TransportFile::Internal { builtin: BUILTIN.to_owned(), root: root.to_owned() },
        protocol_version: PROTOCOL_VERSION.to_owned(),
        credential: None,
        pass_tracestate: false,
        error_injection: None,
        limits: LimitsFile { result_bytes_max: RESULT_BYTES_MAX, ..LimitsFile::default() },
        capabilities,
        adapter,
    }
}

fn capability(adapter: &AdapterName, tool: LiveTool) -> (CapabilityName, CapabilityFile) {
    let (mode, effect) = match tool.name.as_str() {
        "list" | "stat" | "read" => (ApprovalMode::ReadOnly, Effect::None),
        // `write` can replace a file, and a tool that is added without a thought about its mode gets the strongest.
        _ => (ApprovalMode::Destructive, Effect::Write),
    };
    let pin = Some(tool.digest(adapter));
    let file = CapabilityFile {
        tool: None,
        title: None,
        description: tool.description,
        input_schema: tool.input_schema,
        live_input_schema: None,
        rest: None,
        output_schema: tool.output_schema,
        mode,
        also: BTreeSet::new(),
        effect,
        dedup: (effect == Effect::Write).then_some(DedupFile::Opaque),
        not_executed: None,
        cost_cents: 0,
        result_taint: BTreeSet::new(),
        enabled: true,
        pin,
        task_only: false,
        server_hints: None,
        exclusive: false,
        takes_control: false,
        on_demand: false,
        evaluation_checks: BTreeSet::new(),
        prompt: None,
        checks: Vec::new(),
        exposes: None,
        run_keys: BTreeSet::new(),
        alias: None,
    };
    (capability_name(tool.name), file)
}

#[expect(clippy::expect_used, reason = "a constant, and a test makes the contract")]
fn adapter_name() -> AdapterName {
    AdapterName::new(BUILTIN).expect("a lower-case word")
}

#[expect(clippy::expect_used, reason = "the names are compiled in, and a test makes the contract")]
fn capability_name(name: String) -> CapabilityName {
    CapabilityName::new(name).expect("a lower-case word")
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use placet_types::{
        contract::Contract,
        contract::file::ContractFile,
        ids::{EnvironmentName, TenantId},
        mode::ApprovalMode,
    };

    use super::builtin_contract;

    const HEADER: &str = "# The built-in adapter `files`: each tenant has the directory `root`/TENANT, below the data folder unless `root` is absolute.\n\
        # `pin` is the digest of the definition that was reviewed; `placet adapters pin files` renews it after a change.\n";

    fn dev() -> ContractFile {
        let tenants = [TenantId::new("local").unwrap()].into();
        builtin_contract(EnvironmentName::new("dev").unwrap(), tenants, "files")
    }

    #[test]
    fn the_builtin_contract_is_valid_and_every_capability_is_callable() {
        let contract = Contract::from_file(dev()).unwrap();
        assert_eq!(contract.capabilities.len(), 5);
        for capability in contract.capabilities.values() {
            assert!(capability.is_callable(), "{:?}", capability.arguments);
            assert_eq!(
                capability.is_write_class(),
                capability.mode_highest > ApprovalMode::ReadOnly
            );
        }
    }

    #[test]
    fn the_sample_contract_is_the_builtin_one() {
        let text = format!("{HEADER}{}", serde_saphyr::to_string(&dev()).unwrap());
        expect_file!["../contracts/files.yaml"].assert_eq(&text);
        assert_eq!(serde_saphyr::from_str::<ContractFile>(&text).unwrap(), dev());
    }

    #[test]
    fn the_examples_and_defaults_in_the_schemas_satisfy_them() {
        let contract = Contract::from_file(dev()).unwrap();
        for (name, args) in [
            ("list", serde_json::json!({})),
            ("stat", serde_json::json!({"path": "reports/summary.txt"})),
            ("read", serde_json::json!({"path": "reports/summary.txt"})),
            ("write", serde_json::json!({"path": "reports/summary.txt", "content": "x"})),
            ("delete", serde_json::json!({"path": "reports/draft.txt"})),
        ] {
            let capability = contract
                .capabilities
                .values()
                .find(|c| c.id.capability().as_str() == name)
                .unwrap();
            let schema = capability.arguments.as_ref().unwrap();
            assert!(schema.validate(&args).is_ok(), "{name}");
            let mut more = args.clone();
            more["surplus"] = serde_json::json!(1);
            assert!(schema.validate(&more).is_err(), "{name} takes unknown arguments");
        }
    }
}
