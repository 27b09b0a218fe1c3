//! What opening a journal does to the files: the first segment, or the last one made ready for appends.
//!
//! Not here: the verdict on what is found (`scan`), which comes first. Invariant: only bytes that nothing but a crash can have left are
//! changed; everything that was found is durable afterwards.

use std::io;
use std::path::Path;

use super::JournalConfig;
use super::error::JournalError;
use super::medium::{
    Medium, MediumFile, TEMPORARY, read_full_at, to_usize, write_all_at, write_zeros,
};
use super::scan::{Position, Scan, SegmentIndex};
use super::segment::{self, SEGMENT_HEADER_BYTES, SegmentHeader, path_of};

/// Removes files that a crash left before they were renamed into place.
pub(super) fn remove_temporaries(
    medium: &dyn Medium,
    directory: &Path,
) -> Result<(), JournalError> {
    let names = medium.list(directory).map_err(JournalError::io("list the folder", directory))?;
    for path in names.iter().map(|name| directory.join(name)) {
        if path.extension().is_some_and(|extension| extension == TEMPORARY) {
            medium.remove(&path).map_err(JournalError::io("remove the unfinished file", &path))?;
        }
    }
    Ok(())
}

/// The segment that appends go to.
pub(super) struct Opened {
    pub(super) file: Box<dyn MediumFile>,
    pub(super) segment: SegmentIndex,
    pub(super) allocated_bytes: u64,
    pub(super) offset: u64,
}

/// Makes the first segment of a new journal.
pub(super) fn first_segment(config: &JournalConfig) -> Result<Opened, JournalError> {
    let allocated_bytes = config.segment_bytes.max(SEGMENT_HEADER_BYTES);
    let header =
        SegmentHeader { number: 1, first_seq: 1, prev: Position::START.head, allocated_bytes };
    let file = segment::create(&*config.medium, &config.directory, &header)?;
    let segment = SegmentIndex { number: 1, first_seq: 1, marks: Vec::new() };
    Ok(Opened { file, segment, allocated_bytes, offset: SEGMENT_HEADER_BYTES })
}

/// Opens the last segment for writing, cuts off a torn tail and makes what was found durable.
pub(super) fn recover_segment(
    config: &JournalConfig,
    found: &Scan,
    segment: SegmentIndex,
) -> Result<Opened, JournalError> {
    let path = path_of(&config.directory, segment.number);
    let file = config.medium.open(&path).map_err(JournalError::io("open the segment", &path))?;
    rewrite(&*file, found.unsynced_offset, found.end_offset)
        .and_then(|()| write_zeros(&*file, found.end_offset, found.torn_bytes))
        .and_then(|()| file.sync_data())
        .map_err(JournalError::io("recover the segment", &path))?;
    Ok(Opened { file, segment, allocated_bytes: found.allocated_bytes, offset: found.end_offset })
}

/// Writes bytes over themselves. After a failed sync the system may show pages that are not on disk and consider them clean; written again
/// they are dirty, and the sync that follows covers them.
fn rewrite(file: &dyn MediumFile, from: u64, to: u64) -> io::Result<()> {
    let mut bytes = vec![0; to_usize(to.saturating_sub(from))];
    let count = read_full_at(file, &mut bytes, from)?;
    write_all_at(file, bytes.get(..count).unwrap_or_default(), from)
}
