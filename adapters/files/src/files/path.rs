//! The paths a caller may name: relative, readable, and free of anything that hides or escapes.
//!
//! Owns the syntax. Does not touch the file system: keeping a *resolved* path inside the root is the work of the capability
//! directory (comparing string prefixes would not). Invariant: a [`RelativePath`] is `.` or plain components joined by single
//! slashes, so its text names one place only.

use std::path::Path;

use placet_types::text;

/// The longest path, in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 1_024;
/// The longest component of a path, in bytes: the limit of file systems.
const COMPONENT_BYTES_MAX: usize = 255;
/// The prefix of names that the adapter reserves for its own temporary files.
pub(crate) const RESERVED_PREFIX: &str = ".placet-";

/// A path relative to the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RelativePath(String);

impl RelativePath {
    /// Checks `text`; the error is a sentence for the caller.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("the path is empty; the directory itself is `.`");
        }
        if text.len() > PATH_BYTES_MAX {
            return Err("the path is longer than 1,024 bytes");
        }
        if text == "." {
            return Ok(Self(text.to_owned()));
        }
        if text.starts_with('/') {
            return Err("the path is absolute; give it relative to the adapter's directory");
        }
        for component in text.split('/') {
            check_component(component)?;
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The directory the path is in, and its name there; absent for the root.
    pub(crate) fn split(&self) -> Option<(&str, &str)> {
        if self.0 == "." {
            return None;
        }
        Some(self.0.rsplit_once('/').unwrap_or((".", &self.0)))
    }

    /// Every directory on the way to the path, outermost first; the root left out.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').filter_map(|(end, _)| self.0.get(..end))
    }
}

fn check_component(component: &str) -> Result<(), &'static str> {
    match component {
        "" => return Err("the path has an empty component: a doubled or trailing slash"),
        "." => return Err("the path has a component `.`; leave it out"),
        ".." => return Err("the path has a component `..`; name the place directly"),
        _ => {}
    }
    if component.len() > COMPONENT_BYTES_MAX {
        return Err("a component of the path is longer than 255 bytes");
    }
    if component.contains('\\') || component.contains(':') {
        return Err("the path has a backslash or a colon; components are separated by `/`");
    }
    if component.starts_with(RESERVED_PREFIX) {
        return Err("names that begin with `.placet-` are reserved");
    }
    if !is_legible(component) {
        return Err(
            "the path has control, invisible or text-direction characters, or spaces at a component's end",
        );
    }
    Ok(())
}

/// Whether a reader sees every character of `name`, in the order it has.
pub(crate) fn is_legible(name: &str) -> bool {
    name.trim() == name && !name.chars().any(is_hidden)
}

/// A placeholder for other characters counts as hidden too: it names no place.
fn is_hidden(c: char) -> bool {
    text::is_hidden(c) || matches!(c, '\u{fffc}' | '\u{fffd}')
}

#[cfg(test)]
mod tests {
    use super::RelativePath;

    #[test]
    fn plain_paths_are_taken_as_they_are() {
        for text in [
            ".",
            "a",
            "a.txt",
            "a/b/c",
            "..a",
            "a..",
            "...",
            ".hidden",
            "with space/b",
            "äöü/日本.txt",
            "-rf",
        ] {
            assert_eq!(
                RelativePath::parse(text).map(|path| path.as_str().to_owned()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn paths_that_escape_or_hide_are_refused() {
        let long_component = "x".repeat(256);
        let long = "abcdefgh/".repeat(128);
        for text in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../a",
            "a/..",
            "a/../b",
            "a/../../b",
            "./a",
            "a/.",
            "a/./b",
            "a//b",
            "a/",
            "//a",
            "a\0b",
            "\0",
            "a\nb",
            "a\tb",
            "a\u{7f}b",
            "a\u{85}b",
            "..\\a",
            "a\\b",
            "C:a",
            "a.txt:stream",
            "a\u{202e}b",
            "a\u{2066}b",
            "a\u{200b}b",
            "a\u{feff}b",
            "a\u{ad}b",
            "a\u{e0041}b",
            "a\u{a0}b",
            " a",
            "a ",
            "a / b",
            ".placet-plc_1.tmp",
            "a/.placet-x",
            "a\u{fffd}b",
            "a\u{2028}b",
            "~\0",
            &long_component,
            &long,
        ] {
            assert!(RelativePath::parse(text).is_err(), "accepted {text:?}");
        }
    }

    #[test]
    fn a_path_splits_into_directory_and_name() {
        let split = |text| {
            RelativePath::parse(text).unwrap().split().map(|(d, n)| (d.to_owned(), n.to_owned()))
        };
        assert_eq!(split("."), None);
        assert_eq!(split("a"), Some((".".to_owned(), "a".to_owned())));
        assert_eq!(split("a/b/c"), Some(("a/b".to_owned(), "c".to_owned())));
        let path = RelativePath::parse("a/b/c").unwrap();
        assert_eq!(path.ancestors().collect::<Vec<_>>(), ["a", "a/b"]);
    }
}
