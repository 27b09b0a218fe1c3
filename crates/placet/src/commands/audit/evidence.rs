//! Receipts, checkpoints and proofs: asked of a running Placet, and checked without one.
//!
//! Owns the printing. Not here: what is checked (`placet-store`).

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use clap::Args as ClapArgs;
use placet_api::documents::CheckpointList;
use placet_engine::engine::evidence::{AuditKeyView, ConsistencyView, InclusionView, ReceiptView};
use placet_ledger::proof::{Consistency, receipt::ReceiptClaims};
use placet_store::seal::{
    SealPublic, verify_checkpoint, verify_receipt as check_receipt, verify_receipt_under,
};
use placet_types::ids::ToolCallId;
use serde_json::json;

use crate::{
    client::Client,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output,
};

/// The largest file that is read: a receipt, a checkpoint or a proof.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Which proof.
#[derive(Debug, ClapArgs)]
pub(super) struct Prove {
    /// The log.
    #[arg(long, default_value = "journal")]
    log: String,
    /// That this entry is in it.
    #[arg(long, value_name = "N", required_unless_present = "from")]
    seq: Option<u64>,
    /// In the tree of this size [default: that of the newest checkpoint].
    #[arg(long, value_name = "N", requires = "seq")]
    size: Option<u64>,
    /// That it begins with what it was at this size …
    #[arg(long, value_name = "N", requires = "to", conflicts_with = "seq")]
    from: Option<u64>,
    /// … when it has this size.
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
    /// The proof that joins the two, as `placet audit prove --from … --to …` printed it; needed if their sizes differ.
    #[arg(long, value_name = "FILE", requires = "checkpoint")]
    proof: Option<PathBuf>,
}

/// Reads a small file, or standard input.
pub(super) fn read_text(path: &Path) -> Result<String, Failure> {
    let what = || format!("`{}` cannot be read", path.display());
    let input: Box<dyn io::Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).attempted(what())?)
    };
    let mut text = String::new();
    let read = input.take(FILE_BYTES_MAX).read_to_string(&mut text).attempted(what())?;
    if u64::try_from(read).is_ok_and(|read| read >= FILE_BYTES_MAX) {
        return Err(Failure::new(what()).because("it is too large"));
    }
    Ok(text)
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
pub(super) async fn checkpoints(client: &Client, log: Option<&str>, json: bool) -> Outcome {
    let mut list: CheckpointList = client.get(&["v1", "audit", "checkpoints"], &[]).await?;
    if let Some(log) = log {
        list.checkpoints.retain(|checkpoint| checkpoint.log == log);
        let Some(checkpoint) = list.checkpoints.first() else {
            return Err(Failure::new(format!("there is no log `{log}`")));
        };
        if !json {
            output::raw(&checkpoint.note);
            return Ok(Exit::Ok);
        }
    }
    if json {
        output::json(&list);
    } else {
        let notes: Vec<_> =
            list.checkpoints.iter().map(|checkpoint| checkpoint.note.trim_end()).collect();
        output::line(notes.join("\n\n"));
    }
    Ok(Exit::Ok)
}

/// Prints the public key.
pub(super) async fn key(client: &Client, json: bool) -> Outcome {
    let key: AuditKeyView = client.get(&["v1", "audit", "key"], &[]).await?;
    if json {
        output::json(&key)
    } else {
        output::line(key.vkey)
    }
    Ok(Exit::Ok)
}

/// Prints a proof.
pub(super) async fn prove(client: &Client, prove: &Prove) -> Outcome {
    let text = |number: Option<u64>| number.unwrap_or_default().to_string();
    if prove.from.is_some() {
        let (from, to) = (text(prove.from), text(prove.to));
        let query = [("log", prove.log.as_str()), ("from", &from), ("to", &to)];
        let proof: ConsistencyView = client.get(&["v1", "audit", "consistency"], &query).await?;
        output::json(&proof);
        return Ok(Exit::Ok);
    }
    let (seq, size) = (text(prove.seq), text(prove.size));
    let mut query = vec![("log", prove.log.as_str()), ("seq", &seq)];
    query.extend(prove.size.is_some().then_some(("size", size.as_str())));
    let proof: InclusionView = client.get(&["v1", "audit", "inclusion"], &query).await?;
    output::json(&proof);
    Ok(Exit::Ok)
}

/// Prints a receipt.
pub(super) async fn receipt(client: &Client, call: &ToolCallId, json: bool) -> Outcome {
    let receipt: ReceiptView = client.get(&["v1", "calls", call.as_str(), "receipt"], &[]).await?;
    if json {
        output::json(&receipt)
    } else {
        output::line(receipt.receipt)
    }
    Ok(Exit::Ok)
}

/// Checks a receipt.
pub(super) fn verify_receipt(args: &VerifyReceipt, json: bool) -> Outcome {
    let key = read_key(&args.key)?;
    let text = read_text(&args.file)?;
    match check(args, &key, text.trim()) {
        Ok(claims) => {
            if json {
                output::json(&json!({ "ok": true, "claims": claims }));
            } else {
                print_report(&claims);
            }
            Ok(Exit::Ok)
        }
        Err(why) => {
            if json {
                output::json(&json!({ "ok": false, "problem": why.in_a_line() }));
            } else {
                output::line(format!("WRONG: {}", why.in_a_line()));
            }
            Ok(Exit::Findings)
        }
    }
}

fn check(args: &VerifyReceipt, key: &SealPublic, text: &str) -> Result<ReceiptClaims, Failure> {
    let what = "the receipt does not verify";
    let claims = check_receipt(text, key).attempted(what)?;
    let Some(file) = &args.checkpoint else { return Ok(claims) };
    let checkpoint = verify_checkpoint(&read_text(file)?, key, None);
    let checkpoint = checkpoint.attempted("the checkpoint does not verify")?;
    let (low, high) =
        (claims.tree_size.min(checkpoint.head.size), claims.tree_size.max(checkpoint.head.size));
    let proof = match &args.proof {
        Some(file) => {
            let proof: ConsistencyView =
                serde_json::from_str(&read_text(file)?).attempted("the proof cannot be read")?;
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

fn print_report(claims: &ReceiptClaims) {
    let code = claims.code.map(|code| format!(" ({code})")).unwrap_or_default();
    let optional = |name: &str, digest: Option<placet_types::digest::Digest>| {
        digest.map(|digest| format!("\n  {name:<11}{digest}")).unwrap_or_default()
    };
    output::line(format!(
        "ok: {} says of call {}: {}{code}\n  tool       {}\n  tenant     {}\n  record     {}\n  requested  {}{}{}\n  \
         log        {}, entry {} of {}, at {}",
        claims.iss,
        claims.call_id,
        claims.state,
        claims.capability.tool_name(),
        claims.tenant,
        claims.record_id,
        claims.requested_digest,
        optional("request", claims.request_digest),
        optional("result", claims.result_digest),
        claims.log,
        claims.seq,
        claims.tree_size,
        claims.at,
    ));
}
