//! The program `placet`: a command line in front of the engine, the listeners and the tools around them.
//!
//! Owns start and exit code. This crate alone reads the clock ([`clock`]), the environment ([`environment`]) and files of
//! configuration, and puts the parts together ([`compose`]); it decides nothing about a call.

mod backups;
mod bridge;
mod broker;
mod cli;
mod client;
mod clock;
mod commands;
mod compose;
mod config;
mod console;
mod demo;
mod descriptors;
mod development;
mod egress;
mod environment;
mod failure;
mod issuers;
mod mcp;
mod memory;
mod notices;
mod output;
mod reload;
mod sealing;
mod shared_engine;
mod shipped;
mod storage;
mod svids;
#[cfg(any(feature = "sabotage", test))]
mod testing;
mod world;
mod yaml;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{cli::Cli, environment::Environment, failure::Failure};

/// A governed read allocates a few hundred times; this one takes less of the processor for it than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The stack of a worker thread: several times what the deepest condition that `policy check` takes needs in an unoptimized build.
const STACK_BYTES: usize = 8 << 20;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let environment = Environment::of_this_process();
    #[cfg(any(feature = "sabotage", test))]
    if let Err(failure) = testing::sabotage::remove_guards(&environment) {
        output::failure(&failure);
        return failure.exit().into();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK_BYTES)
        .build();
    descriptors::raise();
    let outcome = memory::keep_to_itself()
        .and_then(|()| {
            runtime.map_err(|error| Failure::new(format!("the runtime cannot be started: {error}")))
        })
        .and_then(|runtime| {
            let outcome = runtime.block_on(cli.run(&environment));
            // A pending read from a terminal must not keep the process alive.
            runtime.shutdown_background();
            outcome
        });
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::failure(&failure);
            failure.exit().into()
        }
    }
}
