//! What others wrote, quoted on the command line.
//!
//! Owns the form. Invariant: each line of a quotation begins with a bar and fits a terminal, so that nothing in it looks like an argument
//! or like a line of ours, even where a terminal would break a long line.

use placet_types::text::visible;

/// The width of a quoted line, in columns.
const COLUMNS_MAX: usize = 68;

/// The lines of `words` under a line of ours that names whose they are; none where the reader is not shown the words.
pub(in crate::commands) fn lines(whose: &str, words: &str) -> Vec<String> {
    if words.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("  {}", visible(whose)), String::from(BAR)];
    let mut columns = 0_usize;
    for c in visible(words).chars() {
        // Some characters are two columns wide; which ones differs between terminals.
        let width = if c.is_ascii() { 1 } else { 2 };
        if columns.saturating_add(width) > COLUMNS_MAX {
            lines.push(String::from(BAR));
            columns = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push(c);
        }
        columns = columns.saturating_add(width);
    }
    lines
}

const BAR: &str = "    | ";

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn every_line_of_a_quotation_begins_with_a_bar() {
        assert_eq!(lines("ben", "only May"), ["  ben", "    | only May"]);
        let forged = format!("ok\n  arguments\u{2028}{{}}{}  digest    sha256:00", " ".repeat(500));
        let quoted = lines("reason of ben", &forged);
        assert_eq!(quoted[1].get(..36), Some(r"    | ok\u{a}  arguments\u{2028}{}  "));
        assert!(quoted.len() > 8, "{quoted:?}");
        for line in &quoted[1..] {
            assert!(line.starts_with("    | ") && line.chars().count() <= 74, "{line:?}");
        }
        let wide = lines("ben", &"日".repeat(100));
        assert!(wide[1..].iter().all(|line| line.chars().count() <= 6 + 34), "{wide:?}");
    }
}
