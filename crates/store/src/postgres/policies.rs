//! What binds every node: which policies are active, which were replaced, and how often directives became stricter.
//!
//! Owns writing that state. Not here: the rule (`placet_ledger::policies`). Invariant: reads and writes here happen under the lock of the
//! ledger's row, so that of two nodes that activate at once one sees what the other did.

use sqlx::postgres::PgConnection;
use sqlx::{Row as _, query};

use placet_ledger::policies::{PastPolicies, PolicyState, Replaced};
use placet_policy::policies::PolicyDigests;
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;

use super::batch::forgotten;
use super::error::Hitch;
use super::rows::column;

/// When, and by which others, any of these policies were replaced.
pub(super) async fn past(
    connection: &mut PgConnection,
    digests: &[Digest],
) -> Result<PastPolicies, Hitch> {
    let keys: Vec<Vec<u8>> = digests.iter().map(|digest| digest.as_bytes().to_vec()).collect();
    let found = query(
        "SELECT digest, replaced_ms, replaced_by FROM placet.replaced_policies WHERE digest = ANY($1)",
    )
    .bind(keys)
    .fetch_all(connection)
    .await?;
    let mut past = Vec::with_capacity(found.len());
    for row in &found {
        let by = digest(row.try_get("replaced_by")?)?;
        let at = Timestamp::from_ms(row.try_get("replaced_ms")?);
        past.push((digest(row.try_get("digest")?)?, Replaced { at, by }));
    }
    Ok(PastPolicies::new(past))
}

/// Under which digests it is noted that these policies were replaced.
pub(super) fn keys(policy: PolicyState) -> impl Iterator<Item = Digest> {
    let digests = policy.digests;
    std::iter::once(digests.whole()).chain(digests.parts().map(|(_, part)| part))
}

/// The digests in a column, in their order; `None`: they are no such digests.
pub(super) fn digests(column: &[Vec<u8>]) -> Option<PolicyDigests> {
    let mut parts = column.iter().map(|bytes| bytes.as_slice().try_into().ok());
    let mut next = || parts.next().flatten().map(Digest::from_bytes);
    Some(PolicyDigests {
        policies: next()?,
        contracts: next()?,
        directory: next()?,
        issuers: next()?,
    })
}

fn digest(bytes: Vec<u8>) -> Result<Digest, Hitch> {
    let bytes = bytes.try_into();
    bytes
        .map(Digest::from_bytes)
        .map_err(|_short| Hitch::Stop(forgotten("which policies were replaced")))
}

/// Records which policies were replaced.
pub(super) async fn put_past(
    connection: &mut PgConnection,
    before: &PastPolicies,
    after: &PastPolicies,
) -> Result<(), Hitch> {
    for (digest, _) in before.all().filter(|(digest, _)| after.get(digest).is_none()) {
        query("DELETE FROM placet.replaced_policies WHERE digest = $1")
            .bind(digest.as_bytes().as_slice())
            .execute(&mut *connection)
            .await?;
    }
    for (digest, replaced) in after.all() {
        query(
            "INSERT INTO placet.replaced_policies (digest, replaced_ms, replaced_by) VALUES ($1, $2, $3) \
             ON CONFLICT (digest) DO UPDATE SET replaced_ms = excluded.replaced_ms, replaced_by = excluded.replaced_by",
        )
        .bind(digest.as_bytes().as_slice())
        .bind(replaced.at.as_ms())
        .bind(replaced.by.as_bytes().as_slice())
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Every live node has the active policies in its own row, which it locks for each transaction.
pub(super) async fn activate(
    connection: &mut PgConnection,
    policy: Option<PolicyState>,
) -> Result<(), Hitch> {
    let Some(policy) = policy else { return Ok(()) };
    let digests = policy.digests.parts().map(|(_, part)| part.as_bytes().to_vec());
    for statement in [
        query("UPDATE placet.ledger SET policy_epoch = $1, policy_digests = $2 WHERE id = 1"),
        query(
            "UPDATE placet.epochs SET policy_epoch = $1, policy_digests = $2 WHERE fenced_by IS NULL AND closed_ms IS NULL",
        ),
    ] {
        statement
            .bind(column(policy.epoch))
            .bind(digests.to_vec())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Every live node has the number in its own row, as it has the policies.
pub(super) async fn tighten(
    connection: &mut PgConnection,
    restriction_version: u64,
) -> Result<(), Hitch> {
    for statement in [
        query("UPDATE placet.ledger SET directives_rev = $1 WHERE id = 1"),
        query(
            "UPDATE placet.epochs SET directives_rev = $1 WHERE fenced_by IS NULL AND closed_ms IS NULL",
        ),
    ] {
        statement.bind(column(restriction_version)).execute(&mut *connection).await?;
    }
    Ok(())
}
