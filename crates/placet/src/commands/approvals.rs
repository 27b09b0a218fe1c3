//! `placet approvals`: the queue of held calls, and deciding them.
//!
//! Owns what an approver is shown and asked. Invariant: a decision always names the digest of what was shown; without one on
//! the command line the proposal is shown first and a person has to agree at a terminal.

use std::fmt::Write as _;

use clap::{Args as ClapArgs, Subcommand};
use placet_pipeline::views::{ApprovalDetail, ApprovalView, DecisionRequest};
use placet_server::documents::ApprovalList;
use placet_types::{
    approval::VoteChoice, digest::Digest, ids::ApprovalId, principal::PrincipalChain,
};

use crate::{
    client::{Client, ClientArgs},
    commands::call::now_ms,
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    output,
};

/// Look at held calls and decide them.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals list\n  \
    placet approvals show apr_01J…\n  \
    placet approvals approve apr_01J… --reason \"checked with Ana\" --digest sha256:…\n  \
    placet approvals deny apr_01J… --reason \"wrong folder\"")]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do with approvals.
#[derive(Debug, Subcommand)]
enum Action {
    /// List approvals you may see.
    List {
        /// Only those in this state: pending, approved, denied, expired, void, consumed, or all.
        #[arg(long, default_value = "pending")]
        state: String,
    },
    /// Show one with everything an approver has to know, and the digest a decision names.
    Show {
        /// The approval.
        id: ApprovalId,
    },
    /// Say yes.
    Approve(Decide),
    /// Say no; one is enough.
    Deny(Decide),
}

/// A decision.
#[derive(Debug, ClapArgs)]
struct Decide {
    /// The approval.
    id: ApprovalId,
    /// Why; kept for the auditor.
    #[arg(long)]
    reason: String,
    /// The digest that `show` printed; without it you are shown the proposal and asked.
    #[arg(long)]
    digest: Option<Digest>,
}

/// Does what was asked.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    let json = args.client.json;
    match &args.action {
        Action::List { state } => list(&client, state, json).await,
        Action::Show { id } => show(&client, id, json).await,
        Action::Approve(decide) => self::decide(&client, decide, VoteChoice::Approve, json).await,
        Action::Deny(decide) => self::decide(&client, decide, VoteChoice::Deny, json).await,
    }
}

async fn list(client: &Client, state: &str, json: bool) -> Outcome {
    let mut approvals: Vec<ApprovalView> = Vec::new();
    let mut after: Option<ApprovalId> = None;
    loop {
        let mut query = vec![("limit", "200")];
        if state != "all" {
            query.push(("state", state));
        }
        if let Some(after) = &after {
            query.push(("after", after.as_str()));
        }
        let page: ApprovalList = client.get(&["v1", "approvals"], &query).await?;
        approvals.extend(page.approvals);
        after = page.next_after;
        if after.is_none() || approvals.len() >= LISTED_MAX {
            break;
        }
    }
    if json {
        output::json(&approvals);
        return Ok(Exit::Ok);
    }
    if approvals.is_empty() {
        output::line(format!("no approvals ({state}) that you may see"));
        return Ok(Exit::Ok);
    }
    output::table(
        ["approval", "state", "tool", "asked by", "needs", "ends"],
        approvals.iter().map(row),
    );
    Ok(Exit::Ok)
}

/// Enough for a person to read; programs page themselves.
const LISTED_MAX: usize = 2_000;

fn row(approval: &ApprovalView) -> [String; 6] {
    [
        approval.approval_id.to_string(),
        approval.state.clone(),
        approval.capability_id.tool_name(),
        chain(&approval.principal_chain),
        progress(approval),
        in_words(approval.expires_at.as_ms().saturating_sub(now_ms())),
    ]
}

/// Who calls, for whom.
pub(crate) fn chain(chain: &PrincipalChain) -> String {
    let actor = format!("{} {}", chain.actor.kind.as_str(), chain.actor.id);
    chain.on_behalf_of.as_ref().map_or(actor.clone(), |user| format!("{actor} for {}", user.id))
}

/// How many of how many, by group.
fn progress(approval: &ApprovalView) -> String {
    let yes: Vec<_> =
        approval.votes.iter().filter(|vote| vote.choice == VoteChoice::Approve).collect();
    let groups = approval.requirement.groups.iter().map(|(group, needed)| {
        let have = yes.iter().filter(|vote| vote.groups.contains(group)).count();
        format!("{group} {have}/{needed}")
    });
    format!(
        "{}/{} ({})",
        yes.len(),
        approval.requirement.quorum,
        groups.collect::<Vec<_>>().join(", ")
    )
}

/// A time from now, in words.
fn in_words(ms: i64) -> String {
    let minutes = ms.div_euclid(60_000);
    match minutes {
        i64::MIN..=-1 => "over".to_owned(),
        0..=119 => format!("in {minutes} min"),
        _ => format!("in {} h", minutes.div_euclid(60)),
    }
}

async fn show(client: &Client, id: &ApprovalId, json: bool) -> Outcome {
    let detail: ApprovalDetail = client.get(&["v1", "approvals", id.as_str()], &[]).await?;
    if json {
        output::json(&detail);
    } else {
        output::line(shown(&detail));
    }
    Ok(Exit::Ok)
}

/// An approval with its evidence, as an approver reads it.
fn shown(detail: &ApprovalDetail) -> String {
    let ApprovalDetail { approval, proposal } = detail;
    let evidence = &proposal.evidence;
    let mut text = format!(
        "{} wants to call {}\n  mode      {} (asked for {})\n  target    {}\n  run       {}",
        chain(&approval.principal_chain),
        approval.capability_id.tool_name(),
        proposal.call.approval_mode_effective,
        proposal.call.approval_mode_requested,
        evidence.target,
        proposal.call.run_id,
    );
    let mut add = |line: String| {
        // Writing to a string cannot fail.
        write!(text, "\n{line}").unwrap_or_default();
    };
    if let Some(secret) = &evidence.credential.source {
        let audience = evidence.credential.audience.as_deref().unwrap_or("anybody");
        add(format!(
            "  with      the credential `{secret}` for {audience}, scopes {:?}",
            evidence.credential.scopes
        ));
    }
    add(format!("  needs     {}", placet_policy::explain::requirement_line(&approval.requirement)));
    for reason in &approval.requirement.reasons {
        add(format!("  because   {}: {}", reason.policy, reason.reason));
    }
    for vote in &approval.votes {
        let word = match vote.choice {
            VoteChoice::Approve => "yes",
            VoteChoice::Deny => "no",
        };
        add(format!("  {word:<9} {} at {}: {}", vote.approver, vote.at, vote.reason));
    }
    let ends = in_words(approval.expires_at.as_ms().saturating_sub(now_ms()));
    add(format!("  state     {}, ends {} ({ends})", approval.state, approval.expires_at));
    for reference in &proposal.call.evidence_refs {
        add(format!("  evidence  {reference}"));
    }
    add(format!("  arguments (sensitive ones masked)\n{:#}", evidence.preview));
    add(format!("  digest    {}", approval.digest));
    text
}

async fn decide(client: &Client, decide: &Decide, choice: VoteChoice, json: bool) -> Outcome {
    let digest = match decide.digest {
        Some(digest) => digest,
        None => asked(client, decide, choice).await?,
    };
    let request = DecisionRequest { decision: choice, reason: decide.reason.clone(), digest };
    let path = ["v1", "approvals", decide.id.as_str(), "decisions"];
    let approval: ApprovalView = client.post(&path, &request).await?.document()?;
    if json {
        output::json(&approval);
    } else {
        output::line(format!(
            "recorded; {} is now {} ({})",
            approval.approval_id,
            approval.state,
            progress(&approval)
        ));
    }
    Ok(Exit::Ok)
}

/// Shows the proposal and asks the person at the terminal; the digest is of what was shown.
async fn asked(client: &Client, decide: &Decide, choice: VoteChoice) -> Result<Digest, Failure> {
    let detail: ApprovalDetail = client.get(&["v1", "approvals", decide.id.as_str()], &[]).await?;
    output::note(shown(&detail));
    let word = match choice {
        VoteChoice::Approve => "approve",
        VoteChoice::Deny => "deny",
    };
    match output::ask(&format!("\nType `{word}` to {word} exactly this:")) {
        Some(answer) if answer == word => Ok(detail.approval.digest),
        Some(_) => Err(Failure::new("nothing was decided")),
        None => Err(Failure::usage("a decision names the digest of what was shown")
            .because("there is no terminal to ask at")
            .try_this(format!(
                "look at it with `placet approvals show {}`, then add --digest",
                decide.id
            ))),
    }
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn a_time_is_told_in_words() {
        assert_eq!(in_words(-1), "over");
        assert_eq!(in_words(90_000), "in 1 min");
        assert_eq!(in_words(7_200_000), "in 2 h");
    }
}
