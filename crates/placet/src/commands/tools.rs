//! `placet tools`: the tools that exist for the caller.
//!
//! Owns the table. The engine decides what is in it.

use clap::Args as ClapArgs;
use placet_api::documents::ToolList;
use placet_types::text::visible;

use crate::{
    client::{Client, ClientArgs},
    environment::Environment,
    failure::Outcome,
    output,
};

/// List the tools you may call.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  placet tools\n  placet tools --json")]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
}

/// Lists the tools.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    let list: ToolList = client.get(&["v1", "tools"], &[]).await?;
    client.answer(&list, |list| {
        if list.tools.is_empty() {
            return output::line(
                "there are no tools that you may call: the directory has to know an agent, and policies decide what it sees",
            );
        }
        let rows = list.tools.iter().map(|tool| {
            [
                tool.tool.clone(),
                tool.mode_highest.to_string(),
                if tool.writes { "yes" } else { "no" }.to_owned(),
                required(&tool.input_schema),
                output::clipped(&visible(tool.description.lines().next().unwrap_or_default()), 70),
            ]
        });
        output::table(["tool", "mode", "writes", "needs", "what it does"], rows);
    })
}

/// The required arguments of a schema.
fn required(schema: &serde_json::Value) -> String {
    let names = schema.get("required").and_then(serde_json::Value::as_array);
    names.into_iter().flatten().filter_map(serde_json::Value::as_str).collect::<Vec<_>>().join(", ")
}
