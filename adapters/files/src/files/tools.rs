//! The tools of `files` as it defines them itself: `discover` lists them and a contract pins them.
//!
//! Owns names, descriptions and schemas. A change here changes digests, and with them every pinned contract (TM-14).

use placet_types::contract::LiveTool;
use serde_json::{Value, json};

/// The live definitions, in the order of their names.
pub(crate) fn live_tools() -> Vec<LiveTool> {
    vec![delete(), list(), read(), stat(), write()]
}

fn tool(
    name: &str,
    title: &str,
    description: &str,
    schemas: (Value, Value),
    annotations: Value,
) -> LiveTool {
    let (input_schema, output_schema) = schemas;
    LiveTool {
        name: name.to_owned(),
        title: Some(title.to_owned()),
        description: description.to_owned(),
        input_schema,
        output_schema: Some(output_schema),
        annotations: Some(annotations),
        task_only: false,
    }
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn path(description: &str, examples: &[&str]) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 1024, "description": description, "examples": examples })
}

const PATH_RULE: &str = "Relative to the adapter's directory, with `/` between components; no `..`, no leading or trailing slash.";

fn digest(description: &str) -> Value {
    json!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$", "description": description })
}

fn list() -> LiveTool {
    let input = object(
        &json!({
            "path": {
                "type": "string", "minLength": 1, "maxLength": 1024, "default": ".",
                "description": format!("The directory. {PATH_RULE} `.` is the adapter's directory itself."),
                "examples": [".", "reports/2026"],
            },
            "offset": {
                "type": "integer", "minimum": 0, "maximum": 1_000_000, "default": 0,
                "description": "How many entries to leave out at the beginning.",
            },
            "limit": {
                "type": "integer", "minimum": 1, "maximum": 10_000, "default": 1_000,
                "description": "The most entries to give.",
            },
        }),
        &[],
    );
    let entry = object(
        &json!({
            "name": { "type": "string" },
            "kind": { "enum": ["file", "directory", "symlink", "other", "gone"] },
            "bytes": { "type": ["integer", "null"] },
            "usable": { "type": "boolean", "description": "Whether the name can be used in a path; if not, it is shown escaped." },
        }),
        &["name", "kind", "bytes", "usable"],
    );
    let output = object(
        &json!({
            "path": { "type": "string" },
            "entries": { "type": "array", "items": entry },
            "total": { "type": ["integer", "null"] },
            "truncated": { "type": "boolean", "description": "Whether there are entries after these; ask again with `offset`." },
        }),
        &["path", "entries", "total", "truncated"],
    );
    tool(
        "list",
        "List a directory",
        "Lists the files and directories in one directory, sorted by name.",
        (input, output),
        json!({ "readOnlyHint": true, "openWorldHint": false }),
    )
}

fn stat() -> LiveTool {
    let input = object(
        &json!({ "path": path(&format!("The file or directory. {PATH_RULE}"), &["reports/summary.txt"]) }),
        &["path"],
    );
    let output = object(
        &json!({
            "path": { "type": "string" },
            "kind": { "enum": ["file", "directory", "symlink", "other"] },
            "bytes": { "type": ["integer", "null"] },
            "modified_at": { "type": ["string", "null"], "description": "RFC 3339, UTC." },
        }),
        &["path", "kind", "bytes", "modified_at"],
    );
    tool(
        "stat",
        "Look at a file's attributes",
        "Tells whether a path is a file or a directory, how large it is and when it was modified.",
        (input, output),
        json!({ "readOnlyHint": true, "openWorldHint": false }),
    )
}

fn read() -> LiveTool {
    let input = object(
        &json!({
            "path": path(&format!("The file. {PATH_RULE}"), &["reports/summary.txt"]),
            "offset": {
                "type": "integer", "minimum": 0, "default": 0,
                "description": "Where to begin, in bytes.",
            },
            "length": {
                "type": "integer", "minimum": 0,
                "description": "The most bytes to read; absent: to the end. A file that is too large for one answer is refused without it.",
            },
        }),
        &["path"],
    );
    let output = object(
        &json!({
            "path": { "type": "string" },
            "content": { "type": "string" },
            "encoding": { "enum": ["utf-8", "base64"] },
            "bytes": { "type": "integer", "description": "How many bytes `content` stands for." },
            "size": { "type": "integer", "description": "The size of the file, in bytes." },
            "digest": { "type": ["string", "null"], "description": "Of the whole file, if all of it was read." },
        }),
        &["path", "content", "encoding", "bytes", "size", "digest"],
    );
    tool(
        "read",
        "Read a file",
        "Reads a file: as text if it is UTF-8, else as base64.",
        (input, output),
        json!({ "readOnlyHint": true, "openWorldHint": false }),
    )
}

fn write() -> LiveTool {
    let input = object(
        &json!({
            "path": path(&format!("The file. {PATH_RULE}"), &["reports/summary.txt"]),
            "content": { "type": "string", "maxLength": 1_400_000, "description": "The whole new content; at most 1,048,576 bytes." },
            "encoding": {
                "enum": ["utf-8", "base64"], "type": "string", "default": "utf-8",
                "description": "How `content` is to be understood.",
            },
            "create_directories": {
                "type": "boolean", "default": false,
                "description": "Whether to make the directories on the way that are missing.",
            },
            "overwrite": {
                "type": "boolean", "default": false,
                "description": "Whether a file that exists may be replaced, which makes the call destructive.",
            },
            "expected_digest": digest("The digest that the existing file must have, as `read` gave it; the write is refused if it has another."),
        }),
        &["path", "content"],
    );
    let output = object(
        &json!({
            "path": { "type": "string" },
            "bytes": { "type": "integer" },
            "digest": { "type": "string" },
            "created": { "type": "boolean", "description": "Whether there was no such file before." },
        }),
        &["path", "bytes", "digest", "created"],
    );
    tool(
        "write",
        "Write a file",
        "Writes a whole file: readers see the old content or the new, nothing in between.",
        (input, output),
        json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": false }),
    )
}

fn delete() -> LiveTool {
    let input = object(
        &json!({
            "path": path(&format!("The file. {PATH_RULE}"), &["reports/draft.txt"]),
            "expected_digest": digest("The digest that the file must have, as `read` gave it; the deletion is refused if it has another."),
        }),
        &["path"],
    );
    let output = object(
        &json!({
            "path": { "type": "string" },
            "deleted": { "const": true },
            "bytes": { "type": "integer" },
            "digest": { "type": ["string", "null"], "description": "Of what was deleted." },
        }),
        &["path", "deleted", "bytes", "digest"],
    );
    tool(
        "delete",
        "Delete a file",
        "Deletes one file. It cannot be brought back. Directories are not deleted.",
        (input, output),
        json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": false }),
    )
}
