//! `--name`: what an imported adapter and its tools are called.
//!
//! Owns the two forms of the option. Does not know which tools there are.

use std::{collections::BTreeMap, str::FromStr};

use clap::Args as ClapArgs;
use placet_types::ids::{AdapterName, CapabilityName, IdError};

use crate::failure::Failure;

/// What an import names.
#[derive(Debug, ClapArgs)]
pub(super) struct Names {
    /// The adapter's name; of an mcpServers file, the one server to take. As TOOL=NAME, another name for a tool, whose own cannot be used.
    #[arg(long, value_name = "NAME|TOOL=NAME")]
    name: Vec<Named>,
}

impl Names {
    /// The name of the adapter.
    ///
    /// # Errors
    /// [`Failure`] when there are two.
    pub(super) fn adapter(&self) -> Result<Option<&AdapterName>, Failure> {
        let mut names = self.name.iter().filter_map(|named| match named {
            Named::Adapter(name) => Some(name),
            Named::Tool { .. } => None,
        });
        let name = names.next();
        if names.next().is_some() {
            return Err(Failure::usage("`--name` names two adapters"));
        }
        Ok(name)
    }

    /// The names of capabilities, by the names of their tools.
    ///
    /// # Errors
    /// [`Failure`] when a tool has two.
    pub(super) fn tools(&self) -> Result<BTreeMap<String, CapabilityName>, Failure> {
        let mut names = BTreeMap::new();
        for named in &self.name {
            let Named::Tool { tool, name } = named else { continue };
            if names.insert(tool.clone(), name.clone()).is_some() {
                return Err(Failure::usage(format!("`--name` names the tool `{tool}` twice")));
            }
        }
        Ok(names)
    }
}

/// What `--name` names.
#[derive(Debug, Clone)]
pub(super) enum Named {
    /// The adapter.
    Adapter(AdapterName),
    /// A tool of it.
    Tool {
        /// Its name at the server.
        tool: String,
        /// The capability's name.
        name: CapabilityName,
    },
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.rsplit_once('=') {
            None => text.parse().map(Self::Adapter).map_err(|error: IdError| error.to_string()),
            Some((tool, name)) => {
                let name = CapabilityName::new(name).map_err(|error| error.to_string())?;
                Ok(Self::Tool { tool: tool.to_owned(), name })
            }
        }
    }
}
