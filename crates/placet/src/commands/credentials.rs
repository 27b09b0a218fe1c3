//! `placet credentials`: what was minted for calls, as numbers.
//!
//! Owns the wording. No token is shown or requested.

use clap::Args as ClapArgs;
use placet_engine::views::CredentialsView;

use crate::{
    client::{Client, ClientArgs},
    environment::Environment,
    failure::Outcome,
    output,
};

/// Show how many credentials were issued, reused and refused for calls.
#[derive(Debug, ClapArgs)]
#[command(after_help = "`placet directives revoke` has no token of a subject taken any more.")]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
}

/// Shows what the node that answers has minted and keeps, as numbers.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    let view: CredentialsView = client.get(&["v1", "credentials"], &[]).await?;
    client.answer(&view, output::fields)
}
