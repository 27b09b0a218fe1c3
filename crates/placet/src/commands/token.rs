//! `placet token`: a development token, for trying things out on one machine.
//!
//! Owns the options. The key and the minting are `placet-identity`'s; only a loopback listener accepts these tokens.

use clap::Args as ClapArgs;
use placet_identity::MintRequest;
use placet_types::{
    ids::{GroupId, PrincipalId, TenantId},
    principal::PrincipalKind,
};

use crate::{
    clock::SystemClock,
    commands::times,
    config::load::{Config, ConfigArgs},
    development::dev_key_here,
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output, world,
};

/// The longest lifetime of a development token.
const LIFETIME_S_MAX: u64 = 43_200;

/// Mint a development token and print nothing else.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    export PLACET_TOKEN=$(placet token agent dev-agent)\n  \
    PLACET_TOKEN=$(placet token user ben) placet approvals list\n  \
    export PLACET_DELEGATION=$(placet token user ana --for-agent dev-agent)")]
pub(crate) struct Args {
    /// The kind of principal: agent, user, service or automation.
    #[arg(value_name = "KIND", value_parser = kind)]
    kind: PrincipalKind,
    /// The principal's name within the tenant.
    #[arg(value_name = "NAME")]
    id: PrincipalId,
    /// The tenant [default: the only one of the directory, or `local`].
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Groups of the user, in addition to those of the directory.
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    groups: Vec<GroupId>,
    /// Make it a user's delegation to this agent, for PLACET_DELEGATION.
    #[arg(long, value_name = "AGENT")]
    for_agent: Option<PrincipalId>,
    /// The scopes of the token.
    #[arg(long, value_name = "SCOPE", value_delimiter = ',')]
    scopes: Vec<String>,
    /// The lifetime of the token, such as 30m; 12h at most.
    #[arg(long, default_value = "1h", value_parser = lifetime)]
    ttl: u64,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Prints a token.
pub(crate) fn run(args: &Args, environment: &Environment) -> Outcome {
    let config = Config::load(&args.config, environment)?;
    if !config.development_tokens {
        return Err(Failure::new("this configuration accepts no development tokens")
            .because("it names issuers")
            .try_this("get a token from one of them, or set `development_tokens: true` for a loopback listener"));
    }
    let tenant = match &args.tenant {
        Some(named) => world::tenant(&config, Some(named))?,
        None => world::development_tenant(&config)?,
    };
    let mut request = MintRequest::new(tenant, args.kind, args.id.clone(), config.audience.clone());
    request.groups = args.groups.iter().cloned().collect();
    request.scopes = args.scopes.iter().cloned().collect();
    request.lifetime_s = args.ttl;
    request.act.clone_from(&args.for_agent);
    let key = dev_key_here(&config)?;
    output::line(key.mint(&request, &SystemClock).attempted("the token cannot be minted")?);
    Ok(Exit::Ok)
}

fn kind(text: &str) -> Result<PrincipalKind, String> {
    let kind = serde_json::from_value(text.into());
    kind.map_err(|_unknown| "it is agent, user, service or automation".to_owned())
}

/// `90s`, `30m` or `12h`, as seconds.
fn lifetime(text: &str) -> Result<u64, String> {
    let lifetime_s = times::lasting(text)?.div_euclid(1_000);
    let is_allowed = lifetime_s <= LIFETIME_S_MAX;
    is_allowed.then_some(lifetime_s).ok_or_else(|| "it is twelve hours at most".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::lifetime;
    use crate::{
        cli::{Cli, Command},
        environment::Environment,
    };

    #[test]
    fn a_lifetime_is_a_number_with_a_unit() {
        assert_eq!(lifetime("90s"), Ok(90));
        assert_eq!(lifetime("30m"), Ok(1_800));
        assert_eq!(lifetime("12h"), Ok(43_200));
        for wrong in [
            "",
            "0",
            "h",
            "1d",
            "-1h",
            "1h2",
            "99999999999999999999h",
            "18446744073709551615h",
            "13h",
            "43201",
        ] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }

    fn token(line: &str, data: &std::path::Path) -> crate::failure::Outcome {
        let words = line
            .split(' ')
            .map(str::to_owned)
            .chain(["--data".to_owned(), data.display().to_string()]);
        super::run(&args(Cli::try_parse_from(words).unwrap()), &Environment::of([]))
    }

    fn args(cli: Cli) -> super::Args {
        let Command::Token(args) = cli.command else { panic!("not `token`") };
        args
    }

    #[test]
    fn tokens_are_minted_for_agents_users_and_delegations_and_for_nothing_else() {
        let data = tempfile::tempdir().unwrap();
        for line in [
            "placet token agent dev-agent",
            "placet token user ben --groups approvers,security --ttl 30m",
            "placet token user ana --for-agent dev-agent",
        ] {
            assert!(token(line, data.path()).is_ok(), "{line}");
        }
        assert!(token("placet token agent a --for-agent b", data.path()).is_err());
        for line in [
            "placet token agent a b",
            "placet token agent -x",
            "placet token user a --tenant ../x",
            "placet token user ana --ttl 13h",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
