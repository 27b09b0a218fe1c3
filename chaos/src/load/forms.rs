//! The arguments of a call, and other texts of the same or of other arguments.
//!
//! Owns the texts. Invariant: [`Args::text`] in whatever form means [`Args::value`]; [`Args::changed`] does not.

use serde_json::{Value, json};

use crate::seeded::Chance;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Args {
    /// The subject; no other call has it.
    pub(crate) item: String,
    pub(crate) n: u32,
    /// A nested text.
    pub(crate) note: String,
}

/// The notation of arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Reordered,
    Fraction,
    Exponent,
    Escaped,
    Spaced,
}

impl Form {
    pub(crate) const OTHERS: [Self; 5] =
        [Self::Reordered, Self::Fraction, Self::Exponent, Self::Escaped, Self::Spaced];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Reordered => "members in another order",
            Self::Fraction => "1.0 for 1",
            Self::Exponent => "1e0 for 1",
            Self::Escaped => "letters escaped",
            Self::Spaced => "more space",
        }
    }
}

impl Args {
    pub(crate) fn new(item: String, chance: &mut Chance) -> Self {
        let n = u32::try_from(chance.within(1..1_000)).unwrap_or(1);
        Self { item, n, note: "caf\u{e9}".to_owned() }
    }

    pub(crate) fn value(&self) -> Value {
        json!({ "item": self.item, "n": self.n, "list": [1, self.n], "options": { "a": self.n, "b": self.note } })
    }

    pub(crate) fn text(&self, form: Form) -> String {
        let item = Value::String(self.item.clone()).to_string();
        let note = Value::String(self.note.clone()).to_string();
        let n = self.n;
        match form {
            Form::Plain => format!(
                r#"{{"item":{item},"n":{n},"list":[1,{n}],"options":{{"a":{n},"b":{note}}}}}"#
            ),
            Form::Reordered => format!(
                r#"{{"options":{{"b":{note},"a":{n}}},"list":[1,{n}],"n":{n},"item":{item}}}"#
            ),
            Form::Fraction => format!(
                r#"{{"item":{item},"n":{n}.0,"list":[1.0,{n}.0],"options":{{"a":{n}.0,"b":{note}}}}}"#
            ),
            Form::Exponent => format!(
                r#"{{"item":{item},"n":{n}e0,"list":[1E0,{n}],"options":{{"a":{n}e+0,"b":{note}}}}}"#
            ),
            Form::Escaped => self.text(Form::Plain).replace('\u{e9}', "\\u00e9"),
            Form::Spaced => format!(
                "{{ \"item\" : {item} ,\n\t\"n\": {n} , \"list\" : [ 1 , {n} ] , \"options\" : {{ \"a\": {n}, \"b\": {note} }} }}"
            ),
        }
    }

    /// Other arguments: another number, or a text that only looks the same.
    pub(crate) fn changed(&self, chance: &mut Chance) -> Self {
        let mut changed = self.clone();
        if chance.permille(500) {
            changed.n = changed.n.saturating_add(1);
        } else {
            // The same letter, composed of two: strings are not normalised.
            changed.note = "cafe\u{301}".to_owned();
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{Args, Form};
    use crate::{history::canonical::fingerprint, seeded::Chance};

    fn args() -> Args {
        Args::new("r1-c2-3".to_owned(), &mut Chance::new(5))
    }

    #[test]
    fn every_form_means_the_same() {
        let args = args();
        for form in Form::OTHERS.into_iter().chain([Form::Plain]) {
            let text = args.text(form);
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(fingerprint(&value), fingerprint(&args.value()), "{text}");
            assert!(form == Form::Plain || text != args.text(Form::Plain), "{form:?}");
        }
    }

    #[test]
    fn changed_arguments_mean_something_else() {
        let (args, mut chance) = (args(), Chance::new(6));
        for _ in 0..20 {
            let changed = args.changed(&mut chance);
            assert_ne!(fingerprint(&changed.value()), fingerprint(&args.value()));
            assert_eq!(changed.item, args.item);
        }
    }
}
