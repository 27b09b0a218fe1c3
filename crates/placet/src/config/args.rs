//! The command-line arguments about the configuration.

use std::path::PathBuf;

use super::load::Config;
use crate::{environment::Environment, failure::Failure};

/// What the command line says about the configuration.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ConfigArgs {
    /// The configuration file [default: placet.yaml in the working folder, if it exists].
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The data folder; overrides the configuration file [default: ./placet-data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The ledger; overrides the configuration file: `embedded`, or `postgres://user@host/database`.
    #[arg(long, value_name = "WHERE", env = "PLACET_LEDGER", hide_env_values = true)]
    pub(crate) ledger: Option<String>,
}

/// What commands take that need no running Placet.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct LocalArgs {
    /// Print JSON for programs.
    #[arg(long)]
    pub(crate) json: bool,
    /// Which configuration.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

impl LocalArgs {
    /// The configuration.
    pub(crate) fn load(&self, environment: &Environment) -> Result<Config, Failure> {
        Config::load(&self.config, environment)
    }
}
