//! `placet console`: a link that signs a person in to the console of a Placet on this machine, once.
//!
//! Owns the link and how a browser is opened on it. Works without the running Placet, as `placet token` does: the link is made with the
//! development key in the data folder. Invariant: the link is on no command line, which other users of the machine could read.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
};

use clap::Args as ClapArgs;
use placet_identity::SIGN_IN_CODE_MS;
use serde_json::json;
use url::Url;

use crate::{
    clock::SystemClock,
    config::{
        console::is_loopback,
        load::{Config, LocalArgs},
    },
    development::dev_key_here,
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output, shared_engine,
};

/// How long a link is valid, for people.
pub(crate) const LINK_LIFE: &str = "ten minutes";

/// Print a link for signing in to the console once.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The link is made with the development key in the data folder, is valid for ten minutes, and lets one browser choose\n\
    once who signs in. Where people sign in with an OpenID provider no link is needed: open the console's address.\n\n\
    Examples:\n  placet console\n  placet console --open\n  placet console --data /var/lib/placet --url http://127.0.0.1:7500"
)]
pub(crate) struct Args {
    /// Also open the link in a browser.
    #[arg(long)]
    open: bool,
    /// The URL of Placet [default: from the configuration].
    #[arg(long, value_name = "URL", env = "PLACET_URL", hide_env_values = true, value_parser = crate::client::url)]
    url: Option<Url>,
    /// Which configuration, and in which form.
    #[command(flatten)]
    local: LocalArgs,
}

/// Prints a link, and opens it where that is wanted.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let config = args.local.load(environment)?;
    if !config.console.enabled {
        return Err(Failure::new("this configuration serves no console")
            .because("it says `console: { enabled: false }`"));
    }
    config.check_development_names()?;
    let base = base(args, &config)?;
    if !config.development_tokens {
        return Err(Failure::new("this configuration has no development sign-in")
            .because("it accepts no development tokens, since it names issuers")
            .try_this(format!("open {base} and sign in with your provider")));
    }
    let link = link(&config, &base)?;
    let document = json!({ "url": link, "valid_ms": SIGN_IN_CODE_MS });
    let is_elsewhere = args.url.is_some() || config.console.public_url.is_some();
    let runs = is_elsewhere || shared_engine::listening(&config.data).is_some();
    output::answer(args.local.json, &document, |_| {
        output::line(&link);
        output::note(format!("note: it works once, for {LINK_LIFE}"));
        if !runs {
            output::note(
                "note: no Placet of this data folder runs now: start it first, with `placet serve` or an MCP client",
            );
        }
    })?;
    if args.open {
        open(&link, &config.data).await.map_err(|why| {
            Failure::new("no browser could be started")
                .because(why)
                .try_this("open the link that is printed above yourself")
        })?;
    }
    Ok(Exit::Ok)
}

/// A fresh link to the console at `base`.
pub(crate) fn link(config: &Config, base: &Url) -> Result<String, Failure> {
    let code = dev_key_here(config)?.sign_in_code(&SystemClock).attempted("no link can be made")?;
    let mut link = base.clone();
    link.set_path("/sign-in");
    link.set_query(Some(&format!("code={code}")));
    Ok(link.into())
}

/// The console's address: as given or configured, else where the engine of the data folder listens.
fn base(args: &Args, config: &Config) -> Result<Url, Failure> {
    let base = match args.url.as_ref().or(config.console.public_url.as_ref()) {
        Some(url) => url.clone(),
        // A background engine may listen elsewhere than configured.
        None => match shared_engine::listening(&config.data) {
            Some(running) => running.url,
            None => own_address(config)?,
        },
    };
    if config.development_tokens && !is_loopback(base.host_str().unwrap_or_default()) {
        return Err(Failure::usage(format!("no sign-in link can lead to {base}"))
            .because("the development sign-in is there on loopback only"));
    }
    Ok(base)
}

fn own_address(config: &Config) -> Result<Url, Failure> {
    let listen = config.server.listen;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    if listen.port() == 0 {
        return Err(Failure::usage("it is not known where Placet listens")
            .because("`listen` says port 0, which takes any free one")
            .try_this("name its address with --url"));
    }
    Url::parse(&format!("{scheme}://{listen}")).attempted("its address is not a URL")
}

/// Starts the desktop's browser on a page that leads to `link`: a file that only its owner can read.
async fn open(link: &str, data: &Path) -> Result<(), String> {
    let page = page(link, data).map_err(|error| format!("no page can be written: {error}"))?;
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    #[expect(
        clippy::disallowed_methods,
        reason = "the person's own browser, which needs their environment to find their desktop"
    )]
    let mut command = std::process::Command::new(opener);
    command.arg(&page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = tokio::process::Command::from(command).status().await;
    let status = status.map_err(|error| format!("`{opener}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{opener}` ended with {status}")) }
}

/// The page, replacing the previous one.
fn page(link: &str, data: &Path) -> io::Result<PathBuf> {
    let folder = std::fs::canonicalize(data)?;
    // Readable by its owner only.
    let mut draft = tempfile::NamedTempFile::new_in(&folder)?;
    // A link has no character that HTML escapes.
    writeln!(
        draft,
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={link}\"><title>Placet</title><p><a href=\"{link}\">Sign in</a></p>"
    )?;
    let page = folder.join("sign-in.html");
    draft.persist(&page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use clap::Parser as _;

    use super::{Args, base, link, page};
    use crate::{
        cli::{Cli, Command},
        config::load::{Config, ConfigArgs},
        environment::Environment,
    };

    fn args(line: &str) -> Args {
        let Command::Console(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
            panic!("not `console`")
        };
        args
    }

    fn config(text: &str) -> (tempfile::TempDir, Config) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("placet.yaml");
        std::fs::write(&file, text).unwrap();
        let args = ConfigArgs { config: Some(file), data: None, ledger: None };
        let config = Config::load(&args, &Environment::of([])).unwrap();
        (dir, config)
    }

    #[test]
    fn a_link_leads_to_the_address_that_is_named_or_configured() {
        let at = |line: &str, text: &str| base(&args(line), &config(text).1).map(String::from);
        let port = "placet console --url http://127.0.0.1:7500";
        let public = "console: { public_url: 'https://localhost:1' }";
        for (line, text, expected) in [
            ("placet console", "{}", "http://127.0.0.1:7411/"),
            ("placet console", "listen: '[::1]:80'", "http://[::1]/"),
            (port, "{}", "http://127.0.0.1:7500/"),
            ("placet console", public, "https://localhost:1/"),
        ] {
            assert_eq!(at(line, text).unwrap(), expected);
        }
        assert!(at("placet console", "listen: 127.0.0.1:0").is_err());
        assert!(at("placet console --url https://placet.example", "{}").is_err());
    }

    #[test]
    fn the_page_that_is_opened_is_for_its_owner_only() {
        let (dir, config) = config("data: data");
        let link = link(&config, &"http://127.0.0.1:7411".parse().unwrap()).unwrap();
        assert!(link.starts_with("http://127.0.0.1:7411/sign-in?code="), "{link}");
        let page = page(&link, &dir.path().join("data")).unwrap();
        assert!(std::fs::read_to_string(&page).unwrap().contains(&link));
        assert_eq!(std::fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
