//! `files`: the adapter for directories of the local file system, one for each tenant.
//!
//! Owns the connection and the call under its time limit. The operations are in the modules below. Changes are opaque: never
//! keyed, since somebody may have changed the file between two equal writes, and never queryable, since no record of a call is kept.

mod change;
mod fault;
mod gate;
mod look;
mod operation;
mod path;
mod tools;
mod tree;

use std::{
    collections::BTreeMap,
    io,
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use cap_std::{ambient_authority, fs::Dir};
use placet_adapter::{
    adapter::{Adapter, Conditions, Connector, Dispatch, Inquiry},
    outcome::{AdapterError, Outcome, Probe},
};
use placet_types::{
    contract::{
        Contract, Dedup, LiveTool,
        file::{TenantsFile, TransportFile},
    },
    ids::TenantId,
};

pub(crate) use self::tools::live_tools;

use self::{
    fault::Done,
    gate::{CloseOnDrop, Gate},
    operation::Operation,
    tree::{Mark, Tree},
};

/// The name a contract's transport gives this adapter.
pub const BUILTIN: &str = "files";
/// What a contract pins as `protocol_version` (TM-05).
pub const PROTOCOL_VERSION: &str = "files/1";

/// How the adapter behaves, apart from its contract.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesSettings {
    /// Fault injection: after the effect of a `write` or `delete` the answer is held back this long, in milliseconds. An operator
    /// can thus rehearse a crash between an effect and its record. 0, the default: never.
    pub pause_after_effect_ms: u64,
}

/// Opens the directories that contracts name.
#[derive(Debug)]
pub struct FilesConnector {
    data_folder: PathBuf,
    settings: FilesSettings,
}

impl FilesConnector {
    /// A connector that resolves relative roots below `data_folder`.
    pub fn new(data_folder: PathBuf, settings: FilesSettings) -> Self {
        Self { data_folder, settings }
    }

    fn root(&self, contract: &Contract) -> Result<Root, AdapterError> {
        let root = match &contract.transport {
            TransportFile::Internal { builtin, root } if builtin == BUILTIN => root,
            TransportFile::Internal { .. }
            | TransportFile::McpStdio { .. }
            | TransportFile::McpHttp { .. }
            | TransportFile::Rest { .. }
            | TransportFile::A2a { .. }
            | TransportFile::Lm { .. } => {
                return Err(AdapterError::Misconfigured(
                    "the transport is not the builtin `files`".to_owned(),
                ));
            }
        };
        if contract.protocol_version != PROTOCOL_VERSION {
            return Err(AdapterError::SchemaMismatch(format!(
                "the contract pins `{}`, and this build speaks `{PROTOCOL_VERSION}`",
                contract.protocol_version
            )));
        }
        if let Some(capability) = contract.capabilities.values().find(|one| !is_kept(&one.dedup)) {
            return Err(AdapterError::Misconfigured(format!(
                "`{}` has to be `class: opaque`: the files adapter recognises no token",
                capability.id
            )));
        }
        let path = Path::new(root);
        if path.is_absolute() {
            return Ok(Root::Existing(path.to_owned()));
        }
        if root.is_empty()
            || path
                .components()
                .any(|part| !matches!(part, Component::Normal(_) | Component::CurDir))
        {
            return Err(AdapterError::Misconfigured(format!(
                "the root `{root}` leads out of the data folder"
            )));
        }
        Ok(Root::Ours(self.data_folder.join(path)))
    }
}

/// Whether the adapter keeps the promise of this class.
const fn is_kept(dedup: &Dedup) -> bool {
    match dedup {
        Dedup::ReadOnly | Dedup::Opaque => true,
        Dedup::Keyed { .. } | Dedup::Queryable { .. } => false,
    }
}

/// The root's place, and its owner.
enum Root {
    /// Below the data folder: made if it is missing.
    Ours(PathBuf),
    /// The operator's: it has to exist.
    Existing(PathBuf),
}

impl Root {
    /// Opens the directory of each tenant, made if it is missing: `ROOT/TENANT`, however many tenants there are, so that a contract which
    /// gains or loses one never puts a tenant where another's files are.
    fn open(self, contract: &Contract) -> Result<Trees, AdapterError> {
        let TenantsFile::Only(tenants) = &contract.tenants else {
            return Err(AdapterError::Misconfigured("the contract names no tenants".to_owned()));
        };
        let (path, made) = match self {
            Self::Ours(path) => {
                let made = Dir::create_ambient_dir_all(&path, ambient_authority());
                (path, made)
            }
            Self::Existing(path) => (path, Ok(())),
        };
        let unusable = |path: &Path, error: &io::Error| {
            let problem = format!("the root `{}` cannot be opened: {error}", path.display());
            AdapterError::Unavailable(problem)
        };
        let root = made
            .and_then(|()| Dir::open_ambient_dir(&path, ambient_authority()))
            .map_err(|error| unusable(&path, &error))?;
        let open = |tenant: &TenantId| {
            // A tenant's name is one component, and no link is followed out of the root.
            let opened = root.create_dir_all(tenant.as_str());
            let opened = opened.and_then(|()| root.open_dir(tenant.as_str()));
            let opened = opened.map_err(|error| unusable(&path.join(tenant.as_str()), &error))?;
            let tree = Tree::new(opened, contract.limits.result_bytes_max);
            Ok((tenant.clone(), Arc::new(tree)))
        };
        tenants.iter().map(open).collect()
    }
}

#[async_trait]
impl Connector for FilesConnector {
    async fn connect(&self, contract: Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError> {
        let root = self.root(&contract)?;
        let described = Arc::clone(&contract);
        let opened = tokio::task::spawn_blocking(move || root.open(&described));
        let trees =
            opened.await.map_err(|error| AdapterError::Unavailable(error.to_string()))??;
        Ok(Box::new(Files {
            contract,
            trees,
            settings: self.settings,
            closed: AtomicBool::new(false),
        }))
    }
}

/// The directories by tenant.
type Trees = BTreeMap<TenantId, Arc<Tree>>;

/// The opened directories of one contract.
#[derive(Debug)]
struct Files {
    contract: Arc<Contract>,
    trees: Trees,
    settings: FilesSettings,
    closed: AtomicBool,
}

impl Files {
    fn operation(&self, dispatch: &Dispatch) -> Result<Operation, AdapterError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(AdapterError::Unavailable("the adapter is closed".to_owned()));
        }
        if dispatch.contract_digest() != self.contract.digest
            || dispatch.capability().adapter() != &self.contract.adapter
        {
            return Err(AdapterError::SchemaMismatch(
                "the call was permitted under another contract".to_owned(),
            ));
        }
        Operation::parse(dispatch.capability().capability().as_str(), dispatch.args())
    }

    /// The directory of the tenant that a call is for.
    fn tree(&self, tenant: &TenantId) -> Result<Arc<Tree>, AdapterError> {
        self.trees.get(tenant).cloned().ok_or_else(|| {
            AdapterError::Misconfigured("the contract does not name the call's tenant".to_owned())
        })
    }

    async fn perform(&self, work: Work, temporary: String, gate: Arc<Gate>) -> Outcome {
        let Work { operation, tree } = work;
        let pauses = operation.has_effect() && self.settings.pause_after_effect_ms > 0;
        let its_gate = Arc::clone(&gate);
        let task = tokio::task::spawn_blocking(move || {
            perform(&operation, &tree, &Mark { gate: &its_gate, temporary: &temporary })
        });
        let outcome = match task.await {
            Ok(Ok(answer)) => Outcome::Done(answer),
            Ok(Err(fault)) => return fault.into(),
            Err(_) if gate.close() => {
                return Outcome::NotExecuted(AdapterError::Unavailable(
                    "the operation was broken off".to_owned(),
                ));
            }
            Err(_) => {
                return Outcome::Unknown(
                    "the operation was broken off while it changed something".to_owned(),
                );
            }
        };
        if pauses {
            tokio::time::sleep(Duration::from_millis(self.settings.pause_after_effect_ms)).await;
        }
        outcome
    }
}

/// An operation and the directory it is about.
struct Work {
    operation: Operation,
    tree: Arc<Tree>,
}

fn perform(operation: &Operation, tree: &Tree, mark: &Mark<'_>) -> Done {
    if mark.gate.is_closed() {
        return Err(fault::Fault::Abandoned);
    }
    match operation {
        Operation::List(list) => look::list(tree, mark, list),
        Operation::Stat(stat) => look::stat(tree, stat),
        Operation::Read(read) => look::read(tree, read),
        Operation::Write(write) => change::write(tree, mark, write),
        Operation::Delete(delete) => change::delete(tree, mark, delete),
    }
}

#[async_trait]
impl Adapter for Files {
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError> {
        Ok(live_tools())
    }

    fn generation(&self) -> u64 {
        // The tools are compiled in.
        0
    }

    async fn invoke(&self, dispatch: Dispatch, conditions: Conditions) -> Outcome {
        let operation = self.operation(&dispatch);
        let work = match operation
            .and_then(|operation| Ok(Work { operation, tree: self.tree(dispatch.tenant())? }))
        {
            Ok(work) => work,
            Err(error) => return Outcome::NotExecuted(error),
        };
        let (token, attempt) = (dispatch.token(), dispatch.attempt());
        let temporary = format!("{}{token}-{attempt}.tmp", path::RESERVED_PREFIX);
        let gate = Arc::new(Gate::default());
        let _closes = CloseOnDrop(Arc::clone(&gate));
        let limit = Duration::from_millis(conditions.timeout_ms);
        if limit.is_zero() {
            // Another thread could start before the clock is read.
            let late = "there is no time left to begin".to_owned();
            return Outcome::NotExecuted(AdapterError::Unavailable(late));
        }
        if let Operation::Read(read) = &work.operation
            && let Some(done) = look::read_cached(&work.tree, read)
        {
            return done.map_or_else(Outcome::from, Outcome::Done);
        }
        match tokio::time::timeout(limit, self.perform(work, temporary, Arc::clone(&gate))).await {
            Ok(outcome) => outcome,
            Err(_) if gate.close() => Outcome::NotExecuted(AdapterError::Unavailable(format!(
                "not begun within {} ms",
                conditions.timeout_ms
            ))),
            Err(_) => Outcome::Unknown(format!(
                "the change was begun and not confirmed within {} ms",
                conditions.timeout_ms
            )),
        }
    }

    async fn probe(&self, _inquiry: &Inquiry) -> Probe {
        Probe::Unknown
    }

    fn is_alive(&self) -> bool {
        !self.closed.load(Ordering::SeqCst) && self.trees.values().all(|tree| tree.is_there())
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
