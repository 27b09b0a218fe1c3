//! What the command line says about the configuration.

use std::path::PathBuf;

/// What the command line says about the configuration.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ConfigArgs {
    /// The configuration file [default: placet.yaml here, if there is one].
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The data folder, whatever the file says [default: ./placet-data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where records are kept, whatever the file says: `embedded`, or `postgres://user@host/database`.
    #[arg(long, value_name = "WHERE", env = "PLACET_LEDGER", hide_env_values = true)]
    pub(crate) ledger: Option<String>,
}
