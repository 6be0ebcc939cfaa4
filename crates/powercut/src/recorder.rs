//! A program under record: [`Recorder`].

use crate::disk::Disk;
use crate::journal::{Journal, JournalError, encode_note, parse};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

const JOURNAL: &str = "POWERCUT_JOURNAL";
const ROOT: &str = "POWERCUT_ROOT";

/// Records what programs do below a folder.
#[derive(Debug)]
pub struct Recorder {
    root: PathBuf,
    journal: PathBuf,
    shim: PathBuf,
    begin: Disk,
}

impl Recorder {
    /// Takes all that stands below `root` as synced. `work` is a folder elsewhere, for the library and the journal.
    ///
    /// # Errors
    /// If the library cannot be built (it takes a C compiler), or a file cannot be read.
    pub fn new(root: &Path, work: &Path) -> io::Result<Self> {
        let shim = work.join("powercut.so");
        if !shim.exists() {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim/shim.c");
            let built = Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-o"])
                .arg(&shim)
                .arg(source)
                .arg("-ldl")
                .status()?;
            if !built.success() {
                return Err(io::Error::other("cc does not build the library"));
            }
        }
        let journal = work.join("journal");
        File::create(&journal)?;
        let root = fs::canonicalize(root)?;
        Ok(Self { begin: Disk::of(&root)?, root, journal, shim })
    }

    /// The variables that put a program under record.
    pub fn environment(&self) -> [(&'static str, OsString); 3] {
        [
            ("LD_PRELOAD", self.shim.clone().into()),
            (ROOT, self.root.clone().into()),
            (JOURNAL, self.journal.clone().into()),
        ]
    }

    /// Notes what somebody was told.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn note(&self, text: &str) -> io::Result<()> {
        append(&self.journal, text)
    }

    /// What was recorded so far.
    ///
    /// # Errors
    /// If it cannot be read, or holds what the model does not have.
    pub fn journal(&self) -> Result<Journal, JournalError> {
        let records = parse(&fs::read(&self.journal).map_err(JournalError::Io)?)?;
        Ok(Journal { begin: self.begin.clone(), records })
    }
}

/// Notes what somebody was told, in a program under record.
///
/// # Panics
/// If it is under none.
pub fn note(text: &str) {
    let journal = std::env::var_os(JOURNAL).expect("the program is under record");
    append(Path::new(&journal), text).expect("the journal can be written");
}

fn append(journal: &Path, text: &str) -> io::Result<()> {
    // One write: what others append stays whole.
    OpenOptions::new().append(true).open(journal)?.write_all(&encode_note(text))
}
