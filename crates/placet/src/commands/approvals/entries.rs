//! What grants, break-glass records, freezes and delegations have in common: lists, one of them, decisions, ends, reviews.
//!
//! Owns their tables and words. Invariant: a command for one kind never touches an entry of another kind.

use clap::Args as ClapArgs;
use placet_approvals::views::{DirectiveAct, DirectiveRequest, DirectiveView, EntriesPage};
use placet_types::{
    approval::VoteChoice,
    digest::Digest,
    directive::{DirectiveBody, DirectiveKind, pattern::ArgumentRule},
    ids::DirectiveId,
    text::visible,
};

use super::{decide::agreed, quotation, words};
use crate::{
    client::Client,
    commands::times,
    failure::{Exit, Failure, Outcome},
    output,
};

/// Of those that are over, enough for a person to read; the list says where to go on.
const LISTED_MAX: usize = 2_000;

/// A decision on an entry.
#[derive(Debug, ClapArgs)]
pub(in crate::commands) struct Decide {
    /// The entry.
    id: DirectiveId,
    /// Why; kept for the auditor.
    #[arg(long)]
    reason: String,
    /// The digest that `show` printed; without it you are shown the entry and asked.
    #[arg(long)]
    digest: Option<Digest>,
}

/// The end of an entry.
#[derive(Debug, ClapArgs)]
pub(in crate::commands) struct End {
    /// The entry.
    id: DirectiveId,
    /// Why; kept for the auditor.
    #[arg(long)]
    reason: String,
}

/// Which entries to list.
#[derive(Debug, ClapArgs)]
pub(in crate::commands) struct Listing {
    /// Also those that are over.
    #[arg(long)]
    all: bool,
    /// Only older ones than this entry: where a list stopped that was too long.
    #[arg(long, value_name = "ENTRY")]
    after: Option<DirectiveId>,
}

/// The entries of one kind, for a command.
#[derive(Debug)]
pub(in crate::commands) struct Entries<'a> {
    pub(in crate::commands) client: &'a Client,
    pub(in crate::commands) kind: DirectiveKind,
}

impl Entries<'_> {
    /// Lists them, the newest first: those of which something may still become, or all.
    pub(in crate::commands) async fn list(&self, wanted: &Listing) -> Outcome {
        let mut entries: Vec<DirectiveView> = Vec::new();
        let mut after = wanted.after.clone();
        let state = if wanted.all { "all" } else { "open" };
        loop {
            let kind = ("kind", self.kind.as_str());
            let mut query = vec![kind, ("state", state), ("order", "newest"), ("limit", "200")];
            query.extend(after.as_ref().map(|after| ("after", after.as_str())));
            let page: EntriesPage = self.client.get(&["v1", "directives"], &query).await?;
            entries.extend(page.entries);
            after = page.next_after;
            // What may still matter is listed to its end: there is not room for very much of it.
            if after.is_none() || (wanted.all && entries.len() >= LISTED_MAX) {
                break;
            }
        }
        self.client.answer(&entries, |entries| match (entries.as_slice(), wanted.all) {
            ([], true) => output::line(format!("you see no {}s", named(self.kind))),
            ([], false) => output::line(format!(
                "you see no open {}s; --all shows those that are over",
                named(self.kind)
            )),
            (entries, _) => {
                output::table(
                    ["entry", "state", "by", "what", "from", "ends"],
                    entries.iter().map(row),
                );
            }
        })?;
        if let Some(after) = after {
            output::note(format!(
                "note: {} are listed, the newest first; go on with --after {after}",
                entries.len()
            ));
        }
        Ok(Exit::Ok)
    }

    /// Shows one.
    pub(in crate::commands) async fn show(&self, id: &DirectiveId) -> Outcome {
        let entry = self.read(id).await?;
        self.client.answer(&entry, |entry| output::line(text(entry)))
    }

    /// Decides on one.
    pub(in crate::commands) async fn decide(&self, choice: VoteChoice, args: &Decide) -> Outcome {
        let entry = self.read(&args.id).await?;
        let digest = match args.digest {
            Some(digest) => digest,
            None => {
                output::note(text(&entry));
                let look = format!("placet {} show {}", command(self.kind), args.id);
                agreed(words::verb(choice), &look)?;
                entry.digest
            }
        };
        let act = DirectiveAct::Decide { decision: choice, reason: args.reason.clone(), digest };
        self.act(&args.id, &act).await
    }

    /// Ends one before its time.
    pub(in crate::commands) async fn end(&self, args: &End) -> Outcome {
        self.read(&args.id).await?;
        self.act(&args.id, &DirectiveAct::End { reason: args.reason.clone() }).await
    }

    /// Says afterwards what one was used for.
    pub(in crate::commands) async fn review(&self, id: &DirectiveId, note: &str) -> Outcome {
        self.read(id).await?;
        self.act(id, &DirectiveAct::Review { note: note.to_owned() }).await
    }

    async fn act(&self, id: &DirectiveId, act: &DirectiveAct) -> Outcome {
        let reply = self.client.post(&["v1", "directives", id.as_str(), "acts"], act).await?;
        self.client.answer(&reply.document()?, |entry: &DirectiveView| {
            output::line(format!("recorded; {} is now {}", entry.directive_id, entry.state));
        })
    }

    /// Reads one, which must be of this kind.
    async fn read(&self, id: &DirectiveId) -> Result<DirectiveView, Failure> {
        let entry: DirectiveView = self.client.get(&["v1", "directives", id.as_str()], &[]).await?;
        let is = entry.body.kind();
        if is == self.kind {
            return Ok(entry);
        }
        Err(Failure::usage(format!("`{id}` is a {}, not a {}", named(is), named(self.kind)))
            .try_this(format!("`placet {}` is for those", command(is))))
    }
}

/// Arranges something.
pub(in crate::commands) async fn arrange(client: &Client, new: &DirectiveRequest) -> Outcome {
    let reply = client.post(&["v1", "directives"], new).await?;
    client.answer(&reply.document()?, |entry| output::line(text(entry)))
}

fn row(entry: &DirectiveView) -> [String; 6] {
    let due = if entry.review_due { ", review due" } else { "" };
    [
        entry.directive_id.to_string(),
        format!("{}{due}", entry.state),
        entry.by.to_string(),
        what(entry),
        entry.starts_at.to_string(),
        times::from_now(entry.expires_at),
    ]
}

const fn named(kind: DirectiveKind) -> &'static str {
    match kind {
        DirectiveKind::Grant => "standing grant",
        DirectiveKind::BreakGlass => "break-glass record",
        DirectiveKind::Freeze => "freeze",
        DirectiveKind::Delegation => "delegation",
        DirectiveKind::Revocation => "revocation",
    }
}

const fn command(kind: DirectiveKind) -> &'static str {
    match kind {
        DirectiveKind::Grant => "approvals grants",
        DirectiveKind::BreakGlass => "approvals break-glass",
        DirectiveKind::Freeze => "approvals freezes",
        DirectiveKind::Delegation => "approvals delegations",
        DirectiveKind::Revocation => "credentials",
    }
}

/// What an entry arranges, in a line.
fn what(entry: &DirectiveView) -> String {
    match &entry.body {
        DirectiveBody::Grant(grant) => format!(
            "{} by {}, {} of {} uses",
            grant.capability.tool_name(),
            words::chain(&grant.chain),
            entry.uses,
            grant.uses_max
        ),
        DirectiveBody::BreakGlass(glass) => {
            let agent = glass.agent.as_ref().map_or("every agent".to_owned(), ToString::to_string);
            let tool = glass.capability.as_ref();
            let tool = tool
                .map_or("every tool that policies let it open".to_owned(), |one| one.tool_name());
            format!("{}: {tool}, for {agent}", visible(&glass.ticket))
        }
        DirectiveBody::Freeze(freeze) => {
            let adapters: Vec<String> = freeze.adapters.iter().map(ToString::to_string).collect();
            let of =
                if adapters.is_empty() { "everything".to_owned() } else { adapters.join(", ") };
            let what = if freeze.lockdown { "lockdown" } else { "writes" };
            format!("{}: {what} of {of}", freeze.name)
        }
        DirectiveBody::Delegation(delegation) => {
            let groups: Vec<String> = delegation.groups.iter().map(ToString::to_string).collect();
            format!("{} decides for {} in {}", delegation.to, entry.by, groups.join(", "))
        }
        DirectiveBody::Revocation(revocation) => {
            let issuer = revocation.issuer.as_deref().unwrap_or("any issuer");
            format!(
                "tokens of {} by {issuer}, from before {}",
                revocation.subject, entry.created_at
            )
        }
    }
}

/// An entry as people read it.
fn text(entry: &DirectiveView) -> String {
    let mut lines = vec![format!("{} {}", named(entry.body.kind()), entry.directive_id)];
    lines.push(format!("  what      {}", what(entry)));
    if let DirectiveBody::Grant(grant) = &entry.body {
        lines.push(format!("  from      {}, up to {}", grant.approval_id, grant.mode));
        lines.extend(grant.pattern.0.iter().map(|(place, rule)| {
            format!("  covers    {} {}", visible(place), rule_in_words(rule))
        }));
    }
    lines.push(format!("  by        {}", entry.by));
    lines.push(format!(
        "  from/to   {} to {} ({})",
        entry.starts_at,
        entry.expires_at,
        times::from_now(entry.expires_at)
    ));
    if entry.requirement.quorum > 0 {
        lines.push(format!("  needs     {}", needs(entry)));
    }
    lines.extend(entry.votes.iter().map(|vote| {
        let instead = vote.stands_for.as_ref().map(|who| format!(" for {who}")).unwrap_or_default();
        let word = words::choice(vote.choice);
        let token = vote.with_token();
        format!("  {word:<9} {}{instead} at {}{token}", vote.approver, vote.at)
    }));
    let note = entry.note.as_ref();
    lines.extend(note.map(|note| format!("  then      {} at {}", note.by, note.at)));
    lines.extend(quoted(entry));
    let force = if entry.in_force { ", in force" } else { "" };
    let due = if entry.review_due { ", its review is due" } else { "" };
    lines.push(format!("  state     {}{force}{due}", entry.state));
    lines.push(format!("  digest    {}", entry.digest));
    lines.join("\n")
}

/// Why people arranged, decided on and ended it, in their words.
fn quoted(entry: &DirectiveView) -> Vec<String> {
    let mut lines = quotation::lines(&format!("{} arranged it, because", entry.by), &entry.reason);
    for vote in &entry.votes {
        let whose = format!("{} said {}, because", vote.approver, words::choice(vote.choice));
        lines.extend(quotation::lines(&whose, &vote.reason));
    }
    let note = entry.note.as_ref();
    lines.extend(
        note.into_iter().flat_map(|note| {
            quotation::lines(&format!("{} wrote at its end", note.by), &note.text)
        }),
    );
    lines
}

fn needs(entry: &DirectiveView) -> String {
    let requirement = &entry.requirement;
    if requirement.groups.is_empty() {
        return "one other person".to_owned();
    }
    placet_policy::explain::requirement_line(requirement)
}

fn rule_in_words(rule: &ArgumentRule) -> String {
    match rule {
        ArgumentRule::Equals(value) => format!("is {value}"),
        ArgumentRule::OneOf(values) => {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            format!("is one of {}", values.join(", "))
        }
        ArgumentRule::AtMost(most) => format!("is a whole number up to {most}"),
        ArgumentRule::StartsWith(start) => format!("begins with `{}`", visible(start)),
        ArgumentRule::Any(_) => "is anything".to_owned(),
    }
}
