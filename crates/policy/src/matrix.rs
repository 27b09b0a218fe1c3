//! The decision matrix: caller × mode × ceiling × approval, as text to be committed next to a bundle.
//!
//! Owns its synthetic world, with one tool for each mode, and its layout. A change of policy shows as a difference that people
//! can review.

use placet_types::{
    approval::VoteChoice,
    ids::IdError,
    mode::{ApprovalMode, EngineMode},
    principal::PrincipalKind,
};

use crate::{
    bundle::BundleSource,
    cases::{
        CallCase, CaseApproval, CaseBudget, CaseFile, CaseFileError, CasePrincipal, CaseProof,
        CaseVote, Expectation, ExpectedOutcome, new_year,
        run::{World, decide_case},
    },
    decision::{DenialKind, Outcome},
    snapshot::Snapshot,
};

const WORLD: &str = include_str!("matrix_world.yaml");

const HEAD: &str = "\
The decision matrix: what the bundle decides about one tool of each mode, by who calls, the run's ceiling and the approval.
Every tool asks for its own mode. Approvals: `none`; `short`: one vote of somebody who is in no group that was asked;
`met`: one vote of a member of `approvers`. Generated: run the tests with UPDATE_EXPECT=1 after a change of policy.

  allow   the call may be dispatched          HOLD  the call waits for people
  deny    a policy denies, or none permits    ceil  the call is stronger than its run may be
";

/// Who calls, and the user behind it.
#[derive(Debug, Clone, Copy)]
struct Caller {
    heading: &'static str,
    kind: PrincipalKind,
    id: &'static str,
    user: Option<&'static str>,
}

const CALLERS: [Caller; 6] = [
    Caller {
        heading: "an agent on its own authority",
        kind: PrincipalKind::Agent,
        id: "bot",
        user: None,
    },
    Caller {
        heading: "an agent for a user",
        kind: PrincipalKind::Agent,
        id: "bot",
        user: Some("ada"),
    },
    Caller { heading: "a service", kind: PrincipalKind::Service, id: "sync", user: None },
    Caller {
        heading: "a service for a user",
        kind: PrincipalKind::Service,
        id: "sync",
        user: Some("ada"),
    },
    Caller { heading: "an automation", kind: PrincipalKind::Automation, id: "nightly", user: None },
    Caller { heading: "a user alone", kind: PrincipalKind::User, id: "ada", user: None },
];

/// Approvals: a name, and whose votes it has.
const APPROVALS: [(&str, Option<&str>); 3] =
    [("none", None), ("short", Some("cleo")), ("met", Some("ben"))];

/// The matrix cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// The bundle does not compile for the matrix's world.
    #[error(transparent)]
    World(#[from] CaseFileError),
    /// A name in the matrix's world is not valid.
    #[error(transparent)]
    Name(#[from] IdError),
    /// A cell cannot be decided.
    #[error("a cell of the matrix cannot be decided: {0}")]
    Cell(String),
}

/// Renders the matrix of a bundle.
///
/// # Errors
/// [`MatrixError`] when the bundle does not compile for the matrix's world.
pub fn render(source: &BundleSource) -> Result<String, MatrixError> {
    let file = CaseFile::parse(WORLD)?;
    let world = World::from_file(file.world.as_ref().ok_or(CaseFileError::NoWorld)?)?;
    let snapshot =
        Snapshot::compile(source, &world.contracts, &world.directory, &world.environment, 1)
            .map_err(CaseFileError::Bundle)?;
    let mut out = HEAD.to_owned();
    for caller in CALLERS {
        out.push_str(&format!("\n{}\n  {:<13}{:<10}ceiling:", caller.heading, "mode", "approval"));
        out.extend(ApprovalMode::ALL.iter().map(|mode| format!("  {:<11}", mode.as_str())));
        out.truncate(out.trim_end().len());
        out.push('\n');
        for mode in ApprovalMode::ALL {
            for (name, voter) in APPROVALS {
                let mut line = format!("  {:<13}{name:<10}        ", mode.as_str());
                for ceiling in ApprovalMode::ALL {
                    let case = cell(caller, mode, ceiling, voter)?;
                    let verdict =
                        decide_case(&snapshot, &world, &case).map_err(MatrixError::Cell)?;
                    line.push_str(&format!("  {:<11}", word(verdict.decision().outcome)));
                }
                out.push_str(line.trim_end());
                out.push('\n');
            }
        }
    }
    Ok(out)
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Allow => "allow",
        Outcome::Hold => "HOLD",
        Outcome::Deny(DenialKind::Ceiling) => "ceil",
        Outcome::Deny(DenialKind::Error) => "ERROR",
        Outcome::Deny(_) => "deny",
    }
}

fn cell(
    caller: Caller,
    mode: ApprovalMode,
    ceiling: ApprovalMode,
    voter: Option<&str>,
) -> Result<CallCase, MatrixError> {
    let principal = |kind, id: &str| -> Result<CasePrincipal, IdError> {
        Ok(CasePrincipal {
            kind: Some(kind),
            id: id.parse()?,
            tenant: "acme".parse()?,
            unlisted: false,
        })
    };
    let vote = |by: &str| -> Result<CaseVote, IdError> {
        Ok(CaseVote {
            by: by.parse()?,
            tenant: None,
            groups: [].into(),
            stands_for: None,
            authenticated_ago_ms: None,
            groups_age_ms: 0,
            choice: VoteChoice::Approve,
            shown_other: false,
        })
    };
    let approval = voter.map(vote).transpose()?;
    Ok(CallCase {
        now: new_year(),
        name: caller.heading.to_owned(),
        actor: principal(caller.kind, caller.id)?,
        user: caller.user.map(|user| principal(PrincipalKind::User, user)).transpose()?,
        user_groups: [].into(),
        tool: format!("tools/{mode}").parse()?,
        args: serde_json::json!({}),
        mode: Some(mode),
        safety_mode: ceiling,
        engine_mode: EngineMode::Enforce,
        attested: true,
        proof: CaseProof::default(),
        delegation: CaseProof::default(),
        via: Vec::new(),
        budget: CaseBudget::default(),
        taint: [].into(),
        history: placet_types::run_history::RunHistory::default(),
        evidence: ["tools/read_only".parse()?].into(),
        approval: approval.map(|vote| CaseApproval {
            expires_in_ms: 3_600_000,
            changed: false,
            standing: false,
            escalated: 0,
            args_edited: false,
            votes: vec![vote],
        }),
        expect: Expectation {
            outcome: ExpectedOutcome::Deny,
            code: None,
            kind: None,
            mode: None,
            policies: None,
            requirement: None,
            by_grant: None,
        },
        frozen: false,
        break_glass: None,
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use crate::testing::shipped;

    #[test]
    fn the_committed_matrix_is_what_the_shipped_bundle_decides() {
        expect_file!["../../../policies/matrix.out"].assert_eq(&super::render(&shipped()).unwrap());
    }
}
