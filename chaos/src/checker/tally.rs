//! How much was judged of which part of a promise, and how much had to be left out.
//!
//! Owns the list of parts. Each has a count of its own, so that one that was never judged does not hide behind another of the same promise.
//! Invariant: where moved clocks keep a part from being judged, nothing of it counts as judged.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::Invariant;

macro_rules! parts {
    ($($name:ident = $of:ident, $short:literal, $title:literal;)*) => {
        /// A part of a promise of which something may have to be left out.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Part { $(#[doc = $title] $name,)* }

        impl Part {
            /// All of them, by promise.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its short name, which begins with that of the promise.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $short,)* }
            }

            /// What it says, in a line.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// The promise that it is of.
            #[must_use]
            pub const fn of(self) -> Invariant {
                match self { $(Self::$name => Invariant::$of,)* }
            }
        }
    };
}

parts! {
    Recorded = I2, "I2 recorded", "the log has the intent of every effect";
    RecordedFirst = I2, "I2 order", "the intent was recorded before the effect began";
    Visible = I6, "I6 recorded", "the log has what an answer depends on";
    VisibleFirst = I6, "I6 order", "what an answer depends on was recorded before it";
    SilentOnceOut = I8, "I8 fence", "no entry after being shut out";
    StruckBefore = I8, "I8 cause", "nobody is shut out whom nothing struck";
    IdleOnceStopped = I8, "I8 stop", "nothing is dispatched after a stop was asked for";
    PolicyOfThen = I10, "I10 policy", "the policy that permitted a dispatch was the active one";
    Answered = I13, "I13 answers", "nobody waits without success";
    Settled = I13, "I13 end", "in the end nothing is under way, and every node takes calls";
    TakenUp = I13, "I13 agreements", "what was agreed to when the faults were over runs";
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How much a part of a promise was held against.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// How many answers, effects, votes, records or nodes.
    pub judged: u64,
    /// How many it could not be held against, by why.
    pub unjudged: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.judged = self.judged.saturating_add(other.judged);
        for (why, count) in &other.unjudged {
            let known = self.unjudged.entry(why.clone()).or_default();
            *known = known.saturating_add(*count);
        }
    }

    /// Whether it came up, and nothing was held against it.
    #[must_use]
    pub fn is_gap(&self) -> bool {
        self.judged == 0 && self.unjudged.values().any(|count| *count > 0)
    }
}
