//! `mcpServers`: the format in which MCP clients list their servers, read for import.
//!
//! Owns parsing and the treatment of secrets: a value that looks like one is never written into a contract; the
//! contract names a secret instead, and the operator is told how to provide it. Unknown keys are other clients' business.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use placet_telemetry::redact::{holds_secret, is_secret_name};
use placet_types::{
    contract::{
        credential::CredentialFile,
        file::{EnvValue, TransportFile},
        process::ProcessFile,
    },
    ids::AdapterName,
};
use secrecy::SecretString;
use serde::Deserialize;

use crate::{
    environment::Environment,
    failure::{Attempted as _, Failure},
    yaml,
};

/// A server to import.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// The adapter's name.
    pub(crate) name: AdapterName,
    /// How it is reached.
    pub(crate) transport: TransportFile,
    /// The credential it wants.
    pub(crate) credential: Option<CredentialFile>,
    /// Values of the secrets that transport and credential name, for the connection of the import itself.
    pub(crate) secrets: BTreeMap<String, SecretString>,
    /// What the operator has to know.
    pub(crate) notes: Vec<String>,
}

#[derive(Deserialize)]
struct ServersFile {
    #[serde(rename = "mcpServers", alias = "servers")]
    servers: BTreeMap<String, Server>,
}

/// One server. No `Debug`: it may hold secrets.
#[derive(Deserialize)]
struct Server {
    #[serde(rename = "type", alias = "transport")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    #[serde(alias = "serverUrl", alias = "httpUrl")]
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
}

/// Each server of a file, or those that become the adapters of these names; or why it cannot be expressed as a contract. `-` is standard
/// input.
pub(crate) fn read(
    path: &Path,
    only: &BTreeSet<AdapterName>,
    environment: &Environment,
) -> Result<Vec<Result<Source, String>>, Failure> {
    let what = || format!("`{}` cannot be imported", path.display());
    let text = yaml::read_input(path).attempted(what())?;
    parse(&text, only, environment).attempted(what())
}

/// Each server in the text of such a file, or those of these names; or why it cannot be expressed as a contract.
///
/// # Errors
/// What is wrong with it, without any of its values.
pub(crate) fn parse(
    text: &str,
    only: &BTreeSet<AdapterName>,
    environment: &Environment,
) -> Result<Vec<Result<Source, String>>, String> {
    let file: ServersFile = serde_json::from_str(text).map_err(|error| {
        format!("it is no `mcpServers` file: line {}, column {}", error.line(), error.column())
    })?;
    let named = |name: &str| adapter_name(name).ok().filter(|adapter| only.contains(adapter));
    let is_wanted = |name: &str| only.is_empty() || named(name).is_some();
    let mut servers = file.servers;
    servers.retain(|name, server| !server.disabled && is_wanted(name));
    let found: BTreeSet<_> = servers.keys().filter_map(|name| named(name)).collect();
    let missing = only.difference(&found).next();
    if servers.is_empty() || missing.is_some() {
        let which = missing.map(|name| format!(" as `{name}`")).unwrap_or_default();
        return Err(format!("it names no server{which} that is enabled"));
    }
    Ok(servers.into_iter().map(|(name, server)| source(&name, server, environment)).collect())
}

fn source(name: &str, server: Server, environment: &Environment) -> Result<Source, String> {
    let adapter = adapter_name(name)?;
    let mut notes = Vec::new();
    if adapter.as_str() != name {
        notes.push(format!("the server `{name}` becomes the adapter `{adapter}`"));
    }
    let mut vault =
        Vault { adapter: adapter.clone(), environment, secrets: BTreeMap::new(), notes };
    let Server { kind, command, args, env, cwd, url, headers, .. } = server;
    let (transport, credential) = match (command, url) {
        (Some(command), None) => {
            let before = std::iter::once("").chain(args.iter().map(String::as_str));
            if args.iter().zip(before).any(|(argument, before)| gives_secret(before, argument)) {
                return Err(format!(
                    "an argument of server `{name}` looks like a secret: pass it in `env` instead"
                ));
            }
            let env = env
                .into_iter()
                .map(|(variable, value)| vault.variable(variable, value))
                .collect::<Result<_, _>>()?;
            let process = ProcessFile::default();
            (TransportFile::McpStdio { command, args, env, cwd, process }, None)
        }
        (None, Some(url)) => {
            let private_network = is_private(&url);
            let sse = kind.as_deref() == Some("sse");
            (TransportFile::McpHttp { url, private_network, sse }, vault.credential(name, headers)?)
        }
        (Some(_), Some(_)) => return Err(format!("server `{name}` has both a command and a url")),
        (None, None) => return Err(format!("server `{name}` has neither a command nor a url")),
    };
    Ok(Source { name: adapter, transport, credential, secrets: vault.secrets, notes: vault.notes })
}

/// Whether an argument looks like a secret, by itself or by the flag that it belongs to: `--password=x` or `--password x`.
fn gives_secret(before: &str, argument: &str) -> bool {
    match argument.split_once('=') {
        Some((flag, value)) if flag.starts_with('-') => {
            holds_secret(value) || is_secret_of(flag, value)
        }
        Some(_) | None => {
            let is_value = !argument.starts_with('-') && !before.contains('=');
            holds_secret(argument) || is_value && is_secret_of(before, argument)
        }
    }
}

/// Whether a flag is for a secret, and this value may be one.
fn is_secret_of(flag: &str, value: &str) -> bool {
    let flag = flag.to_ascii_lowercase();
    let words: Vec<&str> = flag.split(['-', '_']).filter(|word| !word.is_empty()).collect();
    let is_place = words.last().is_some_and(|last| PLACES.contains(last));
    // A model's tokens are counted.
    let is_count = flag.contains("token") && value.bytes().all(|byte| byte.is_ascii_digit());
    let is_switch = value.is_empty() || matches!(value, "true" | "false");
    flag.starts_with('-')
        && (is_secret_name(&flag) || words.contains(&"pass"))
        && !is_place
        && !is_count
        && !is_switch
}

/// The last words of flags that say where a secret is, and not what it is.
const PLACES: [&str; 5] = ["file", "path", "dir", "env", "name"];

/// Lower case, dashes for everything else that is not a letter or digit.
pub(crate) fn adapter_name(name: &str) -> Result<AdapterName, String> {
    let lower = name.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    AdapterName::new(words.collect::<Vec<_>>().join("-"))
        .map_err(|error| format!("server `{name}` cannot be named as an adapter: {error}"))
}

/// Whether a URL was evidently meant for this machine or network.
pub(crate) fn is_private(url: &str) -> bool {
    let parsed = url::Url::parse(url).ok();
    parsed.as_ref().is_some_and(|url| {
        url.scheme() == "http"
            || match url.host() {
                Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_private(),
                Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
                Some(url::Host::Domain(name)) => name == "localhost",
                None => false,
            }
    })
}

/// Turns values that look like secrets into names of secrets.
struct Vault<'a> {
    adapter: AdapterName,
    environment: &'a Environment,
    secrets: BTreeMap<String, SecretString>,
    notes: Vec<String>,
}

impl Vault<'_> {
    fn variable(&mut self, variable: String, value: String) -> Result<(String, EnvValue), String> {
        let is_reference = reference(&value).is_some();
        if !is_reference && !is_secret_name(&variable) && !holds_secret(&value) {
            return Ok((variable, EnvValue::Literal(value)));
        }
        let secret = self.keep(&variable, &value, &variable)?;
        Ok((variable, EnvValue::Secret { secret }))
    }

    fn credential(
        &mut self,
        server: &str,
        headers: BTreeMap<String, String>,
    ) -> Result<Option<CredentialFile>, String> {
        let mut headers = headers.into_iter();
        let Some((header, value)) = headers.next() else { return Ok(None) };
        if headers.next().is_some() {
            return Err(format!(
                "server `{server}` wants several headers; a contract carries one credential"
            ));
        }
        let header = header.to_ascii_lowercase();
        let value = if header == "authorization" {
            let token = value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("bearer "));
            token
                .ok_or_else(|| {
                    format!("server `{server}` wants an authorization that is no bearer token")
                })?
                .to_owned()
        } else {
            value
        };
        let variable = format!("{}_TOKEN", self.adapter.as_str().to_uppercase().replace('-', "_"));
        let secret = self.keep("token", &value, &variable)?;
        Ok(Some(CredentialFile::secret(secret, Some(header))))
    }

    /// Keeps a value, or that of the variable it refers to, for the connection, and returns its name.
    fn keep(&mut self, what: &str, value: &str, variable: &str) -> Result<String, String> {
        let (value, variable) = match reference(value) {
            None => (value.to_owned(), variable),
            Some(name) => {
                let unset = || format!("the variable `{name}` that it refers to is not set");
                (self.environment.get(name).ok_or_else(unset)?, name)
            }
        };
        let secret = format!("{}-{}", self.adapter, what.to_lowercase().replace('_', "-"));
        self.notes.push(format!(
            "`{what}` looks like a secret and is not written into the contract: put `{secret}: ${{{variable}}}` under \
             `secrets:` in placet.yaml"
        ));
        self.secrets.insert(secret.clone(), SecretString::from(value));
        Ok(secret)
    }
}

/// The name in `${NAME}`.
fn reference(value: &str) -> Option<&str> {
    value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'))
}
