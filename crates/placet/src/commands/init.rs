//! `placet init`: a configuration to start from, on disk, so that a person can edit it.
//!
//! Owns the list of files. Invariant: no existing file is touched; if one is in the way, none is written.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args as ClapArgs;
use placet_adapter_files::contract::builtin_contract;
use placet_types::ids::{EnvironmentName, TenantId};
use serde_json::json;

use crate::{
    commands::{adapters, schema},
    config::load::DEFAULT_FILE,
    development::DEV_TENANT,
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output, shipped,
};

/// Write placet.yaml, directory.yaml, a contract and a copy of the shipped policies.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  placet init\n  placet init my-placet && cd my-placet && placet serve\n  placet init --import ~/.cursor/mcp.json"
)]
pub(crate) struct Args {
    /// The folder to write to; created if it is missing.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// The tenant that the directory and the contract are for.
    #[arg(long, default_value = DEV_TENANT)]
    tenant: TenantId,
    /// The `mcpServers` file of an MCP client. Its servers become contracts, with the mode `destructive` for each tool.
    #[arg(long, value_name = "FILE")]
    import: Option<PathBuf>,
    /// With --import: let the servers' processes open any connection, as `npx` needs for downloads.
    #[arg(long, requires = "import")]
    network_unconfined: bool,
}

/// Writes the files, and imports the client's servers.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    for path in write_all(&args.dir, args.tenant.as_str())? {
        output::line(format!("wrote {}", path.display()));
    }
    let (exit, lacks_secrets) = match &args.import {
        Some(file) => import(args, file, environment).await?,
        None => (Exit::Ok, None),
    };
    let here = args.dir == Path::new(".");
    let enter = if here { String::new() } else { format!("cd {} && ", args.dir.display()) };
    let file = args.dir.join(DEFAULT_FILE);
    let first = format!("  add the secrets named above under `secrets:` in {}\n", file.display());
    let first = if lacks_secrets == Some(true) { first.as_str() } else { "" };
    output::line(format!("\nNext:\n{first}  {enter}{} serve", environment.program()));
    Ok(exit)
}

/// The client's servers become contracts, and a single server replaces them in the client.
async fn import(
    args: &Args,
    file: &Path,
    environment: &Environment,
) -> Result<(Exit, Option<bool>), Failure> {
    let config = args.dir.join(DEFAULT_FILE);
    let imported =
        adapters::import::all_of(file, args.network_unconfined, &config, environment).await?;
    if let (_, None) = imported {
        output::line("\nNo server was imported: leave the client's configuration as it is.");
        return Ok(imported);
    }
    let config = fs::canonicalize(&config).attempted("the configuration cannot be found")?;
    let server = json!({ "command": "placet", "args": ["mcp", "-f", config] });
    let snippet = serde_json::to_string_pretty(&json!({ "mcpServers": { "placet": server } }));
    output::line(format!(
        "\nPut this into the client's configuration, in the place of the servers that were imported:\n{}",
        snippet.attempted("the snippet cannot be written")?
    ));
    Ok(imported)
}

/// Writes the files for a tenant into a folder.
pub(crate) fn write_all(dir: &Path, tenant: &str) -> Result<Vec<PathBuf>, Failure> {
    let files = files(&tenant.parse().attempted("the tenant has no name")?)?;
    for (name, _) in &files {
        let path = dir.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(Failure::new(format!("`{}` is there already", path.display()))
                .because("`init` never overwrites")
                .try_this("name another folder, or move the file away"));
        }
    }
    for (name, text) in &files {
        adapters::written::write(&dir.join(name), text)?;
    }
    Ok(files.iter().map(|(name, _)| dir.join(name)).collect())
}

/// Every file with its text.
fn files(tenant: &TenantId) -> Result<Vec<(String, String)>, Failure> {
    let environment =
        EnvironmentName::new("dev").attempted("the environment's name cannot be used")?;
    let contract = builtin_contract(environment, [tenant.clone()].into(), "files");
    let contract =
        serde_saphyr::to_string(&contract).attempted("the contract cannot be written")?;
    let contract =
        format!("# yaml-language-server: $schema=../../contract.schema.json\n{contract}");
    let directory =
        shipped::DIRECTORY.replace(&format!("\n  {DEV_TENANT}:\n"), &format!("\n  {tenant}:\n"));
    let mut files = vec![
        ("placet.yaml".to_owned(), shipped::CONFIG.to_owned()),
        ("directory.yaml".to_owned(), directory),
        ("contracts/dev/files.yaml".to_owned(), contract),
        ("policies/README.md".to_owned(), shipped::POLICIES_README.to_owned()),
    ];
    let copies = shipped::POLICIES.iter().chain([&shipped::FILES_POLICY]).chain(shipped::CASES);
    files.extend(copies.map(|(name, text)| (format!("policies/{name}"), (*text).to_owned())));
    for (file, name) in [("placet", "config"), ("directory", "directory"), ("contract", "contract")]
    {
        let text = schema::text_of(name)
            .ok_or_else(|| Failure::new(format!("there is no schema `{name}`")))?;
        files.push((format!("{file}.schema.json"), text));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use placet_types::contract::file::TenantsFile;

    use super::{Args, run};
    use crate::{
        config::load::{Config, ConfigArgs},
        environment::Environment,
        world::World,
    };

    #[tokio::test]
    async fn what_init_writes_is_a_configuration_that_works_and_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let (dir, tenant) = (dir.path().join("new"), "acme".parse().unwrap());
        let args = Args { dir, tenant, import: None, network_unconfined: false };
        let environment = Environment::of([]);
        run(&args, &environment).await.unwrap();

        let config =
            ConfigArgs { config: Some(args.dir.join("placet.yaml")), data: None, ledger: None };
        let config = Config::load(&config, &environment).unwrap();
        let world = World::load(&config).unwrap();
        assert!(world.contracts[0].path.is_some());
        assert_eq!(world.directory.tenants.keys().collect::<Vec<_>>(), [&args.tenant]);
        let TenantsFile::Only(tenants) = &world.contracts[0].file.tenants else { panic!("all") };
        assert_eq!(*tenants, [args.tenant.clone()].into());
        assert_eq!(world.bundle.files, crate::shipped::bundle([&world.contracts[0].file]).files);
        world.compile(&world.bundle, &config).unwrap();

        let before = fs::read_to_string(args.dir.join("placet.yaml")).unwrap();
        assert!(before.starts_with("# yaml-language-server: $schema=./placet.schema.json\n"));
        let again = run(&args, &environment).await.unwrap_err().to_string();
        assert!(again.contains("there already"), "{again}");
        assert_eq!(fs::read_to_string(args.dir.join("placet.yaml")).unwrap(), before);
    }
}
