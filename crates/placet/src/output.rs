//! Printing: the only module that writes to standard output and error.
//!
//! Owns tables, JSON for programs and the cleaning of text that came from elsewhere. Invariant: no control or
//! text-direction character of an agent, a server or a file reaches a terminal.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    time::Duration,
};

use comfy_table::{Table, presets};
use parking_lot::Mutex;
use placet_types::{clock::Timestamp, text};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::failure::{Exit, Failure, Outcome};

/// Prints a line of the result.
pub(crate) fn line(text: impl AsRef<str>) {
    write_to(io::stdout().lock(), &printable(text.as_ref()));
}

/// Prints an accompanying line, on standard error.
pub(crate) fn note(text: impl AsRef<str>) {
    write_to(io::stderr().lock(), &printable(text.as_ref()));
}

/// The progress of long work: one line on standard error, overwritten once a second; nothing if that is not a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    next: Mutex<Option<Instant>>,
}

impl Progress {
    /// Shown after the first second: quicker work needs none.
    pub(crate) fn of(what: &'static str) -> Self {
        let next = io::stderr().is_terminal().then(|| Instant::now().checked_add(EVERY)).flatten();
        Self { what, next: Mutex::new(next) }
    }

    /// Updates the count.
    pub(crate) fn at(&self, done: u64) {
        let mut next = self.next.lock();
        let now = Instant::now();
        if next.is_some_and(|next| next <= now) {
            *next = now.checked_add(EVERY);
            let mut out = io::stderr().lock();
            settle(write!(out, "\r{} {done}\u{1b}[K", self.what).and_then(|()| out.flush()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if io::stderr().is_terminal() {
            settle(write!(io::stderr().lock(), "\r\u{1b}[K"));
        }
    }
}

/// How often progress is shown.
const EVERY: Duration = Duration::from_secs(1);

/// Why the command failed, on standard error.
pub(crate) fn failure(failure: &Failure) {
    note(failure.to_string());
}

/// Prints a document for programs, indented. Programs can read any character; dangerous ones are still kept from terminals, because
/// JSON has an escape for each of them.
pub(crate) fn json(document: &impl Serialize) {
    let text = serde_json::to_string_pretty(document).unwrap_or_else(|_| "null".to_owned());
    write_to(io::stdout().lock(), &text::visible_json(&text));
}

/// Prints the result, as JSON for programs or as text, and ends with [`Exit::Ok`].
pub(crate) fn answer<T: Serialize>(is_json: bool, document: &T, told: impl FnOnce(&T)) -> Outcome {
    if is_json {
        json(document);
    } else {
        told(document);
    }
    Ok(Exit::Ok)
}

/// A document for programs, in one line.
pub(crate) fn json_line(document: &impl Serialize) {
    let text = serde_json::to_string(document).unwrap_or_else(|_| "null".to_owned());
    write_to(io::stdout().lock(), &text::visible_json(&text));
}

/// Prints a record as text: a line for each non-empty field, with lists and objects as JSON.
pub(crate) fn fields(record: &impl Serialize) {
    let fields = serde_json::to_value(record).unwrap_or_default();
    for (name, value) in fields.as_object().into_iter().flatten() {
        let told = match value {
            Value::Null => continue,
            Value::String(text) => text::visible(text),
            Value::Number(ms) if name == "at" || name.ends_with("_at") => {
                Timestamp::from_ms(ms.as_i64().unwrap_or_default()).to_string()
            }
            Value::Array(_) | Value::Object(_) => format!("{value:#}"),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
        };
        line(format!("{name:<18} {told}"));
    }
}

/// Prints text unchanged, such as a file, for redirection. No line feed is added.
pub(crate) fn raw(text: &str) {
    let mut out = io::stdout().lock();
    settle(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// A table for people.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) {
    line(table_text(header, rows));
}

/// The table as text; cells are one line each. Foreign text in them may be escaped already.
pub(crate) fn table_text<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.map(str::to_uppercase));
    for row in rows {
        table.add_row(row.map(|cell| clipped(&text::drawn(&cell), CELL_CHARS_MAX)));
    }
    let lines = table.to_string();
    lines
        .lines()
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end())
        .collect::<Vec<_>>()
        .join("\n")
}

const CELL_CHARS_MAX: usize = 120;

/// A number with the word for what is counted.
pub(crate) fn counted(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A text cut off after this many characters.
pub(crate) fn clipped(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Our own lines, without characters that steer a terminal or hide text. Line feeds stay: foreign text is made one line, with
/// [`text::visible`], before it becomes part of a line.
pub(crate) fn printable(text: &str) -> String {
    text.split('\n').map(text::drawn).collect::<Vec<_>>().join("\n")
}

/// Asks a person, and returns the input. `None` if there is nobody to ask.
pub(crate) fn ask(question: &str) -> Option<String> {
    let input = io::stdin();
    if !input.is_terminal() {
        return None;
    }
    let mut err = io::stderr().lock();
    settle(write!(err, "{} ", printable(question)).and_then(|()| err.flush()));
    drop(err);
    let mut answer = String::new();
    input.lock().read_line(&mut answer).ok()?;
    Some(answer.trim().to_owned())
}

fn write_to(mut out: impl io::Write, text: &str) {
    settle(writeln!(out, "{text}").and_then(|()| out.flush()));
}

/// A user who closed the pipe does not want to read on; there is nobody to tell.
fn settle(written: io::Result<()>) {
    written.unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use placet_types::text::visible_json;

    use super::{clipped, printable, table_text};

    #[test]
    fn text_from_elsewhere_cannot_steer_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\u{202e}c\nd"), "a\\u{1b}[2Jb\\u{202e}c\nd");
        assert_eq!(printable("a\u{61c}\u{e0041}\u{3164}"), "a\\u{61c}\\u{e0041}\\u{3164}");
        let hostile = serde_json::json!({ "a": "\u{9b}x\u{202e}\u{1b}\u{3164}\u{e0100}" });
        let text = visible_json(&hostile.to_string());
        assert!(text.chars().all(|c| c.is_ascii_graphic()), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), hostile);
    }

    #[test]
    fn a_table_has_one_line_for_each_row_and_no_frame() {
        let rows = [
            ["files__read".to_owned(), "reads\na file".to_owned()],
            ["x".to_owned(), String::new()],
        ];
        assert_eq!(
            table_text(["tool", "what it does"], rows),
            "TOOL         WHAT IT DOES\nfiles__read  reads\\u{a}a file\nx"
        );
    }

    #[test]
    fn a_long_text_is_cut_off_visibly() {
        assert_eq!(clipped("grüße", 5), "grüße");
        assert_eq!(clipped("grüßen", 5), "grüß…");
    }
}
