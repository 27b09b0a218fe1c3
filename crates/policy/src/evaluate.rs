//! One Cedar evaluation and its result.
//!
//! Owns the call into Cedar. Invariant (trap T1): Cedar skips a policy that errors, so an evaluation with any error never
//! counts as allowed, and errors carry Cedar's message only where it cannot quote arguments.

use cedar_policy::{
    AuthorizationError, Authorizer, Context, Decision as CedarDecision, Entities, EntityUid,
    EvaluationError, PolicySet, Request, Schema,
};

use crate::decision::Link;

/// The result of one evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Evaluation {
    pub(crate) link: Link,
    pub(crate) allowed: bool,
    /// Ids of the policies that made the difference, sorted.
    pub(crate) determining: Vec<String>,
    pub(crate) errors: Vec<String>,
}

impl Evaluation {
    /// An evaluation that was not possible; it counts as an error, so it denies.
    pub(crate) fn fault(error: &str) -> Self {
        Self {
            link: Link::Actor,
            allowed: false,
            determining: Vec::new(),
            errors: vec![error.to_owned()],
        }
    }
}

/// The parts of a Cedar request.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) link: Link,
    pub(crate) principal: EntityUid,
    pub(crate) action: EntityUid,
    pub(crate) resource: EntityUid,
    pub(crate) context: Context,
}

pub(crate) fn evaluate(
    schema: &Schema,
    policies: &PolicySet,
    entities: &Entities,
    question: Question,
) -> Evaluation {
    let Question { link, principal, action, resource, context } = question;
    let request = match Request::new(principal, action, resource, context, Some(schema)) {
        Ok(request) => request,
        // The error's text may quote arguments.
        Err(_unfit) => {
            let errors = vec!["the request does not fit the schema of the bundle".to_owned()];
            return Evaluation { link, allowed: false, determining: Vec::new(), errors };
        }
    };
    let response = Authorizer::new().is_authorized(&request, policies, entities);
    let mut determining: Vec<String> =
        response.diagnostics().reason().map(ToString::to_string).collect();
    determining.sort();
    let mut errors: Vec<String> = response.diagnostics().errors().map(policy_of).collect();
    errors.sort();
    let allowed = response.decision() == CedarDecision::Allow && errors.is_empty();
    Evaluation { link, allowed, determining, errors }
}

fn policy_of(error: &AuthorizationError) -> String {
    let AuthorizationError::PolicyEvaluationError(error) = error;
    format!("policy `{}` could not be evaluated: {}", error.policy_id(), message(error.inner()))
}

/// Cedar's message, without the values of arguments.
fn message(error: &EvaluationError) -> String {
    match error {
        EvaluationError::IntegerOverflow(_) => "integer overflow".to_owned(),
        EvaluationError::FailedExtensionFunctionExecution(_) => {
            "a value cannot be read by an extension function, such as `decimal` or `ip`".to_owned()
        }
        EvaluationError::NonValue(_) => "an expression has no value".to_owned(),
        EvaluationError::RecursionLimit(_)
        | EvaluationError::TypeError(_)
        | EvaluationError::WrongNumArguments(_)
        | EvaluationError::UnlinkedSlot(_)
        | EvaluationError::FailedExtensionFunctionLookup(_) => error.to_string(),
        // Their messages list the keys of a record or entity; only the kind is named.
        EvaluationError::EntityDoesNotExist(_) => "an entity does not exist".to_owned(),
        EvaluationError::EntityAttrDoesNotExist(_) | EvaluationError::RecordAttrDoesNotExist(_) => {
            "an attribute or tag does not exist; ask for it with `has` or `hasTag` first".to_owned()
        }
    }
}
