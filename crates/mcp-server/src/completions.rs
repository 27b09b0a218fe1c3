//! Completions: values for an argument of a prompt, or of a template of resources.
//!
//! Owns the form of the question. What it is about is named as in the lists of prompts and templates.

use rmcp::{
    ErrorData,
    model::{CompleteRequestParams, CompleteResult, Reference},
};
use serde_json::{Map, Value};

use placet_types::contract::feature::Feature;

use crate::{
    features::{self, Request},
    prompts, resources,
};

/// Completes an argument.
pub(crate) async fn complete(
    request: &Request<'_>,
    params: CompleteRequestParams,
) -> Result<CompleteResult, ErrorData> {
    let missing = ErrorData::invalid_params("there is nothing that completes this", None);
    let feature = Feature::Completions;
    let found = match &params.r#ref {
        Reference::Prompt(prompt) => {
            prompts::placed(request, feature, &prompt.name).map(|found| ("prompt", found))
        }
        Reference::Resource(template) => {
            resources::placed(request, feature, &template.uri).map(|found| ("template", found))
        }
        _ => None,
    };
    let Some((kind, (id, own))) = found else { return Err(missing) };
    let mut args = Map::from_iter([
        (kind.to_owned(), Value::from(own)),
        ("argument".to_owned(), Value::from(params.argument.name)),
        ("value".to_owned(), Value::from(params.argument.value)),
    ]);
    if let Some(known) = params.context.and_then(|context| context.arguments) {
        let known = known.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
        args.insert("context".to_owned(), Value::Object(known));
    }
    let mut said = features::ask(request, &id, args, missing).await?;
    let mut result = CompleteResult::new(said.member("completion")?);
    result.meta = Some(said.meta);
    Ok(result)
}
