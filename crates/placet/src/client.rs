//! The client of the HTTP API, for the commands that ask a running Placet.
//!
//! Owns the address (`PLACET_URL`), the caller's tokens (`PLACET_TOKEN`, `PLACET_DELEGATION`) and how an answer becomes a failure that a
//! person can act on; [`events`] reads streams. Opens no socket itself: all requests go through `placet-egress` to the one named host.

mod events;

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use placet_api::problem::ProblemDocument;
use placet_egress::{
    Destination, EgressBody, EgressClient, EgressError, EgressPolicy, Limits, PrivateRanges,
};
use placet_types::error::ErrorCode;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use url::Url;

use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
    output,
};

pub(crate) use events::Events;

/// The media type of documents, sent and received.
const JSON: &str = "application/json";
/// The header of the user's delegation.
const DELEGATION: &str = "placet-delegation";
/// A call may wait ten minutes for people, and then run.
const REQUEST_MS_MAX: u64 = 1_260_000;
const RESPONSE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The longest request, in bytes; the engine's own limit is lower by default.
pub(crate) const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Which Placet to ask.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ClientArgs {
    /// The URL of Placet.
    #[arg(
        long,
        value_name = "URL",
        global = true,
        env = "PLACET_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7411",
        value_parser = url
    )]
    pub(crate) url: Url,
    /// Print JSON for programs.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// A URL with a host: `localhost:7411` would be one with a scheme of that name.
pub(crate) fn url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).ok().filter(Url::has_host);
    url.ok_or("a URL begins with `http://` or `https://`, such as `http://127.0.0.1:7411`")
}

/// A client with the caller's tokens.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) base: Url,
    http: EgressClient,
    token: Option<SecretString>,
    delegation: Option<SecretString>,
    /// The trace that all requests are part of.
    traceparent: Option<String>,
    /// The option or variable that names another address.
    named_by: &'static str,
    /// Whether answers are printed as JSON for programs.
    pub(crate) json: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("host", &self.base.host_str()).finish_non_exhaustive()
    }
}

/// The parameters of a query that have a value.
pub(crate) fn given<'q, const N: usize>(
    parameters: [(&'q str, Option<&'q str>); N],
) -> Vec<(&'q str, &'q str)> {
    parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The status.
    pub(crate) status: StatusCode,
    body: Bytes,
}

impl Client {
    /// The client that arguments and environment describe.
    pub(crate) fn of(args: &ClientArgs, environment: &Environment) -> Result<Self, Failure> {
        let token = environment.get("PLACET_TOKEN").ok_or_else(|| {
            Failure::usage("there is no token to call with")
                .because("the variable `PLACET_TOKEN` is not set")
                .try_this(format!(
                    "export PLACET_TOKEN=$({} token agent dev-agent)",
                    environment.program()
                ))
        })?;
        let delegation = environment.get("PLACET_DELEGATION").map(SecretString::from);
        let client = Self::new(args.url.clone(), Some(SecretString::from(token)), delegation)?;
        Ok(Self { json: args.json, ..client })
    }

    /// A client for `base` with these tokens.
    pub(crate) fn new(
        base: Url,
        token: Option<SecretString>,
        delegation: Option<SecretString>,
    ) -> Result<Self, Failure> {
        Self::limited(base, token, delegation, Limits::default())
    }

    /// The same for streams that may be silent for as long as a call may wait.
    pub(crate) fn patient(
        base: Url,
        token: Option<SecretString>,
        delegation: Option<SecretString>,
    ) -> Result<Self, Failure> {
        let limits = Limits {
            idle_timeout_ms: REQUEST_MS_MAX,
            pool_idle_connections_max: 64,
            ..Limits::default()
        };
        Self::limited(base, token, delegation, limits)
    }

    fn limited(
        base: Url,
        token: Option<SecretString>,
        delegation: Option<SecretString>,
        limits: Limits,
    ) -> Result<Self, Failure> {
        // Only the origin: a URL may hold a password.
        let origin = base.origin().ascii_serialization();
        let unusable = |error: EgressError| {
            Failure::usage(format!("`{origin}` cannot be called")).because(error)
        };
        // The person who runs the command names the host, so it may be a private one.
        let destination = Destination::from_url(&base, PrivateRanges::Allowed).map_err(unusable)?;
        let limits = Limits {
            request_timeout_ms: REQUEST_MS_MAX,
            response_bytes_max: RESPONSE_BYTES_MAX,
            request_bytes_max: REQUEST_BYTES_MAX,
            ..limits
        };
        let http =
            EgressClient::new(EgressPolicy::new(vec![destination]), limits).map_err(unusable)?;
        let (traceparent, json) = (None, false);
        Ok(Self { base, http, token, delegation, traceparent, named_by: "PLACET_URL", json })
    }

    /// The same client, whose requests are part of this trace.
    pub(crate) fn traced(&self, traceparent: &str) -> Self {
        Self { traceparent: Some(traceparent.to_owned()), ..self.clone() }
    }

    /// A client that shows no token: for the admin listener.
    pub(crate) fn without_token(base: Url) -> Result<Self, Failure> {
        let named_by = "--admin-url or PLACET_ADMIN_URL";
        Ok(Self { named_by, ..Self::new(base, None, None)? })
    }

    /// Gets a document.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, Failure> {
        self.fetch(path, query).await?.document()
    }

    /// Prints an answer: as JSON for programs, if that is wanted, else by means of `told`.
    pub(crate) fn answer<T: Serialize>(&self, document: &T, told: impl FnOnce(&T)) -> Outcome {
        output::answer(self.json, document, told)
    }

    /// Reads the answer, whatever its status.
    pub(crate) async fn fetch(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Reply, Failure> {
        self.send(self.request(Method::GET, path, query, JSON, Bytes::new())?).await
    }

    /// Sends a document and reads the answer, whatever its status.
    pub(crate) async fn post(
        &self,
        path: &[&str],
        document: &impl Serialize,
    ) -> Result<Reply, Failure> {
        let body = serde_json::to_vec(document)
            .map_err(|error| Failure::new("the request cannot be written").because(error))?;
        self.send(self.request(Method::POST, path, &[], JSON, Bytes::from(body))?).await
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Reply, Failure> {
        let what_now = what_now(&request);
        let response = self.http.send(request).await;
        let response = response.map_err(|error| self.unanswered(&error, what_now))?;
        Ok(Reply::of(response))
    }

    /// Sends a request and returns its answer with the body still to be read.
    ///
    /// # Errors
    /// [`EgressError`], which says whether anything was sent.
    pub(crate) async fn stream(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<EgressBody>, EgressError> {
        self.http.stream(request).await
    }

    /// A request with the caller's tokens.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        accept: &'static str,
        body: Bytes,
    ) -> Result<Request<Bytes>, Failure> {
        let mut url = placet_egress::join_segments(&self.base, path)
            .map_err(|error| Failure::usage("the id cannot be part of a URL").because(error))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request =
            Request::builder().method(method).uri(url.as_str()).header(header::ACCEPT, accept);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, secret_header("Bearer ", token)?);
        }
        if let Some(delegation) = &self.delegation {
            request = request.header(DELEGATION, secret_header("", delegation)?);
        }
        if let Some(traceparent) = &self.traceparent {
            request = request.header("traceparent", traceparent);
        }
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, JSON);
        }
        request
            .body(body)
            .map_err(|error| Failure::usage("the request cannot be formed").because(error))
    }

    fn unanswered(&self, error: &EgressError, what_now: &str) -> Failure {
        let failure = Failure::new(format!("no answer from {}", self.base)).because(error);
        if matches!(error, EgressError::TlsFailed { .. }) {
            failure.try_this("`placet doctor`, where the server runs, says whether its certificate can be used; this machine has to trust it, too")
        } else if error.nothing_was_sent() {
            let named_by = self.named_by;
            failure.try_this(format!(
                "is it running? `placet serve` starts it; {named_by} names another one"
            ))
        } else {
            failure.try_this(what_now)
        }
    }
}

/// What to do when a request got no answer.
fn what_now<T>(request: &Request<T>) -> &'static str {
    let path = request.uri().path();
    match *request.method() {
        Method::GET => "nothing was changed: ask again",
        _ if path.ends_with("/v1/calls") => {
            "send the same call again with the same --run, --step and --request: it is never executed twice"
        }
        _ if path.ends_with("/batches") => {
            "go on with the plan: the same calls are sent again, and no write is made twice"
        }
        // A decision, an act in the approval service, or an operator's command.
        _ => {
            "it may have been done: look how it stands now (`placet approvals show`, `placet approvals list`, `placet ledger show`) before you send it again"
        }
    }
}

/// A header with a secret, marked as sensitive.
fn secret_header(prefix: &str, secret: &SecretString) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::try_from(format!("{prefix}{}", secret.expose_secret().trim()))
        .map_err(|_not_a_header| Failure::usage("the token has characters that no token has"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Reply {
    fn of(response: Response<Bytes>) -> Self {
        Self { status: response.status(), body: response.into_body() }
    }

    /// The document of a success.
    pub(crate) fn document<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        if !self.status.is_success() {
            return Err(self.refusal());
        }
        self.read()
    }

    /// The document, whatever the status.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Failure::new("the answer cannot be understood")
                .because(error)
                .try_this("is PLACET_URL a Placet of this version?")
        })
    }

    /// The problem document, where the answer is one.
    pub(crate) fn problem(&self) -> Option<ProblemDocument> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The refusal as a person reads it.
    pub(crate) fn refusal(&self) -> Failure {
        match self.problem() {
            Some(problem) => failure_of(&problem),
            None => Failure::new(format!("refused with status {}", self.status.as_u16()))
                .because(output::clipped(&String::from_utf8_lossy(&self.body), 200)),
        }
    }
}

/// A problem document as a person reads it.
fn failure_of(problem: &ProblemDocument) -> Failure {
    let mut failure = Failure::new(format!("{}: {}", problem.error_code, problem.detail));
    for place in &problem.problems {
        let pointer = if place.pointer.is_empty() { "the whole" } else { &place.pointer };
        failure = failure.because(format!("{pointer}: {}", place.problem));
    }
    if let Some(decision) = &problem.policy_decision_id {
        failure = failure.because(format!("decision {decision}; people who may see it look it up with `placet decisions {decision}`"));
    }
    let failure = failure.try_this(&problem.remediation);
    if problem.error_code == ErrorCode::Unauthenticated {
        return failure.try_this(
            "a token of `placet token` is valid where its key is: mint it in the folder where Placet was started, or name its data folder with --data",
        );
    }
    failure
}

#[cfg(test)]
mod tests {
    use placet_types::error::{ErrorCode, Execution, Problem};

    use super::{Client, ClientArgs, ProblemDocument, failure_of, what_now};
    use crate::environment::Environment;

    fn at(url: &str) -> ClientArgs {
        ClientArgs { url: url.parse().unwrap(), json: false }
    }

    #[test]
    fn a_client_without_a_token_says_how_to_get_one() {
        let failure = Client::of(&at("http://127.0.0.1:7411"), &Environment::of([]));
        let failure = failure.unwrap_err().to_string();
        assert!(
            failure.contains("PLACET_TOKEN") && failure.contains("placet token agent dev-agent"),
            "{failure}"
        );
    }

    #[test]
    fn without_an_answer_a_call_is_sent_again_and_a_decision_is_looked_at_first() {
        let asked = |method: &str, path: &str| {
            let request = http::Request::builder().method(method).uri(format!("http://x{path}"));
            what_now(&request.body(()).unwrap())
        };
        for path in ["/v1/calls", "/placet/v1/calls", "/v1/runs/r1/batches"] {
            assert!(asked("POST", path).contains("twice"), "{path}");
        }
        for path in ["/v1/approvals/apr_1/decisions", "/v1/directives", "/v1/calls/call_1/rearm"] {
            let told = asked("POST", path);
            assert!(told.contains("look how it stands") && !told.contains("--step"), "{path}");
        }
        assert!(asked("GET", "/v1/calls").contains("ask again"));
    }

    #[test]
    fn a_client_never_shows_its_tokens() {
        let environment =
            Environment::of([("PLACET_TOKEN", "tok-123"), ("PLACET_DELEGATION", "tok-456")]);
        let client = Client::of(&at("http://127.0.0.1:7411"), &environment).unwrap();
        assert!(!format!("{client:?}").contains("tok-"));
    }

    #[test]
    fn a_url_with_a_password_or_another_scheme_is_refused() {
        for url in ["ftp://127.0.0.1", "http://u:p@127.0.0.1"] {
            let environment = Environment::of([("PLACET_TOKEN", "t")]);
            let failure = Client::of(&at(url), &environment).unwrap_err().to_string();
            assert!(!failure.contains("u:p"), "{failure}");
        }
    }

    #[test]
    fn a_refusal_names_its_code_the_places_to_repair_and_what_to_do() {
        let problem = ProblemDocument {
            type_path: "/errors/VALIDATION_ERROR".to_owned(),
            title: String::new(),
            status: 400,
            detail: "the arguments do not fit".to_owned(),
            error_code: ErrorCode::ValidationError,
            retryable: false,
            remediation: "correct them".to_owned(),
            execution: Execution::NotExecuted,
            problems: vec![Problem {
                pointer: "/args/pth".to_owned(),
                problem: "unknown".to_owned(),
            }],
            retry_after_ms: None,
            call_id: None,
            policy_decision_id: None,
            trace_id: None,
            result: None,
        };
        let text = failure_of(&problem).to_string();
        assert_eq!(
            text,
            "placet: VALIDATION_ERROR: the arguments do not fit\n  why: /args/pth: unknown\n  try: correct them"
        );
    }
}
