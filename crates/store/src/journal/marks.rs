//! Where some of a segment's frames are, so that one frame is found without reading from the segment's start.
//!
//! Owns the notes beside closed segments (`000000000001.marks`: "PLMARKS" 01, number of the segment, count, pairs of sequence
//! number and offset, CRC-32C), the ones in memory (bounded), and making them again from the segment's headers.
//! Not here: reading frames. Invariant: a note only shortens the way: the frame found by it is verified like any other, and notes
//! that are lost or damaged are made again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::content::content_at;
use super::error::JournalError;
use super::files::SegmentFiles;
use super::frame::{HEADER_BYTES, decode_header, frame_bytes, take};
use super::medium::{Medium, beside, read_full_at, to_u64, to_usize, write_all_at};
use super::scan::INDEX_EVERY;
use super::segment::SEGMENT_HEADER_BYTES;
use super::window::Window;

const MAGIC: [u8; 8] = *b"PLMARKS\x01";
const EXTENSION: &str = "marks";
/// For how many segments the notes are held in memory: for each entry in them about a byte.
const SEGMENTS_MAX: usize = 256;
/// No segment has more; a larger file is damage.
const BYTES_MAX: u64 = 64 << 20;

/// Sequence numbers and offsets, ascending.
pub(crate) type Marks = Vec<(u64, u64)>;

/// The notes before and after an entry.
pub(crate) type Around = (Option<(u64, u64)>, Option<(u64, u64)>);

/// The last note that is not after an entry, and the one that follows it.
pub(crate) fn marks_around(marks: &[(u64, u64)], seq: u64) -> Around {
    let after = marks.partition_point(|(marked, _)| *marked <= seq);
    let before = after.checked_sub(1).and_then(|at| marks.get(at).copied());
    (before, marks.get(after).copied())
}

/// The notes of a closed segment in half the room: sequence numbers from the first one on, and offsets.
#[derive(Debug)]
pub(crate) struct Notes {
    first_seq: u64,
    marks: Vec<(u32, u32)>,
}

impl Notes {
    fn of(marks: &Marks) -> Self {
        let first_seq = marks.first().map_or(0, |(seq, _)| *seq);
        // A note that is left out makes the way longer, and nothing else.
        let short = marks.iter().filter_map(|(seq, offset)| {
            let rest = u32::try_from(seq.checked_sub(first_seq)?).ok()?;
            Some((rest, u32::try_from(*offset).ok()?))
        });
        let mut marks: Vec<_> = short.collect();
        marks.shrink_to_fit();
        Self { first_seq, marks }
    }

    fn long(&self, mark: (u32, u32)) -> (u64, u64) {
        let (rest, offset) = mark;
        (self.first_seq.saturating_add(u64::from(rest)), u64::from(offset))
    }

    /// The last one that is not after an entry, and the one that follows it.
    pub(crate) fn around(&self, seq: u64) -> Around {
        let after = self.marks.partition_point(|mark| self.long(*mark).0 <= seq);
        let long = |at: usize| self.marks.get(at).map(|mark| self.long(*mark));
        (after.checked_sub(1).and_then(long), long(after))
    }
}

/// The notes in memory.
#[derive(Debug, Default)]
pub(crate) struct MarksCache {
    held: Mutex<HashMap<u64, Arc<Notes>>>,
}

impl MarksCache {
    /// The notes of a closed segment: from memory, from beside it, or made from its headers.
    pub(crate) fn of(
        &self,
        files: &SegmentFiles,
        segment: u64,
        first_seq: u64,
    ) -> Result<Arc<Notes>, JournalError> {
        // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
        if let Some(notes) = self.held.lock().unwrap_or_else(PoisonError::into_inner).get(&segment)
        {
            return Ok(Arc::clone(notes));
        }
        let path = path_of(&files.directory, segment);
        let marks = match load(&*files.medium, &path, segment) {
            Some(marks) => marks,
            None => {
                let marks = survey(files, segment, first_seq)?;
                keep(&*files.medium, &path, segment, &marks);
                marks
            }
        };
        let notes = Arc::new(Notes::of(&marks));
        self.put(segment, Arc::clone(&notes));
        Ok(notes)
    }

    /// The segment is closed, and these are its notes.
    pub(crate) fn closed(&self, files: &SegmentFiles, segment: u64, marks: Marks) {
        keep(&*files.medium, &path_of(&files.directory, segment), segment, &marks);
        self.put(segment, Arc::new(Notes::of(&marks)));
    }

    fn put(&self, segment: u64, notes: Arc<Notes>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= SEGMENTS_MAX {
            let any: Vec<u64> = held.keys().copied().take(SEGMENTS_MAX / 4).collect();
            for segment in any {
                held.remove(&segment);
            }
        }
        held.insert(segment, notes);
    }
}

fn path_of(directory: &Path, segment: u64) -> PathBuf {
    directory.join(format!("{segment:012}.{EXTENSION}"))
}

fn load(medium: &dyn Medium, path: &Path, segment: u64) -> Option<Marks> {
    let file = medium.open_read(path).ok()?;
    let length = file.length().ok().filter(|length| *length <= BYTES_MAX)?;
    let mut bytes = vec![0; to_usize(length)];
    read_full_at(&*file, &mut bytes, 0).ok()?;
    let (fields, crc) = bytes.split_last_chunk::<4>()?;
    let mut rest = fields;
    let head = [take::<8>(&mut rest).ok()?, take::<8>(&mut rest).ok()?, take::<8>(&mut rest).ok()?];
    let [magic, number, count] = head;
    let sound = magic == MAGIC
        && u64::from_le_bytes(number) == segment
        && crc32c::crc32c(fields) == u32::from_le_bytes(*crc);
    if !sound {
        return None;
    }
    let mut marks = Vec::new();
    for _ in 0..u64::from_le_bytes(count) {
        let pair = (take::<8>(&mut rest).ok()?, take::<8>(&mut rest).ok()?);
        marks.push((u64::from_le_bytes(pair.0), u64::from_le_bytes(pair.1)));
    }
    (!marks.is_empty()).then_some(marks)
}

/// Notes save time and nothing else: where they cannot be written they are made again.
fn keep(medium: &dyn Medium, path: &Path, segment: u64, marks: &Marks) {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&segment.to_le_bytes());
    out.extend_from_slice(&to_u64(marks.len()).to_le_bytes());
    for (seq, offset) in marks {
        out.extend_from_slice(&seq.to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
    }
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    let temporary = beside(path);
    let kept = medium
        .create(&temporary)
        .and_then(|file| write_all_at(&*file, &out, 0))
        .and_then(|()| medium.rename(&temporary, path));
    if let Err(error) = kept {
        tracing::debug!(%error, segment, "the notes beside a segment could not be kept");
    }
}

/// Walks over the headers of a closed segment.
fn survey(files: &SegmentFiles, segment: u64, first_seq: u64) -> Result<Marks, JournalError> {
    let (file, path) = files.open_read(segment)?;
    let mut window = Window::new(file, path);
    let (mut offset, mut seq) = (SEGMENT_HEADER_BYTES, first_seq);
    let mut marks = Vec::new();
    loop {
        let begins = offset;
        while let Some(content) = content_at(&mut window, segment, offset)? {
            offset = content.place.end();
        }
        let Ok((_, payload_bytes)) = decode_header(window.at(offset, HEADER_BYTES)?) else { break };
        if marks.is_empty() || seq.checked_rem(INDEX_EVERY) == Some(0) {
            marks.push((seq, begins));
        }
        offset = offset.saturating_add(to_u64(frame_bytes(payload_bytes)));
        seq = seq.saturating_add(1);
    }
    Ok(marks)
}

#[cfg(test)]
mod tests {
    use super::{Notes, marks_around};

    #[test]
    fn notes_in_half_the_room_say_the_same() {
        let marks: Vec<(u64, u64)> = (0..50).map(|at| (700 + at * 8, 64 + at * 9_000)).collect();
        let notes = Notes::of(&marks);
        for seq in 690..1_110 {
            assert_eq!(notes.around(seq), marks_around(&marks, seq), "{seq}");
        }
        assert_eq!(notes.around(699), (None, Some((700, 64))));
        assert_eq!(notes.around(707), (Some((700, 64)), Some((708, 9_064))));
        assert_eq!(notes.around(5_000), (marks.last().copied(), None));
    }

    #[test]
    fn what_is_too_far_away_for_a_note_is_left_out() {
        let far = u64::from(u32::MAX) + 1;
        let notes = Notes::of(&vec![(1, 64), (9, 900), (17, far), (far + 1, 65)]);
        assert_eq!(notes.marks, [(0, 64), (8, 900)]);
        assert_eq!(Notes::of(&Vec::new()).around(3), (None, None));
    }
}
