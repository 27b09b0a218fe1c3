//! The adapter as the engine calls it: connected by contract, invoked by dispatch.

mod changing;
mod connecting;
mod escaping;
mod looking;
mod timing;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use placet_adapter::{
    adapter::{Adapter, Conditions, Connector, Dispatch, SessionLease, TestDispatch, TraceHeaders},
    outcome::{AdapterError, Answer, Outcome},
};
use placet_types::{
    clock::Timestamp,
    contract::Contract,
    ids::{CapabilityId, EnvironmentName, TenantId, ToolCallId},
};
use serde_json::Value;
use tempfile::TempDir;

use super::{FilesConnector, FilesSettings};
use crate::contract::builtin_contract;

const TIMEOUT_MS: u64 = 20_000;

/// An adapter over the root of `acme` and `globex` in a folder of its own, with secrets outside. Calls are of `acme`.
struct Place {
    folder: TempDir,
    adapter: Box<dyn Adapter>,
    contract: Arc<Contract>,
}

impl Place {
    async fn new() -> Self {
        Self::with(FilesSettings::default(), 1_048_576).await
    }

    async fn with(settings: FilesSettings, result_bytes_max: u64) -> Self {
        Self::under(settings, contract("root", result_bytes_max)).await
    }

    async fn under(settings: FilesSettings, contract: Contract) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("root/acme")).unwrap();
        fs::write(folder.path().join("secret.txt"), "secret").unwrap();
        // The tenant's directory name is a prefix of this one: a string comparison would take it for inside.
        fs::create_dir(folder.path().join("root/acme-evil")).unwrap();
        fs::write(folder.path().join("root/acme-evil/secret.txt"), "secret").unwrap();
        let contract = Arc::new(contract);
        let connector = FilesConnector::new(folder.path().to_owned(), settings);
        let adapter = connector.connect(Arc::clone(&contract)).await.unwrap();
        Self { folder, adapter, contract }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root/acme")
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap()
    }

    async fn call(&self, name: &str, args: &Value) -> Outcome {
        self.adapter.invoke(self.dispatch(name, args), conditions(TIMEOUT_MS)).await
    }

    async fn done(&self, name: &str, args: &Value) -> Answer {
        let outcome = self.call(name, args).await;
        let shown = format!("{outcome:?}");
        let Outcome::Done(answer) = outcome else { panic!("{name} {args} gave {shown}") };
        answer
    }

    /// Why the call was refused, with no effect.
    async fn refused(&self, name: &str, args: &Value) -> String {
        let outcome = self.call(name, args).await;
        let shown = format!("{outcome:?}");
        let Outcome::NotExecuted(AdapterError::Refused(why)) = outcome else {
            panic!("{name} {args} gave {shown}")
        };
        why
    }

    fn dispatch(&self, name: &str, args: &Value) -> Dispatch {
        dispatch(&self.contract, name, args)
    }

    /// Everything below the folder but the root's content, with contents: what must never change.
    fn outside(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        walk(self.folder.path(), &self.root())
    }

    /// Names in the root, including hidden ones.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.root())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn contract(root: &str, result_bytes_max: u64) -> Contract {
    let mut file = builtin_contract(EnvironmentName::new("test").unwrap(), tenants(), root);
    file.limits.result_bytes_max = result_bytes_max;
    Contract::from_file(file).unwrap()
}

fn tenants() -> BTreeSet<TenantId> {
    ["acme", "globex"].map(|tenant| TenantId::new(tenant).unwrap()).into()
}

fn dispatch(contract: &Contract, name: &str, args: &Value) -> Dispatch {
    dispatch_of("acme", contract, name, args)
}

fn dispatch_of(tenant: &str, contract: &Contract, name: &str, args: &Value) -> Dispatch {
    Dispatch::for_test(TestDispatch {
        call_id: ToolCallId::new("call_1").unwrap(),
        tenant: TenantId::new(tenant).unwrap(),
        capability: CapabilityId::from_tool_name(&format!("files__{name}")).unwrap(),
        contract_digest: contract.digest,
        args: args.as_object().unwrap().clone(),
        token: "plc_0123".to_owned(),
        deadline_at: Timestamp::from_ms(0),
    })
}

fn conditions(timeout_ms: u64) -> Conditions {
    let seat = SessionLease::default();
    let (trace, examples) = (TraceHeaders::default(), Default::default());
    Conditions { timeout_ms, listen_ms: 0, credential: None, seat, trace, examples, observer: None }
}

fn walk(from: &Path, except: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut paths: Vec<_> =
        fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path == except {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            found.push((path.clone(), None));
            found.extend(walk(&path, except));
        } else {
            let content = fs::read(&path).ok();
            found.push((path, content));
        }
    }
    found
}
