//! placeholder
use clap::Args as ClapArgs;
use crate::{environment::Environment, failure::{Exit, Outcome}};
/// demo
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {}
/// demo
pub(crate) async fn run(_args: &Args, _environment: &Environment) -> Outcome { Ok(Exit::Ok) }
