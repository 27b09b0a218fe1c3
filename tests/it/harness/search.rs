//! Looking for a canary in whatever left the process or stayed on disk.
//!
//! Owns the forms in which a text can hide, and the places that are searched. Invariant: a place that nothing was collected from is a
//! failure, not a clean place; anyone who searches shows first that the search finds what is there.

use std::{fs, path::Path};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
};
use rand::Rng as _;
use regex::bytes::RegexSetBuilder;

/// A text that is nowhere by chance. It has letters, digits and characters that a URL would encode.
pub(crate) fn canary(what: &str) -> String {
    let random: [u8; 16] = rand::rng().random();
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{what}+{hex}/zz")
}

/// The same of letters and digits alone, for what has to be a name.
pub(crate) fn plain_canary(what: &str) -> String {
    canary(what).replace(['+', '/'], "")
}

/// The longest part of a long text that is looked for: anyone who gives the whole away gives this part away.
const PART_MAX: usize = 40;

/// The part of a token, a key or a cookie that says which one it is.
pub(crate) fn part(text: &str) -> String {
    let rest = text.split_at(text.len().saturating_sub(PART_MAX) / 2).1;
    rest.chars().take(PART_MAX).collect()
}

/// The part of a key in PEM form that says which one it is.
pub(crate) fn pem_part(file: &Path) -> String {
    let pem = fs::read_to_string(file).unwrap();
    part(&pem.lines().filter(|line| !line.starts_with('-')).collect::<String>())
}

/// Canaries in one text, each of them in one form alone: who finds them all has found every form.
#[derive(Debug)]
pub(crate) struct Disguised {
    pub(crate) text: String,
    pub(crate) canaries: Vec<String>,
}

impl Disguised {
    /// As they are, in base64 wherever its groups of three begin, in hexadecimal and as in a URL.
    pub(crate) fn new(what: &str) -> Self {
        let canaries: Vec<String> = (0..6).map(|_| canary(what)).collect();
        let url: String = url::form_urlencoded::byte_serialize(canaries[5].as_bytes()).collect();
        let text = format!("{} {url}", Self::of(&canaries, " "));
        Self { text, canaries }
    }

    /// The same in short and without what only a URL has, for what has to be a name.
    pub(crate) fn name(what: &str) -> Self {
        let short = |_| plain_canary(what).chars().take(14).collect();
        let canaries: Vec<String> = (0..5).map(short).collect();
        let text = Self::of(&canaries, "|");
        Self { text, canaries }
    }

    fn of(canaries: &[String], between: &str) -> String {
        let base64 =
            |at: usize, before: &str| STANDARD_NO_PAD.encode(format!("{before}{}", canaries[at]));
        let hex = canaries[4].bytes().map(|byte| format!("{byte:02x}")).collect();
        [canaries[0].clone(), base64(1, ""), base64(2, "u"), base64(3, "u:"), hex].join(between)
    }
}

/// The forms in which a text would be given away.
pub(crate) fn forms(canary: &str) -> Vec<(String, Vec<u8>)> {
    let hex: String = canary.bytes().map(|byte| format!("{byte:02x}")).collect();
    // Some encoders leave more of it as it is than others.
    let percent = |kept: &str| -> String {
        let write = |c: char| {
            let is_kept = c.is_ascii_alphanumeric() || kept.contains(c);
            if is_kept {
                c.to_string()
            } else {
                c.to_string().bytes().map(|b| format!("%{b:02X}")).collect()
            }
        };
        canary.chars().map(write).collect()
    };
    let encoded = percent("-_.");
    let reversed: String = canary.chars().rev().collect();
    let mut forms = vec![
        ("as it is".to_owned(), canary.as_bytes().to_vec()),
        ("in hex".to_owned(), hex.clone().into_bytes()),
        ("in upper hex".to_owned(), hex.to_uppercase().into_bytes()),
        ("url-encoded".to_owned(), encoded.clone().into_bytes()),
        ("url-encoded, lower".to_owned(), encoded.to_lowercase().into_bytes()),
        ("backwards".to_owned(), reversed.into_bytes()),
    ];
    forms.extend(in_base64(canary, ""));
    let strictly = percent("");
    if strictly != encoded {
        forms.push(("url-encoded, all of it".to_owned(), strictly.to_lowercase().into_bytes()));
        forms.push(("url-encoded, all of it".to_owned(), strictly.into_bytes()));
    }
    // A name and a password are written as in a URL before they are joined for a header (RFC 6749, section 2.3.1).
    if encoded != canary {
        forms.extend(in_base64(&encoded, " of url-encoded"));
    }
    forms
}

/// What stands before it decides how base64 cuts it: what is the same whatever surrounds it is looked for.
fn in_base64(text: &str, of: &str) -> Vec<(String, Vec<u8>)> {
    let mut forms = Vec::new();
    for before in 0..3_usize {
        let whole = [vec![b'?'; before], text.as_bytes().to_vec()].concat();
        for (name, text) in [
            ("base64", STANDARD_NO_PAD.encode(&whole)),
            ("base64url", URL_SAFE_NO_PAD.encode(&whole)),
        ] {
            let cut = text.len().saturating_sub(usize::from(!whole.len().is_multiple_of(3)));
            let start = [0, 2, 3][before];
            let inner = text.as_bytes()[start..cut].to_vec();
            forms.push((format!("{name}{of}, {before} before"), inner));
        }
    }
    forms
}

/// In which form a canary is in these bytes, if it is.
pub(crate) fn found(bytes: &[u8], canary: &str) -> Option<String> {
    let is_in = |form: &[u8]| memchr(bytes, form);
    forms(canary).into_iter().find(|(_, form)| is_in(form)).map(|(name, _)| name)
}

fn memchr(bytes: &[u8], form: &[u8]) -> bool {
    let Some(first) = form.first() else { return false };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = &rest[at..];
        if rest.starts_with(form) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// Everything that was collected, by where it was.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<(String, Vec<u8>)>);

impl Places {
    pub(crate) fn add(&mut self, place: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.push((place.into(), bytes.into()));
    }

    /// Every file below a folder.
    pub(crate) fn add_folder(&mut self, folder: &Path) {
        self.add_folder_as("", folder, &[]);
    }

    /// Every file below a folder but those of these names, as places of one kind.
    pub(crate) fn add_folder_as(&mut self, kind: &str, folder: &Path, without: &[&str]) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.add_folder_as(kind, &path, without);
            } else if path.is_file() && !without.iter().any(|name| path.ends_with(name)) {
                let bytes = fs::read(&path).unwrap_or_default();
                self.add(format!("{kind}{}", path.display()), without_zeros(&bytes));
            }
        }
    }

    /// Where a canary is, and in which form.
    pub(crate) fn with(&self, canary: &str) -> Vec<String> {
        let hit = |(place, bytes): &(String, Vec<u8>)| {
            found(bytes, canary).map(|form| format!("{place}, {form}"))
        };
        self.0.iter().filter_map(hit).collect()
    }

    /// Of each canary the places where it is, and in which form; each place is read once.
    pub(crate) fn hits(&self, canaries: &[&str]) -> Vec<Vec<String>> {
        let mut owners = Vec::new();
        let mut patterns = Vec::new();
        for (owner, canary) in canaries.iter().enumerate() {
            for (form, bytes) in forms(canary) {
                let text = regex::escape(std::str::from_utf8(&bytes).unwrap());
                patterns.push(format!("(?-u:{text})"));
                owners.push((owner, form));
            }
        }
        let limit = 256 * 1024 * 1024;
        let set = RegexSetBuilder::new(patterns).size_limit(limit).dfa_size_limit(limit).build();
        let set = set.unwrap();
        let mut hits = vec![Vec::new(); canaries.len()];
        for (place, bytes) in &self.0 {
            for (owner, form) in set.matches(bytes).iter().map(|at| &owners[at]) {
                hits[*owner].push(format!("{place}, {form}"));
            }
        }
        hits
    }

    /// The kinds of places: what stands before the colon of a name.
    pub(crate) fn kinds(&self) -> std::collections::BTreeSet<&str> {
        self.0.iter().map(|(place, _)| place.split(':').next().unwrap()).collect()
    }

    /// Whether a word is somewhere in the places whose names have this part.
    pub(crate) fn has(&self, part: &str, word: &str) -> bool {
        let of_part = self.0.iter().filter(|(place, _)| place.contains(part));
        of_part.into_iter().any(|(_, bytes)| memchr(bytes, word.as_bytes()))
    }

    /// Puts a canary into the middle of every place in turn, in every disguise, and fails unless it is found there.
    pub(crate) fn would_find(&self, canary: &str) {
        assert!(!self.0.is_empty());
        for (place, bytes) in &self.0 {
            assert_eq!(found(bytes, canary), None, "{place}");
            let (before, after) = bytes.split_at(bytes.len() / 2);
            for disguise in disguises(canary) {
                let planted = [before, disguise.as_bytes(), after].concat();
                assert!(found(&planted, canary).is_some(), "{disguise} is not found in {place}");
            }
        }
    }
}

/// How a text really gets into a file or an answer: written by the encoders of others, with something before and behind it.
pub(crate) fn disguises(canary: &str) -> Vec<String> {
    let mut all = vec![
        canary.to_owned(),
        url::form_urlencoded::byte_serialize(canary.as_bytes()).collect(),
        serde_json::json!({ "said": canary }).to_string(),
        format!("{:x?}", canary.as_bytes()).replace(", ", ""),
    ];
    let encoded = all[1].clone();
    for before in 0..6 {
        for after in 0..3 {
            let (front, back) = ("u:".repeat(3), "!?".split_at(after).0);
            let front = front.split_at(before).0;
            all.push(STANDARD.encode(format!("{front}{encoded}{back}")));
            let whole = format!("{front}{canary}{back}");
            all.push(STANDARD.encode(&whole));
            all.push(URL_SAFE.encode(&whole));
            all.push(URL_SAFE_NO_PAD.encode(&whole));
        }
    }
    all
}

/// What a mail says, without the encoding of its way: lines that were broken are whole again. The mail as it was sent is another place.
pub(crate) fn unfolded(mail: &[u8]) -> Vec<u8> {
    let mail = String::from_utf8_lossy(mail).replace("\r\n", "\n");
    let in_base64 = |part: &&str| part.to_lowercase().contains("transfer-encoding: base64");
    let bodies = mail.split("\n--").filter(in_base64).filter_map(|part| {
        let body: String = part.split_once("\n\n")?.1.split_whitespace().collect();
        STANDARD.decode(body).ok()
    });
    let mut all: Vec<u8> = bodies.flatten().collect();
    let mut quoted = mail.replace("=\n", "").into_bytes().into_iter();
    while let Some(byte) = quoted.next() {
        let digits = quoted.as_slice().get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let written = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        if let (b'=', Some(written)) = (byte, written) {
            quoted.nth(1).unwrap();
            all.push(written);
        } else {
            all.push(byte);
        }
    }
    all
}

/// Files are allocated before they are used: the zeros at the end are not searched.
fn without_zeros(bytes: &[u8]) -> Vec<u8> {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at.saturating_add(1));
    bytes[..used].to_vec()
}
