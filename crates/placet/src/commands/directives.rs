//! `placet directives`: standing grants, delegations, break-glass records, freezes and revocations.
//!
//! Owns the options, lists and acts; how an entry is shown is in [`view`]. Invariant: a decision names the digest of what was shown.

mod pattern;
mod view;

use std::collections::BTreeSet;

use clap::{Args as ClapArgs, Subcommand};
use placet_approvals::views::{
    Arrangement, DirectiveAct, DirectiveRequest, DirectiveView, EntriesPage,
};
use placet_types::{
    approval::VoteChoice,
    clock::Timestamp,
    digest::Digest,
    directive::{
        BreakGlass, Delegation, DirectiveKind, Freeze, REVOCATION_MS_MIN, Revocation,
        pattern::ArgumentPattern,
    },
    ids::{AdapterName, ApprovalId, CapabilityId, DirectiveId, GroupId, PrincipalId},
};

use self::pattern::Rule;
use super::{
    approvals::{agreed, show},
    times,
};
use crate::{
    client::{Client, ClientArgs, given},
    environment::Environment,
    failure::{Failure, Outcome},
    output,
};

/// Create, decide and end grants, delegations, break-glass, freezes and revocations.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet directives list --kind freeze\n  \
    placet directives grant apr_01J… --uses 10 --for 7d --starts-with /path=reports/ --reason \"monthly\" --digest sha256:…\n  \
    placet directives delegate cleo --groups approvers --for 8h --reason \"on a plane\"\n  \
    placet directives break-glass --ticket INC-4711 --for 1h --reason \"orders fail\"\n  \
    placet directives freeze --name \"Year's end\" --from 2026-12-31T00:00+01:00 --for 2d --reason \"the books are closed\"\n  \
    placet directives freeze --name Incident --for 1h --lockdown --reason \"an agent misbehaves\"\n  \
    placet directives revoke --subject alice --reason \"her laptop is lost\"\n  \
    placet directives approve dir_01J… --reason \"seen it too\" --digest sha256:…\n  \
    placet directives end dir_01J… --reason \"all is well\"\n  \
    placet directives review dir_01J… --note \"three calls, all of them needed\"")]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Action {
    /// List the open directives that you may see, newest first.
    List(Listing),
    /// Show a directive, with the digest that a decision names.
    Show {
        /// The directive.
        id: DirectiveId,
    },
    /// Approve a proposed grant, or confirm break-glass as a second person.
    Approve(Decide),
    /// Deny a proposed grant, or break-glass.
    Deny(Decide),
    /// End a directive early; this also lifts a freeze or a revocation.
    End {
        /// The directive.
        id: DirectiveId,
        /// The reason; recorded for auditors.
        #[arg(long)]
        reason: String,
    },
    /// Review afterwards what break-glass was used for, as somebody who took no part.
    Review {
        /// The directive.
        id: DirectiveId,
        /// What you found.
        #[arg(long)]
        note: String,
    },
    /// Propose a standing grant from a pending approval; this is also your agreement if it covers that call alone.
    Grant(Grant),
    /// Let a colleague decide in your place for a time.
    Delegate(Delegate),
    /// Request break-glass: emergency access that policies opt in to.
    BreakGlass(Emergency),
    /// Schedule a time in which every write waits for approval, or in which no call runs.
    Freeze(Calendar),
    /// Reject all tokens of a subject that were issued until now.
    Revoke(Revoke),
}

/// Which directives to list.
#[derive(Debug, ClapArgs)]
struct Listing {
    /// Only directives of this kind.
    #[arg(long, value_parser = DirectiveKind::ALL.map(DirectiveKind::as_str))]
    kind: Option<String>,
    /// Also directives that have ended.
    #[arg(long)]
    all: bool,
    /// Only directives older than this one, where an earlier list was cut off.
    #[arg(long, value_name = "DIRECTIVE")]
    after: Option<DirectiveId>,
}

/// A decision on a directive.
#[derive(Debug, ClapArgs)]
struct Decide {
    /// The directive.
    id: DirectiveId,
    /// The reason; recorded for auditors.
    #[arg(long)]
    reason: String,
    /// The digest that `show` printed; without it, the directive is shown and you are asked to confirm.
    #[arg(long)]
    digest: Option<Digest>,
}

/// How long a directive lasts, and why it is arranged.
#[derive(Debug, ClapArgs)]
struct Term {
    /// How long it lasts, such as 30m, 8h or 7d.
    #[arg(long = "for", value_name = "TIME", value_parser = times::lasting)]
    lasts_ms: u64,
    /// The reason; recorded for auditors.
    #[arg(long)]
    reason: String,
}

/// When a directive begins.
#[derive(Debug, ClapArgs)]
struct Begin {
    /// When it begins, such as 2026-12-24T18:00+01:00 [default: now].
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
    from: Option<Timestamp>,
}

/// A grant that is proposed.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Without a rule it covers exactly the arguments of the approval. Each rule loosens one place (a JSON Pointer); whatever\n\
    no rule loosens has to be the same. A grant lasts 30 days at most."
)]
struct Grant {
    /// The approval it is proposed from.
    id: ApprovalId,
    /// How often it may be used.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    uses: u32,
    /// Allow any value for this argument.
    #[arg(long, value_name = "PLACE", value_parser = pattern::any)]
    any: Vec<Rule>,
    /// Allow any text with this prefix for this argument; the rest may contain neither `..` nor control characters.
    #[arg(long, value_name = "PLACE=TEXT", value_parser = pattern::starts_with)]
    starts_with: Vec<Rule>,
    /// Allow a whole number from 0 to this one for this argument.
    #[arg(long, value_name = "PLACE=NUMBER", value_parser = pattern::at_most)]
    at_most: Vec<Rule>,
    /// The digest that `placet approvals show` printed.
    #[arg(long)]
    digest: Digest,
    /// How long, and why.
    #[command(flatten)]
    term: Term,
}

/// A delegation of one's own duty.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The colleague's decisions name both of you, count for your groups, and only where both of you may decide. It is for calls of \
    your own tenant: what other tenants ask of your groups is decided by their members alone. A delegation lasts 31 days at most."
)]
struct Delegate {
    /// The colleague who decides instead.
    colleague: PrincipalId,
    /// The groups of yours that it is for.
    #[arg(long, required = true, value_name = "GROUP", value_delimiter = ',')]
    groups: Vec<GroupId>,
    /// When it begins.
    #[command(flatten)]
    begin: Begin,
    /// How long, and why.
    #[command(flatten)]
    term: Term,
}

/// Emergency access that is requested.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "It counts once a second person has confirmed it (`approve`), and opens only what a policy says it opens, for 8 hours at most. \
    A third person reviews it afterwards (`review`)."
)]
struct Emergency {
    /// The incident it belongs to.
    #[arg(long)]
    ticket: String,
    /// Only for this agent [default: all agents of the tenant].
    #[arg(long)]
    agent: Option<PrincipalId>,
    /// Only for this operation, as adapter/capability [default: all that policies let it open].
    #[arg(long, value_name = "ADAPTER/CAPABILITY")]
    capability: Option<CapabilityId>,
    /// How long, and why.
    #[command(flatten)]
    term: Term,
}

/// A freeze that is to be; it lasts 31 days at most.
#[derive(Debug, ClapArgs)]
struct Calendar {
    /// Its name in the calendar.
    #[arg(long)]
    name: String,
    /// Only for writes of these adapters [default: all].
    #[arg(long, value_name = "ADAPTER", value_delimiter = ',')]
    adapters: Vec<AdapterName>,
    /// A lockdown: no call runs, not even a read, whatever was approved.
    #[arg(long)]
    lockdown: bool,
    /// When it begins.
    #[command(flatten)]
    begin: Begin,
    /// How long, and why.
    #[command(flatten)]
    term: Term,
}

/// A revocation that is to be.
#[derive(Debug, ClapArgs)]
struct Revoke {
    /// The subject of the tokens, as their issuer names it (`sub`).
    #[arg(long)]
    subject: String,
    /// Only tokens of this issuer (`iss`) [default: every issuer of your tenant].
    #[arg(long)]
    issuer: Option<String>,
    /// How long it is remembered: 1d to 31d [default: 1d, the longest lifetime of a token].
    #[arg(long = "for", value_name = "TIME", value_parser = times::lasting)]
    lasts_ms: Option<u64>,
    /// The reason; recorded for auditors.
    #[arg(long)]
    reason: String,
}

/// Does what was asked.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = &Client::of(&args.client, environment)?;
    match &args.action {
        Action::List(wanted) => list(client, wanted).await,
        Action::Show { id } => {
            client.answer(&read(client, id).await?, |entry| output::line(view::text(entry)))
        }
        Action::Approve(args) => decide(client, args, VoteChoice::Approve).await,
        Action::Deny(args) => decide(client, args, VoteChoice::Deny).await,
        Action::End { id, reason } => {
            act(client, id, &DirectiveAct::End { reason: reason.clone() }).await
        }
        Action::Review { id, note } => {
            act(client, id, &DirectiveAct::Review { note: note.clone() }).await
        }
        Action::Grant(args) => {
            let grant = Arrangement::Grant {
                approval_id: args.id.clone(),
                pattern: pattern_of(client, args).await?,
                uses_max: args.uses,
                digest: args.digest,
            };
            arrange(client, grant, &args.term, None).await
        }
        Action::Delegate(args) => {
            let groups = args.groups.iter().cloned().collect();
            let delegation = Delegation { to: args.colleague.clone(), groups };
            let delegation = Arrangement::Delegation(delegation);
            arrange(client, delegation, &args.term, args.begin.from).await
        }
        Action::BreakGlass(args) => {
            let Emergency { ticket, agent, capability, term } = args;
            let (agent, capability) = (agent.clone(), capability.clone());
            let glass = BreakGlass { ticket: ticket.clone(), agent, capability };
            arrange(client, Arrangement::BreakGlass(glass), term, None).await
        }
        Action::Freeze(args) => {
            let adapters: BTreeSet<AdapterName> = args.adapters.iter().cloned().collect();
            let freeze = Freeze { name: args.name.clone(), adapters, lockdown: args.lockdown };
            arrange(client, Arrangement::Freeze(freeze), &args.term, args.begin.from).await
        }
        Action::Revoke(args) => {
            let (subject, issuer) = (args.subject.clone(), args.issuer.clone());
            let lasts_ms = args.lasts_ms.unwrap_or(REVOCATION_MS_MIN);
            let term = Term { lasts_ms, reason: args.reason.clone() };
            let revocation = Arrangement::Revocation(Revocation { subject, issuer });
            arrange(client, revocation, &term, None).await
        }
    }
}

async fn list(client: &Client, wanted: &Listing) -> Outcome {
    let query = given([
        ("kind", wanted.kind.as_deref()),
        ("state", Some(if wanted.all { "all" } else { "open" })),
        ("order", Some("newest")),
        ("limit", Some("200")),
        ("after", wanted.after.as_ref().map(DirectiveId::as_str)),
    ]);
    let page: EntriesPage = client.get(&["v1", "directives"], &query).await?;
    if let Some(after) = page.next_after {
        output::note(format!("note: there are older ones; go on with --after {after}"));
    }
    client.answer(&page.entries, |entries| {
        if entries.is_empty() {
            return output::line(if wanted.all {
                "you see no directives"
            } else {
                "you see no open directives; --all shows those that are over"
            });
        }
        output::table(view::HEADER, entries.iter().map(view::row));
    })
}

async fn read(client: &Client, id: &DirectiveId) -> Result<DirectiveView, Failure> {
    client.get(&["v1", "directives", id.as_str()], &[]).await
}

async fn decide(client: &Client, args: &Decide, choice: VoteChoice) -> Outcome {
    let digest = match args.digest {
        Some(digest) => digest,
        None => {
            let entry = read(client, &args.id).await?;
            output::note(view::text(&entry));
            agreed(choice.as_str(), &format!("placet directives show {}", args.id))?;
            entry.digest
        }
    };
    let act = DirectiveAct::Decide { decision: choice, reason: args.reason.clone(), digest };
    self::act(client, &args.id, &act).await
}

async fn act(client: &Client, id: &DirectiveId, act: &DirectiveAct) -> Outcome {
    let reply = client.post(&["v1", "directives", id.as_str(), "acts"], act).await?;
    client.answer(&reply.document()?, |entry: &DirectiveView| {
        output::line(format!("recorded; {} is now {}", entry.directive_id, entry.state));
    })
}

async fn arrange(
    client: &Client,
    arrange: Arrangement,
    term: &Term,
    starts_at: Option<Timestamp>,
) -> Outcome {
    let Term { lasts_ms, reason } = term;
    let new = DirectiveRequest { arrange, reason: reason.clone(), starts_at, lasts_ms: *lasts_ms };
    let reply = client.post(&["v1", "directives"], &new).await?;
    client.answer(&reply.document()?, |entry| output::line(view::text(entry)))
}

/// The pattern of a grant, where it is not exactly the arguments of the approval.
async fn pattern_of(client: &Client, args: &Grant) -> Result<Option<ArgumentPattern>, Failure> {
    let rules = [args.any.as_slice(), &args.starts_with, &args.at_most].concat();
    if rules.is_empty() {
        return Ok(None);
    }
    // The digest is of the approval that is loosened here: the server refuses it if that is no longer what is shown.
    let detail = show::read(client, &args.id).await?;
    Ok(Some(pattern::loosened(detail.preview(), &rules)))
}
