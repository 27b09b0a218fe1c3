//! How deep a policy's expressions nest, before anything parses or evaluates them.
//!
//! Owns the measure and the limit. Cedar checks and evaluates `a || b || c` one level deeper for each operator, on the stack of the thread.
//! Where that runs short while it checks, the process ends; while it decides, every call is denied as an error.

use std::{iter::Peekable, str::Chars};

/// The deepest nesting of a policy's expressions: far less than fits into the 8 MiB stacks of `placet`'s threads, even in a build
/// without optimization.
pub(crate) const DEPTH_MAX: usize = 80;

/// Where a text of policies nests deeper than [`DEPTH_MAX`]: the line from 1, of the outermost place.
///
/// The measure is an upper bound: each operator of a row counts one level, and so does each pair of brackets.
pub(crate) fn too_deep(text: &str) -> Option<u32> {
    let levels = vec![Level::default()];
    let mut scanner = Scanner { line: 1, levels, deepest: None, in_word: false };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        scanner.take(c, &mut chars);
        scanner.in_word = c.is_ascii_alphanumeric() || c == '_';
    }
    scanner.deepest
}

/// The open elements at one level of brackets.
#[derive(Debug, Default, Clone, Copy)]
struct Level {
    /// Operators in the row so far.
    operators: usize,
    /// Accesses since the last operator, and the most of any.
    accesses: usize,
    accesses_max: usize,
    /// The deepest pair of brackets that was closed inside.
    inside: usize,
}

impl Level {
    /// The depth at this level, with something of depth `open` still unclosed inside it.
    fn around(self, open: usize) -> usize {
        let row = self.operators.saturating_add(self.accesses_max).saturating_add(1);
        row.saturating_add(self.inside.max(open))
    }
}

struct Scanner {
    line: u32,
    levels: Vec<Level>,
    deepest: Option<u32>,
    /// Whether the character before belongs to a word.
    in_word: bool,
}

impl Scanner {
    fn take(&mut self, c: char, rest: &mut Peekable<Chars<'_>>) {
        match c {
            '\n' => self.line = self.line.saturating_add(1),
            '"' => self.string(rest),
            '/' if rest.peek() == Some(&'/') => self.comment(rest),
            '(' | '[' | '{' => self.open(c),
            ')' | ']' | '}' => self.close(),
            ';' => self.levels = vec![Level::default()],
            '.' => self.access(),
            '|' | '&' => {
                rest.next_if_eq(&c);
                self.operator();
            }
            '+' | '-' | '*' | '!' => self.operator(),
            'i' if !self.in_word && rest.peek() == Some(&'f') => self.operator(),
            _ => {}
        }
    }

    fn open(&mut self, bracket: char) {
        // The clauses of one policy are joined like a sequence of `&&`.
        if bracket == '{' && self.levels.len() == 1 {
            self.operator();
        }
        self.levels.push(Level::default());
    }

    fn level(&mut self, change: impl FnOnce(&mut Level)) {
        if let Some(level) = self.levels.last_mut() {
            change(level);
        }
        if self.deepest.is_some() {
            return;
        }
        let depth = self.levels.iter().rev().fold(0, |open, level| level.around(open));
        if depth > DEPTH_MAX {
            self.deepest = Some(self.line);
        }
    }

    fn operator(&mut self) {
        self.level(|level| {
            level.operators = level.operators.saturating_add(1);
            level.accesses = 0;
        });
    }

    fn access(&mut self) {
        self.level(|level| {
            level.accesses = level.accesses.saturating_add(1);
            level.accesses_max = level.accesses_max.max(level.accesses);
        });
    }

    fn close(&mut self) {
        let Some(closed) = self.levels.pop() else { return };
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let depth = closed.around(0);
        self.level(|level| level.inside = level.inside.max(depth));
    }

    fn string(&mut self, rest: &mut Peekable<Chars<'_>>) {
        while let Some(c) = rest.next() {
            match c {
                '"' => return,
                '\\' => drop(rest.next()),
                '\n' => self.line = self.line.saturating_add(1),
                _ => {}
            }
        }
    }

    fn comment(&mut self, rest: &mut Peekable<Chars<'_>>) {
        while rest.next_if(|c| *c != '\n').is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::{DEPTH_MAX, too_deep};

    fn policy(condition: &str) -> String {
        format!("@id(\"p\")\npermit (principal, action, resource)\nwhen {{\n{condition}\n}};")
    }

    #[test]
    fn rows_brackets_accesses_and_branches_count_as_depth() {
        let row = |operators: usize| vec!["true"; operators + 1].join(" || ");
        assert_eq!(too_deep(&policy(&row(DEPTH_MAX - 10))), None);
        assert_eq!(too_deep(&policy(&row(DEPTH_MAX + 1))), Some(4));
        let brackets = |depth: usize| format!("{}true{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(too_deep(&policy(&brackets(DEPTH_MAX - 10))), None);
        assert!(too_deep(&policy(&brackets(DEPTH_MAX + 1))).is_some());
        let accesses = format!("context{} == 1", ".a".repeat(DEPTH_MAX + 1));
        assert!(too_deep(&policy(&accesses)).is_some());
        let branches = "if true then true else ".repeat(DEPTH_MAX + 1) + "true";
        assert!(too_deep(&policy(&branches)).is_some());
        let nested = format!("({}) && ({})", row(DEPTH_MAX / 2), row(DEPTH_MAX / 2));
        assert_eq!(too_deep(&policy(&nested)), None, "rows side by side do not add up");
        let clauses = "when { true }\n".repeat(DEPTH_MAX + 1);
        assert!(too_deep(&format!("permit (principal, action, resource)\n{clauses};")).is_some());
    }

    #[test]
    fn text_in_strings_and_comments_and_other_policies_do_not_count() {
        let many = "|| ".repeat(DEPTH_MAX * 2);
        assert_eq!(too_deep(&policy(&format!("principal.a == \"\\\"{many}\" // {many}"))), None);
        let half = policy(&vec!["true"; DEPTH_MAX / 2].join(" && "));
        assert_eq!(too_deep(&half.repeat(5)), None);
    }
}
