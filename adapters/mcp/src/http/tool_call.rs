//! A call of a tool, in the forms of its message.
//!
//! Owns those forms: the library's, and the posted one. Does not decide what is in it.

use std::sync::Arc;

use bytes::Bytes;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, Extensions, RequestMetaObject,
};
use serde_json::{Map, Value, json};

use super::headers::CallHeaders;
use crate::{failure::HttpFault, listener::ProgressOf};

/// The content of a call, and what its requests carry.
#[derive(Debug)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) meta: RequestMetaObject,
    /// What is on its requests and on no other.
    pub(crate) headers: CallHeaders,
    /// Who receives its progress.
    pub(crate) progress: Option<Arc<ProgressOf>>,
}

impl ToolCall {
    /// As a request of the library, which adds the metadata when it sends it.
    pub(crate) fn into_request(self) -> (ClientRequest, RequestMetaObject) {
        let params = CallToolRequestParams::new(self.name).with_arguments(self.arguments);
        let mut call = CallToolRequest::new(params);
        let mut extensions = Extensions::new();
        extensions.insert(self.headers);
        if let Some(progress) = self.progress {
            extensions.insert(progress);
        }
        call.extensions = extensions;
        (ClientRequest::CallToolRequest(call), self.meta)
    }

    /// As it is posted, in the form in which the library would post it.
    pub(super) fn into_posted(self, id: i64) -> Result<(Bytes, CallHeaders), HttpFault> {
        let mut meta = self.meta.0.0;
        meta.insert("progressToken".to_owned(), Value::from(id));
        let mut params = Map::new();
        params.insert("_meta".to_owned(), Value::Object(meta));
        params.insert("name".to_owned(), Value::String(self.name));
        params.insert("arguments".to_owned(), Value::Object(self.arguments));
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call"});
        if let Some(message) = message.as_object_mut() {
            message.insert("params".to_owned(), Value::Object(params));
        }
        let unusable = |_error| HttpFault::NotMade("it is no json".to_owned());
        let body = serde_json::to_vec(&message).map_err(unusable)?;
        Ok((body.into(), self.headers))
    }
}
