//! `placet notifications`: a test message over a channel.
//!
//! Owns the wording. Who is notified of what is in the configuration, and `placet-notify` delivers. Nothing is recorded in the chain.

use clap::{Args as ClapArgs, Subcommand};
use placet_notify::{
    message::{Letter, Message},
    sender::MessageSender as _,
};
use placet_types::{clock::Clock as _, ids::ChannelName};

use crate::{
    clock::SystemClock,
    config::load::{Config, ConfigArgs},
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    notices, output, svids,
};

/// Test a notification channel.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  placet notifications test ops")]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Action {
    /// Send a test message over a channel and print the response.
    Test(TestArgs),
}

/// A test.
#[derive(Debug, ClapArgs)]
struct TestArgs {
    /// The channel.
    #[arg(value_name = "CHANNEL")]
    channel: ChannelName,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Tests a channel.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let Action::Test(args) = &args.action;
    test(args, environment).await
}

async fn test(args: &TestArgs, environment: &Environment) -> Outcome {
    let config = Config::load(&args.config, environment)?;
    if !config.notifications.channels.contains_key(&args.channel) {
        let names = config.notifications.channels.keys().map(ToString::to_string);
        let names = names.collect::<Vec<_>>().join(", ");
        let has = if names.is_empty() { "no channels" } else { names.as_str() };
        return Err(Failure::usage(format!("there is no channel `{}`", args.channel))
            .because(format!("the configuration has: {has}")));
    }
    let console = notices::console(&config, Some(&config.server.listen));
    let _svids = svids::open(&config).await?;
    let post = notices::post(&config, console, &[])?;
    let now = SystemClock.now();
    let letter = Letter::from(Message::test(&args.channel, now));
    match post.deliver(&args.channel, &letter, now).await {
        Ok(answer) => {
            output::line(format!("`{}` took the message: {answer}", args.channel));
            Ok(Exit::Ok)
        }
        Err(failure) => Err(Failure::new(format!("`{}` did not take the message", args.channel))
            .because(failure.why)
            .try_this("check the address, the secrets and the network, then try again")),
    }
}
