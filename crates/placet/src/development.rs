//! What trying Placet out on one machine needs: the data folder, the development key in it, and the tenant of its tokens.
//!
//! Owns how they are made. The key itself is `placet-identity`'s; only a loopback listener accepts its tokens.

use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt as _};

use placet_identity::DevKey;

use crate::{
    config::load::Config,
    failure::{Attempted as _, Failure},
    output,
};

/// The tenant of the development directory.
pub(crate) const DEV_TENANT: &str = "local";
/// The agent of the development directory.
pub(crate) const DEV_AGENT: &str = "dev-agent";

/// The development key in the data folder, made if there is none.
pub(crate) fn dev_key(config: &Config) -> Result<DevKey, Failure> {
    make_data_folder(config)?;
    DevKey::load_or_create(&config.data).attempted("the development key cannot be used")
}

/// The same for a command, which reports if it had to create one.
pub(crate) fn dev_key_here(config: &Config) -> Result<DevKey, Failure> {
    let is_new = !DevKey::path(&config.data).try_exists().unwrap_or(true);
    let key = dev_key(config)?;
    if is_new {
        output::note(format!(
            "note: made a development key in `{}`; a Placet that has its data elsewhere does not know it (--data)",
            config.data.display()
        ));
    }
    Ok(key)
}

/// Makes the data folder, for its owner only.
pub(crate) fn make_data_folder(config: &Config) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&config.data);
    made.map_err(|error| {
        let failure =
            Failure::new(format!("the data folder `{}` cannot be made", config.data.display()));
        let failure = if config.data.is_file() {
            failure.because("there is a file of that name")
        } else {
            failure.because(error)
        };
        failure.try_this("name another one with --data")
    })
}
