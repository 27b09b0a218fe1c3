//! Receipts, checkpoints and proofs: requested from a running Placet, and checked without one.
//!
//! Owns the printing. Not here: what is checked (`placet-store`).

use std::path::PathBuf;

use clap::Args as ClapArgs;
use placet_api::documents::CheckpointList;
use placet_engine::engine::evidence::{AuditKeyView, ConsistencyView, ReceiptView};
use placet_ledger::proof::{Consistency, receipt::ReceiptClaims};
use placet_store::seal::{
    SealPublic, verify_checkpoint, verify_receipt as check_receipt, verify_receipt_under,
};
use placet_types::ids::ToolCallId;
use serde_json::{Value, json};

use crate::{
    client::{Client, given},
    failure::{Attempted as _, Exit, Failure, Outcome},
    output, yaml,
};

/// Which proof.
#[derive(Debug, ClapArgs)]
pub(super) struct Prove {
    /// The log.
    #[arg(long, default_value = "journal")]
    log: String,
    /// Prove that this entry is in the log.
    #[arg(long, value_name = "N", required_unless_present = "from")]
    seq: Option<u64>,
    /// Prove that the log at size --to begins with the log at this size.
    #[arg(long, value_name = "N", requires = "to", conflicts_with = "seq")]
    from: Option<u64>,
    /// The size of the log for --from.
    #[arg(long, value_name = "N", requires = "from")]
    to: Option<u64>,
}

/// What a receipt is checked with.
#[derive(Debug, ClapArgs)]
pub(super) struct VerifyReceipt {
    /// The receipt, or `-` for standard input.
    file: PathBuf,
    /// The public key, as `placet audit key` printed it.
    #[arg(long, value_name = "VKEY")]
    key: String,
    /// A signed checkpoint that the receipt must agree with.
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// The proof that links the two, as `placet audit prove --from … --to …` printed it; required if their sizes differ.
    #[arg(long, value_name = "FILE", requires = "checkpoint")]
    proof: Option<PathBuf>,
}

/// Reads a public key.
pub(super) fn read_key(text: &str) -> Result<SealPublic, Failure> {
    SealPublic::parse_vkey(text).map_err(|error| {
        Failure::usage("`--key` is not a public key")
            .because(error)
            .try_this("`placet audit key` prints it")
    })
}

/// Prints checkpoints.
pub(super) async fn checkpoints(client: &Client, log: Option<&str>) -> Outcome {
    let mut list: CheckpointList = client.get(&["v1", "audit", "checkpoints"], &[]).await?;
    if let Some(log) = log {
        list.checkpoints.retain(|checkpoint| checkpoint.log == log);
        if list.checkpoints.is_empty() {
            return Err(Failure::new(format!("there is no log `{log}`")));
        }
    }
    client.answer(&list, |list| match (log, list.checkpoints.as_slice()) {
        // Exactly as it is signed.
        (Some(_), [checkpoint, ..]) => output::raw(&checkpoint.note),
        (_, checkpoints) => {
            let notes: Vec<_> = checkpoints.iter().map(|one| one.note.trim_end()).collect();
            output::line(notes.join("\n\n"));
        }
    })
}

/// Prints the public key.
pub(super) async fn key(client: &Client) -> Outcome {
    let key: AuditKeyView = client.get(&["v1", "audit", "key"], &[]).await?;
    client.answer(&key, |key| output::line(&key.vkey))
}

/// Prints a proof.
pub(super) async fn prove(client: &Client, prove: &Prove) -> Outcome {
    let text = |number: Option<u64>| number.map(|number| number.to_string());
    let (seq, from, to) = (text(prove.seq), text(prove.from), text(prove.to));
    let query = given([
        ("log", Some(prove.log.as_str())),
        ("seq", seq.as_deref()),
        ("from", from.as_deref()),
        ("to", to.as_deref()),
    ]);
    let what = if prove.from.is_some() { "consistency" } else { "inclusion" };
    let proof: Value = client.get(&["v1", "audit", what], &query).await?;
    output::json(&proof);
    Ok(Exit::Ok)
}

/// Prints a receipt.
pub(super) async fn receipt(client: &Client, call: &ToolCallId) -> Outcome {
    let receipt: ReceiptView = client.get(&["v1", "calls", call.as_str(), "receipt"], &[]).await?;
    client.answer(&receipt, |receipt| output::line(&receipt.receipt))
}

/// Checks a receipt.
pub(super) fn verify_receipt(args: &VerifyReceipt, json: bool) -> Outcome {
    let key = read_key(&args.key)?;
    let text = yaml::read_input(&args.file)?;
    match check(args, &key, text.trim()) {
        Ok(claims) => {
            let document = json!({ "ok": true, "claims": claims });
            output::answer(json, &document, |_| {
                output::line("ok: the key signed what follows");
                output::fields(&claims);
            })
        }
        Err(why) => wrong(json, &why.in_a_line()),
    }
}

/// Reports that something does not verify.
pub(super) fn wrong(json: bool, why: &str) -> Outcome {
    let document = json!({ "ok": false, "problem": why });
    output::answer(json, &document, |_| output::line(format!("WRONG: {why}")))?;
    Ok(Exit::Findings)
}

fn check(args: &VerifyReceipt, key: &SealPublic, text: &str) -> Result<ReceiptClaims, Failure> {
    let what = "the receipt does not verify";
    let claims = check_receipt(text, key).attempted(what)?;
    let Some(file) = &args.checkpoint else { return Ok(claims) };
    let checkpoint = verify_checkpoint(&yaml::read_input(file)?, key, None);
    let checkpoint = checkpoint.attempted("the checkpoint does not verify")?;
    let (low, high) =
        (claims.tree_size.min(checkpoint.head.size), claims.tree_size.max(checkpoint.head.size));
    let proof = match &args.proof {
        Some(file) => {
            let proof: ConsistencyView = serde_json::from_str(&yaml::read_input(file)?)
                .attempted("the proof cannot be read")?;
            Consistency { from: proof.from, to: proof.to, path: proof.path }
        }
        None if low == high => Consistency { from: low, to: high, path: Vec::new() },
        None => {
            return Err(Failure::new("the receipt and the checkpoint are about different sizes")
                .because(format!(
                    "`--proof` is missing: `placet audit prove --from {low} --to {high}` prints it"
                )));
        }
    };
    verify_receipt_under(&claims, &checkpoint, &proof).attempted(what)?;
    Ok(claims)
}
