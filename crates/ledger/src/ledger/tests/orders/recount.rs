//! The approval rules again, as naively as possible: a list of what people did, recounted each time.
//!
//! Shares nothing with the real machine, so that a mistake there is not repeated here.

use std::collections::{BTreeMap, BTreeSet};

/// Each person: the name, the external tenant if any, and the groups.
pub(super) const PEOPLE: [(&str, Option<&str>, &[&str]); 9] = [
    ("ann", None, &["leads"]),
    ("bob", None, &["tenants"]),
    ("cyd", None, &["leads", "tenants"]),
    ("mo", None, &["managers"]),
    ("ned", None, &[]),
    ("pat", None, &["managers", "tenants"]),
    ("bob", Some("globex"), &["globex/credit"]),
    ("eli", Some("globex"), &["globex/credit", "globex/leads"]),
    ("fay", Some("globex"), &["globex/leads"]),
];

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) groups: BTreeMap<&'static str, usize>,
    pub(super) quorum: usize,
    pub(super) denials: usize,
}

impl Asked {
    /// What a call asks for: the second one asks another tenant.
    pub(super) fn of(number: usize, quorum: u32, denials: u32) -> Self {
        let second = if number == 0 { "tenants" } else { "globex/credit" };
        Self {
            groups: BTreeMap::from([("leads", 1), (second, 1)]),
            quorum: usize::try_from(quorum).unwrap(),
            denials: usize::try_from(denials).unwrap(),
        }
    }

    /// Everything that either asks for.
    fn and(&self, other: &Self) -> Self {
        let names: BTreeSet<_> = self.groups.keys().chain(other.groups.keys()).copied().collect();
        let most = |name| {
            let of = |asked: &Self| asked.groups.get(name).copied().unwrap_or(0);
            of(self).max(of(other))
        };
        Self {
            groups: names.into_iter().map(|name| (name, most(name))).collect(),
            quorum: self.quorum.max(other.quorum),
            denials: self.denials.min(other.denials),
        }
    }
}

/// One vote that was taken.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) who: usize,
    pub(super) for_whom: Option<usize>,
    pub(super) yes: bool,
    /// How many edits the shown version had.
    pub(super) on_edit: usize,
}

impl Said {
    pub(super) fn names(&self) -> Vec<usize> {
        std::iter::once(self.who).chain(self.for_whom).collect()
    }

    fn groups(&self) -> &'static [&'static str] {
        PEOPLE[self.for_whom.unwrap_or(self.who)].2
    }
}

/// The state of one approval according to the recount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    Pending,
    Approved,
    Denied,
    Ended,
    /// It was sent.
    Executed,
    /// It was sent and had no effect.
    Failed,
    /// It was sent and had its effect.
    Done,
    /// It was sent, and its outcome is unknown.
    Unknown,
}

impl Stands {
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Pending => &["pending"],
            Self::Approved => &["approved"],
            Self::Denied => &["denied"],
            Self::Ended => &["expired", "void"],
            Self::Executed | Self::Failed | Self::Done | Self::Unknown => &["consumed"],
        }
    }
}

/// What happened to one approval, in order.
#[derive(Debug, Clone)]
pub(super) struct Story {
    pub(super) asked: Asked,
    /// The argument of what would run; the last one counts.
    pub(super) notes: Vec<String>,
    pub(super) said: Vec<Said>,
    /// The authors of arguments that are not narrower.
    pub(super) authors: BTreeSet<usize>,
    pub(super) escalated: bool,
    /// Since when people have been asked for the current request.
    pub(super) asked_ms: i64,
    pub(super) stands: Stands,
}

impl Story {
    pub(super) fn new(asked: Asked, note: &str) -> Self {
        let notes = vec![note.to_owned()];
        Self {
            asked,
            notes,
            said: Vec::new(),
            authors: BTreeSet::new(),
            escalated: false,
            asked_ms: 0,
            stands: Stands::Pending,
        }
    }

    pub(super) fn edits(&self) -> usize {
        self.notes.len() - 1
    }

    /// Whether this vote on the current version is possible: neither the voter nor whom they stand for has voted.
    pub(super) fn may_speak(&self, said: &Said) -> bool {
        let spoke = |name: &usize| {
            self.said.iter().any(|past| past.on_edit == said.on_edit && past.names().contains(name))
        };
        self.stands == Stands::Pending
            && self.is_asked(said)
            && said.on_edit == self.edits()
            && !said.names().iter().any(spoke)
            && !said.names().iter().any(|name| self.authors.contains(name))
    }

    /// External approvers may vote only if they are asked.
    fn is_asked(&self, said: &Said) -> bool {
        PEOPLE[said.who].1.is_none()
            || said.groups().iter().any(|group| self.asked.groups.contains_key(group))
    }

    pub(super) fn says(&mut self, said: Said) {
        self.said.push(said);
        self.count();
    }

    pub(super) fn narrows(&mut self, said: Said, note: &str, asked: &Asked) {
        self.notes.push(note.to_owned());
        self.asked = self.asked.and(asked);
        self.says(Said { on_edit: self.edits(), yes: true, ..said });
    }

    /// A person writes other arguments, on which they may not decide.
    pub(super) fn rewrites(&mut self, said: &Said, note: &str, asked: &Asked) {
        self.notes.push(note.to_owned());
        self.asked = self.asked.and(asked);
        self.authors.extend(said.names());
        self.count();
    }

    pub(super) fn escalates(&mut self) {
        self.escalated = true;
        self.count();
    }

    /// Policies ask for something else; groups that were already escalated to are still asked.
    pub(super) fn reopens(&mut self, asked: Asked, now_ms: i64) {
        self.asked = asked;
        self.asked_ms = now_ms;
        self.stands = Stands::Pending;
    }

    fn count(&mut self) {
        if self.stands == Stands::Pending {
            self.stands = if self.is_denied() {
                Stands::Denied
            } else if self.is_satisfied() {
                Stands::Approved
            } else {
                Stands::Pending
            };
        }
    }

    fn is_denied(&self) -> bool {
        let no = self.said.iter().filter(|said| !said.yes);
        let people: BTreeSet<usize> = no.map(|said| said.for_whom.unwrap_or(said.who)).collect();
        people.len() >= self.asked.denials
    }

    /// Whether enough different people agreed to the current version, whomever they voted for.
    pub(super) fn is_satisfied(&self) -> bool {
        let wrote = |said: &Said| said.names().iter().any(|name| self.authors.contains(name));
        let now = self.said.iter().filter(|said| said.yes && said.on_edit == self.edits());
        let yes: Vec<&Said> = now.filter(|said| !wrote(said)).collect();
        let of = |group: &str| yes.iter().filter(|said| said.groups().contains(&group)).count();
        let agrees = |(group, wanted): (&&'static str, &usize)| {
            of(group) >= *wanted || (*group == "leads" && self.escalated && of("managers") >= 1)
        };
        yes.len() >= self.asked.quorum && self.asked.groups.iter().all(agrees)
    }
}
