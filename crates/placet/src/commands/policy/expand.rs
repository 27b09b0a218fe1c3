//! `placet policy expand`: the policies with the conditions that their annotations stand for.
//!
//! Owns how they are printed.

use placet_policy::snapshot;
use serde_json::json;

use super::{Bundle, Subject, problems_told, subject};
use crate::{
    environment::Environment,
    failure::{Exit, Outcome},
    output,
};

/// Prints each file of the bundle as it is decided with.
pub(super) fn expand(args: &Bundle, environment: &Environment) -> Outcome {
    let Subject { source, folder, .. } = subject(args, environment)?;
    match snapshot::expanded(&source) {
        Ok(files) if args.json => {
            let files = files.iter().map(|file| json!({ "file": file.name, "text": file.text }));
            output::json(&files.collect::<Vec<_>>());
            Ok(Exit::Ok)
        }
        Ok(files) => {
            for file in &files {
                output::line(format!("// ===== {} =====\n{}", file.name, file.text.trim_end()));
            }
            Ok(Exit::Ok)
        }
        Err(problems) => Ok(problems_told(&problems, folder.as_deref(), args.json)),
    }
}
