//! The disk alone: how often it makes an appended block durable.
//!
//! Owns the loop that every write rate is compared with: 4 KiB appended, `fdatasync`, and again, in the folder that the engine's
//! journal is in, while the engine is idle.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::time::Instant;

use crate::stats::Sample;

const BLOCK_BYTES: usize = 4_096;

/// Appends a block and syncs, for `length`.
pub(crate) async fn syncs(folder: &Path, length: Duration) -> Result<Sample> {
    let path = folder.join("fdatasync.bench");
    tokio::task::spawn_blocking(move || {
        let sample = append_and_sync(&path, length);
        fs::remove_file(&path).context("the file of the disk's numbers stays")?;
        sample
    })
    .await
    .context("the disk's loop broke")?
}

fn append_and_sync(path: &Path, length: Duration) -> Result<Sample> {
    let mut file =
        File::options().create_new(true).append(true).open(path).context("no file can be made")?;
    let batch = [0x5a; BLOCK_BYTES];
    let began = Instant::now();
    let mut latencies = Vec::new();
    while began.elapsed() < length {
        let sent = Instant::now();
        file.write_all(&batch).context("the disk takes nothing")?;
        file.sync_data().context("the disk does not sync")?;
        latencies.push(sent.elapsed());
    }
    Ok(Sample { latencies, elapsed: began.elapsed() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::syncs;

    #[tokio::test]
    async fn every_block_is_counted_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let sample = syncs(folder.path(), Duration::from_millis(30)).await.unwrap();
        assert!(!sample.latencies.is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_has_no_counts() {
        let folder = tempfile::tempdir().unwrap();
        assert!(syncs(&folder.path().join("gone"), Duration::from_millis(5)).await.is_err());
    }
}
