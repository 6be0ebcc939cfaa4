//! What was recorded: [`Journal`].

use crate::disk::{Disk, Rules};
use crate::record::Record;
use rand_core::Rng;
use std::io;
use std::path::{Path, PathBuf};

/// The journal cannot be used.
#[derive(Debug)]
pub enum JournalError {
    /// It cannot be read.
    Io(io::Error),
    /// A record is cut off or of no kind.
    Damaged(usize),
    /// The program did what the model does not have.
    Unmodelled(String),
}

impl std::fmt::Display for JournalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Damaged(at) => write!(f, "the record at byte {at} is none"),
            Self::Unmodelled(what) => write!(f, "the program did what the model does not have: {what}"),
        }
    }
}

impl std::error::Error for JournalError {}

/// What a program did, in order, from a folder as it was.
#[derive(Clone, Debug)]
pub struct Journal {
    pub(crate) begin: Disk,
    pub(crate) records: Vec<Record>,
}

impl Journal {
    /// The records, in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// What was told before the record `at`.
    pub fn notes(&self, at: usize) -> impl Iterator<Item = &str> {
        self.records[..at].iter().filter_map(|record| match record {
            Record::Note(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Builds in `into` what a power cut before record `at` may leave. `dice` says what of the rest survives.
    ///
    /// # Errors
    /// If a file cannot be written.
    ///
    /// # Panics
    /// If there are fewer records.
    pub fn cut(&self, at: usize, rules: &Rules, rng: &mut impl Rng, into: &Path) -> io::Result<()> {
        let mut disk = self.begin.clone();
        self.records[..at].iter().enumerate().for_each(|(number, record)| disk.take(number, record, rules));
        disk.leave(rng, into)
    }
}

/// The library's head of a record, in this machine's order of bytes.
const HEAD: usize = 32;

/// Reads what the library wrote.
pub fn parse(bytes: &[u8]) -> Result<Vec<Record>, JournalError> {
    let mut records = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let damaged = || JournalError::Damaged(at);
        let head: &[u8; HEAD] = bytes[at..].first_chunk().ok_or_else(damaged)?;
        let word = |at: usize| u32::from_ne_bytes(*head[at..].first_chunk().expect("within the head")) as usize;
        let long = |at: usize| u64::from_ne_bytes(*head[at..].first_chunk().expect("within the head"));
        let (inode, number) = (long(16), long(24));
        let (first_end, second_end) = (HEAD + word(4), HEAD + word(4) + word(8));
        let all = bytes.get(at..at + second_end + word(12)).ok_or_else(damaged)?;
        let text = |range: std::ops::Range<usize>| String::from_utf8_lossy(&all[range]).into_owned();
        let (path, to) = (PathBuf::from(text(HEAD..first_end)), PathBuf::from(text(first_end..second_end)));
        let data = all[second_end..].to_vec();
        records.push(match word(0) {
            1 => Record::Create { path, inode },
            2 => Record::Write { inode, at: number, data },
            3 => Record::Truncate { inode, len: number },
            4 => Record::Extend { inode, len: number },
            5 => Record::Rename { from: path, to },
            6 => Record::Remove { path },
            7 => Record::MakeFolder { path, inode },
            8 => Record::SyncBegin { inode, number },
            9 => Record::SyncEnd { inode, number },
            NOTE => Record::Note(String::from_utf8_lossy(&data).into_owned()),
            11 => return Err(JournalError::Unmodelled(format!("{} {}", path.display(), to.display()))),
            12 => {
                let len = u64::from_ne_bytes(data.as_slice().try_into().map_err(|_| damaged())?);
                Record::Hole { inode, at: number, len }
            }
            _ => return Err(damaged()),
        });
        at += all.len();
    }
    Ok(records)
}

const NOTE: usize = 10;

/// A note as the library would write it.
pub fn encode_note(text: &str) -> Vec<u8> {
    let mut bytes =
        [NOTE as u32, 0, 0, text.len() as u32].iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    bytes.extend_from_slice(&[0; 16]);
    bytes.extend_from_slice(text.as_bytes());
    bytes
}
