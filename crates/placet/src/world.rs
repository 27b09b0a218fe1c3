//! What the configuration names: contracts, the directory, the policies.
//!
//! Owns reading them and checking that they fit together. Invariants: one contract that cannot be read refuses all; a secret
//! that a contract names exists; a policy folder without policies is refused.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use placet_adapter_files::contract::builtin_contract;
use placet_credentials::StsConfig;
use placet_identity::Secrets;
use placet_policy::{
    bundle::{BundleSource, FILE_BYTES_MAX, FILES_MAX, PolicyFile},
    cases::run::World as CaseWorld,
};
use placet_types::{
    contract::{
        Contract,
        credential::{ActorSource, CredentialFile},
        file::{ContractFile, EnvValue, TransportFile},
    },
    directory::Directory,
    ids::{PrincipalId, TenantId},
};

use crate::{
    config::load::Config,
    development::DEV_TENANT,
    failure::{Attempted as _, Failure},
    shipped,
    yaml::{self, FileProblem},
};

mod staff;

pub(crate) use self::staff::refused;

/// The most contracts of an environment.
const CONTRACTS_MAX: usize = 1_000;
/// The depth to which folders are searched for policies that a bundle would leave out.
const DEPTH_MAX: u32 = 8;
/// The root of the built-in `files` adapter, below the data folder.
const FILES_ROOT: &str = "files";

/// What is shown instead of a file for a contract that is compiled in.
const BUILT_IN: &str = "the built-in contract";

/// A contract and its file.
#[derive(Debug, Clone)]
pub(crate) struct ContractEntry {
    /// Its file; absent: compiled in.
    pub(crate) path: Option<PathBuf>,
    /// As written.
    pub(crate) file: ContractFile,
    /// Checked.
    pub(crate) contract: Arc<Contract>,
}

impl ContractEntry {
    fn place(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(BUILT_IN))
    }
}

/// Everything that the configuration names.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// The contracts, by the names of their adapters.
    pub(crate) contracts: Vec<ContractEntry>,
    /// Who exists.
    pub(crate) directory: Directory,
    /// The policies.
    pub(crate) bundle: BundleSource,
}

impl World {
    /// Reads everything.
    pub(crate) fn load(config: &Config) -> Result<Self, Failure> {
        let directory = directory(config)?;
        let contracts = contracts(config).map_err(refused_contract)?;
        for entry in &contracts {
            check_secrets(entry, &config.secrets).map_err(refused_contract)?;
            check_service(entry, &config.sts).map_err(refused_contract)?;
        }
        let bundle = match &config.policies {
            None => shipped::bundle(contracts.iter().map(|entry| &entry.file)),
            Some(folder) => bundle(folder)?,
        };
        Ok(Self { contracts, directory, bundle })
    }

    /// The contracts alone.
    pub(crate) fn checked(&self) -> Vec<Arc<Contract>> {
        self.contracts.iter().map(|entry| Arc::clone(&entry.contract)).collect()
    }

    /// The world of policy cases that describe none of their own.
    pub(crate) fn for_cases(&self, config: &Config) -> CaseWorld {
        CaseWorld {
            environment: config.environment.clone(),
            directory: self.directory.clone(),
            contracts: self.checked(),
        }
    }
}

/// The contracts of the configured environment; without a folder of them the built-in one, for every tenant of the directory.
pub(crate) fn contracts(config: &Config) -> Result<Vec<ContractEntry>, FileProblem> {
    let Some(root) = &config.contracts else { return builtin(config).map(|entry| vec![entry]) };
    let folder = root.join(config.environment.as_str());
    let paths = files_of(&folder, &["yaml", "yml"]).map_err(|error| {
        let whose = format!("the contracts of `environment: {}`", config.environment);
        FileProblem::of_file(&folder, format!("{whose} cannot be read: {error}"))
    })?;
    if paths.is_empty() || paths.len() > CONTRACTS_MAX {
        return Err(FileProblem::of_file(
            &folder,
            format!("there must be 1 to {CONTRACTS_MAX} contracts (*.yaml)"),
        ));
    }
    let entries =
        paths.into_iter().map(|path| contract(&path, config)).collect::<Result<Vec<_>, _>>()?;
    check_roots(&entries, &config.data)?;
    Ok(entries)
}

/// No root of one contract is inside that of another, where it could be the folder of a tenant.
fn check_roots(entries: &[ContractEntry], data: &Path) -> Result<(), FileProblem> {
    let roots = entries.iter().filter_map(|entry| {
        let TransportFile::Internal { root, .. } = &entry.file.transport else { return None };
        Some((entry, data.join(root)))
    });
    let roots: Vec<_> = roots.collect();
    for (entry, root) in &roots {
        let outer = roots.iter().find(|(_, outer)| root != outer && root.starts_with(outer));
        if let Some((outer, _)) = outer {
            let outer = &outer.file.adapter;
            let problem = format!("is inside the root of `{outer}`; name a folder outside it");
            return Err(FileProblem::at(entry.place(), "transport.root", problem));
        }
    }
    Ok(())
}

fn builtin(config: &Config) -> Result<ContractEntry, FileProblem> {
    let tenants = read_directory(config)?.tenants.into_keys().collect();
    let file = builtin_contract(config.environment.clone(), tenants, FILES_ROOT);
    let contract = Contract::from_file(file.clone())
        .map_err(|error| FileProblem::of_file(Path::new(BUILT_IN), error))?;
    Ok(ContractEntry { path: None, file, contract: Arc::new(contract) })
}

fn contract(path: &Path, config: &Config) -> Result<ContractEntry, FileProblem> {
    let file: ContractFile = yaml::read(path)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if file.adapter.as_str() != stem {
        let problem = format!(
            "the file is named `{stem}`, the adapter `{}`: they must be the same",
            file.adapter
        );
        return Err(FileProblem::at(path, "adapter", problem));
    }
    if file.environment != config.environment {
        let problem =
            format!("is `{}` in the folder of `{}`", file.environment, config.environment);
        return Err(FileProblem::at(path, "environment", problem));
    }
    let contract =
        Contract::from_file(file.clone()).map_err(|error| FileProblem::of_file(path, error))?;
    Ok(ContractEntry { path: Some(path.to_owned()), file, contract: Arc::new(contract) })
}

/// The secrets that a contract names, each with the key that names it.
pub(crate) fn secrets_of<'a>(
    transport: &'a TransportFile,
    credential: Option<&'a CredentialFile>,
) -> Vec<(String, &'a str)> {
    let credential = credential.into_iter().filter_map(|one| one.secret.as_deref());
    let credential = credential.map(|secret| ("credential.secret".to_owned(), secret));
    let mut secrets: Vec<_> = credential.collect();
    if let TransportFile::McpStdio { env, .. } = transport {
        secrets.extend(env.iter().filter_map(|(name, value)| {
            let EnvValue::Secret { secret } = value else { return None };
            Some((format!("transport.env.{name}.secret"), secret.as_str()))
        }));
    }
    secrets
}

fn check_secrets(entry: &ContractEntry, secrets: &Secrets) -> Result<(), FileProblem> {
    for (key, secret) in secrets_of(&entry.file.transport, entry.file.credential.as_ref()) {
        secrets.named(secret).map_err(|error| {
            let add = "add it to the configuration as `NAME: ${VARIABLE}` under `secrets:`";
            FileProblem::at(entry.place(), key, format!("{error}; {add}"))
        })?;
    }
    Ok(())
}

/// The token service that a contract names has to exist, and to be capable of what the contract needs.
fn check_service(entry: &ContractEntry, services: &[StsConfig]) -> Result<(), FileProblem> {
    let Some(credential) = &entry.file.credential else { return Ok(()) };
    let Some(name) = &credential.sts else { return Ok(()) };
    let path = entry.place();
    let Some(service) = services.iter().find(|service| service.name == *name) else {
        // The written text is not repeated: it may be a secret in the place of a name.
        let names: Vec<&str> = services.iter().map(|service| service.name.as_str()).collect();
        let listed = if names.is_empty() {
            ", which has none (`sts`)".to_owned()
        } else {
            format!("; those of `sts` are `{}`", names.join("`, `"))
        };
        let problem = format!("names no token service of the configuration{listed}");
        return Err(FileProblem::at(path, "credential.sts", problem));
    };
    if credential.actor == ActorSource::Gateway && !service.client_auth.names_us() {
        let problem = format!(
            "Placet can act by name at `{name}` only with `private_key_jwt` or `spiffe_jwt`"
        );
        return Err(FileProblem::at(path, "credential.actor", problem));
    }
    Ok(())
}

fn refused_contract(problem: FileProblem) -> Failure {
    Failure::new("a contract cannot be used").because(problem).try_this(
        "`placet schema contract` prints every key, `placet adapters list` shows what is there",
    )
}

/// The tenant that something is written for: the requested one, which has to exist, else the only one.
///
/// # Errors
/// [`Failure`] when the directory does not have it, or when one has to be named.
pub(crate) fn tenant(config: &Config, wanted: Option<&TenantId>) -> Result<TenantId, Failure> {
    let tenants = read_directory(config).attempted("the directory cannot be used")?.tenants;
    let listed: Vec<&str> = tenants.keys().map(TenantId::as_str).collect();
    let listed = format!("the directory has `{}`", listed.join("`, `"));
    match wanted {
        Some(tenant) if tenants.contains_key(tenant) => Ok(tenant.clone()),
        Some(tenant) => {
            Err(Failure::usage(format!("there is no tenant `{tenant}`")).because(listed))
        }
        None => match tenants.keys().next() {
            Some(tenant) if tenants.len() == 1 => Ok(tenant.clone()),
            Some(_) => {
                Err(Failure::usage("`--tenant` says which tenant it is for").because(listed))
            }
            None => Err(Failure::new("the directory has no tenant")),
        },
    }
}

/// The tenant of the development agent, and of development tokens that name none: the directory's only one, or the one that `placet init`
/// names.
///
/// # Errors
/// [`Failure`] when the directory has several, and not that one.
pub(crate) fn development_tenant(config: &Config) -> Result<TenantId, Failure> {
    tenant(config, None).or_else(|several| {
        let named = DEV_TENANT.parse().ok();
        named.and_then(|named| tenant(config, Some(&named)).ok()).ok_or(several)
    })
}

/// The directory's file, checked for contradictions.
fn read_directory(config: &Config) -> Result<Directory, FileProblem> {
    let path = config.directory.as_deref().unwrap_or(Path::new("the development directory"));
    let directory: Directory = match &config.directory {
        None => yaml::parse(path, shipped::DIRECTORY)?,
        Some(path) => yaml::read(path)?,
    };
    directory.check().map_err(|error| FileProblem::of_file(path, error))?;
    Ok(directory)
}

fn directory(config: &Config) -> Result<Directory, Failure> {
    let directory = read_directory(config).attempted("the directory cannot be used").map_err(|failure| {
        failure.try_this("`placet schema directory` prints every key; `directory:` in the configuration names the file")
    })?;
    let is_agent = |tenant: &TenantId, name: &str| {
        PrincipalId::new(name).is_ok_and(|id| directory.agent(tenant, &id).is_some())
    };
    config.identity.check_persons_clients(is_agent).attempted("the issuers cannot be used")?;
    Ok(directory)
}

/// The policies in a folder.
pub(crate) fn bundle(folder: &Path) -> Result<BundleSource, Failure> {
    let what = || format!("the policies in `{}` cannot be used", folder.display());
    refuse_astray(folder, &["cedar"], &what())?;
    let paths = files_of(folder, &["cedar"]).attempted(what()).map_err(|failure| {
        failure.try_this("`policies:` in the configuration names the folder; without it the shipped policies are used")
    })?;
    if paths.is_empty() {
        return Err(Failure::new(what())
            .because("there is no `*.cedar` in it, and without a policy nobody may do anything")
            .try_this("`placet init DIR` writes a copy of the shipped policies; without `policies:` they are used as they are"));
    }
    if paths.len() > FILES_MAX {
        return Err(Failure::new(what()).because(format!("there are more than {FILES_MAX} files")));
    }
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let text = yaml::read_text(&path).attempted(what())?;
        if text.len() > FILE_BYTES_MAX {
            return Err(Failure::new(what())
                .because(format!("`{}` is larger than {FILE_BYTES_MAX} bytes", path.display())));
        }
        let name =
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        files.push(PolicyFile { name, text });
    }
    Ok(BundleSource::new(files))
}

/// Checks that [`files_of`] leaves out no file of this kind below the folder: no rule that somebody wrote is skipped silently, and no
/// case. Names that begin with two dots are bookkeeping of mounted volumes, whose files are linked into the folder itself.
pub(crate) fn refuse_astray(folder: &Path, extensions: &[&str], what: &str) -> Result<(), Failure> {
    let mut astray = Vec::new();
    find_astray(folder, extensions, 0, &mut astray).attempted(what)?;
    let Some((path, why)) = astray.into_iter().next() else { return Ok(()) };
    let extension = extensions.first().copied().unwrap_or_default();
    Err(Failure::new(what)
        .because(format!("`{}` would not be read: {why}", path.display()))
        .try_this(format!("move it into the folder as NAME.{extension}, or remove it")))
}

fn find_astray(
    folder: &Path,
    extensions: &[&str],
    depth: u32,
    astray: &mut Vec<(PathBuf, &'static str)>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        if name.starts_with("..") {
            continue;
        }
        if path.is_dir() {
            if depth >= DEPTH_MAX {
                astray.push((path, "its folders are nested too deeply to be searched"));
            } else {
                find_astray(&path, extensions, depth.saturating_add(1), astray)?;
            }
            continue;
        }
        // Of `.cedar`, which has no extension, the name is one.
        let extension = path.extension().or(path.file_name()).and_then(|name| name.to_str());
        let extension = extension.map(|name| name.trim_start_matches('.')).unwrap_or_default();
        let is_meant = extensions.iter().any(|one| one.eq_ignore_ascii_case(extension));
        let why = if depth > 0 {
            "it is in a subfolder"
        } else if name.starts_with('.') {
            "it is hidden"
        } else if !extensions.contains(&extension) {
            "the end of its name is not in lower case"
        } else {
            continue;
        };
        if is_meant {
            astray.push((path, why));
        }
    }
    astray.sort();
    Ok(())
}

/// The files of a folder with one of these extensions, in the order of their names.
pub(crate) fn files_of(folder: &Path, extensions: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if !hidden && extension.is_some_and(|extension| extensions.contains(&extension)) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::World;
    use crate::{
        config::load::{Config, ConfigArgs},
        environment::Environment,
        shipped,
    };

    fn config(dir: &Path, text: &str) -> Config {
        let path = dir.join("placet.yaml");
        fs::write(&path, text).unwrap();
        Config::load(
            &ConfigArgs { config: Some(path), data: None, ledger: None },
            &Environment::of([("T", "t")]),
        )
        .unwrap()
    }

    fn load(dir: &Path, text: &str) -> Result<World, String> {
        World::load(&config(dir, text)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_defaults_compile_and_have_the_files_adapter() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), "{}");
        let world = World::load(&config).unwrap();
        assert_eq!(world.contracts.len(), 1);
        assert_eq!(world.contracts[0].contract.adapter.as_str(), "files");
        let snapshot = world.compile(&world.bundle, &config).unwrap();
        assert!(snapshot.policies().count() > 5);
    }

    #[test]
    fn an_empty_policy_folder_and_a_missing_one_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("policies")).unwrap();
        fs::write(dir.path().join("policies/notes.txt"), "x").unwrap();
        assert!(load(dir.path(), "policies: policies").unwrap_err().contains("no `*.cedar`"));
        assert!(load(dir.path(), "policies: nowhere").unwrap_err().contains("cannot be used"));
    }

    #[test]
    fn a_directory_with_an_unknown_owner_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("d.yaml"),
            "tenants: { t: { agents: { a: { owner: nobody } } } }",
        )
        .unwrap();
        assert!(load(dir.path(), "directory: d.yaml").unwrap_err().contains("owned by `nobody`"));
    }

    #[test]
    fn contracts_are_refused_for_a_wrong_name_an_unknown_key_and_a_missing_secret() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("contracts/dev")).unwrap();
        let file = dir.path().join("contracts/dev/mail.yaml");
        let text = "contract_version: placet.contract.v1\nadapter: mail\nenvironment: dev\ntenants: [local]\n\
                    transport: { type: mcp_stdio, command: /bin/mail, env: { KEY: { secret: mail-key } } }\n\
                    protocol_version: '2025-06-18'\ncapabilities:\n  send:\n    input_schema: { type: object }\n    \
                    mode: destructive\n    effect: write\n    dedup: { class: opaque }\n";
        let with = |text: &str| {
            fs::write(&file, text).unwrap();
            load(dir.path(), "contracts: contracts\nsecrets: { other: '${T}' }")
        };
        let missing = with(text).unwrap_err();
        assert!(
            missing.contains("transport.env.KEY.secret")
                && missing.contains("those of `secrets` are `other`")
                && missing.contains("`NAME: ${VARIABLE}` under `secrets:`"),
            "{missing}"
        );
        assert!(!missing.contains("mail-key"), "it may be the value itself: {missing}");
        let text = text.replace("mail-key", "other");
        assert_eq!(with(&text).unwrap().contracts.len(), 1);
        assert!(
            with(&text.replace("adapter: mail", "adapter: post"))
                .unwrap_err()
                .contains("must be the same")
        );
        assert!(
            with(&text.replace("environment: dev", "environment: prod"))
                .unwrap_err()
                .contains("`environment`")
        );
        let unknown = with(&text.replace("protocol_version", "protocol_versio")).unwrap_err();
        assert!(unknown.contains("mail.yaml:6"), "{unknown}");
        fs::remove_file(&file).unwrap();
        assert!(
            load(dir.path(), "contracts: contracts").unwrap_err().contains("1 to 1000 contracts")
        );
    }

    #[test]
    fn the_development_directory_has_two_people_and_an_agent() {
        let directory: placet_types::directory::Directory =
            crate::yaml::parse(Path::new("d"), shipped::DIRECTORY).unwrap();
        directory.check().unwrap();
        let local = directory.tenants.values().next().unwrap();
        let owner = &local.agents.values().next().unwrap().owner;
        let approvers = local
            .users
            .iter()
            .filter(|(_, user)| user.groups.iter().any(|g| g.as_str() == "approvers"));
        assert!(
            approvers.map(|(name, _)| name).all(|name| name != owner),
            "somebody else than the owner approves"
        );
    }
}
