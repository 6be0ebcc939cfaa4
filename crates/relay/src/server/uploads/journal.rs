//! The id under which devices know what a relay remembers: [`Journal`].

use crate::upload::JournalId;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// A file with an id. As long as it is the same, each upload that was ever passed on is noted, or its device has the answer.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    boot: String,
    id: Mutex<JournalId>,
    /// Whoever writes the file.
    writing: Mutex<()>,
}

impl Journal {
    /// Opens it. A new id is given if there is none, or if it is of another boot: after a power cut, what was noted may be lost.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn open(path: PathBuf, boot: String) -> io::Result<Self> {
        let noted = fs::read_to_string(&path).unwrap_or_default();
        let noted = noted.split_once('\n').filter(|(of, _)| *of == boot && !boot.is_empty());
        let noted = noted.and_then(|(_, id)| id.trim_end().parse().ok()).filter(|id| *id != JournalId::NONE);
        let id = Mutex::new(noted.unwrap_or(JournalId::NONE));
        let journal = Self { path, boot, id, writing: Mutex::default() };
        if noted.is_none() {
            journal.renew()?;
        }
        Ok(journal)
    }

    pub(super) fn id(&self) -> JournalId {
        *self.id.lock()
    }

    /// Gives it a new id: of some upload it will not be known any more whether it was passed on. Where there is no room for it on disk, the next process makes another.
    ///
    /// # Errors
    /// If the old one can be neither replaced nor removed: it holds.
    pub(super) fn renew(&self) -> io::Result<()> {
        let mut id = [0; 16];
        SystemRandom::new().fill(&mut id).map_err(|_| io::Error::other("there is no randomness"))?;
        let _writing = self.writing.lock();
        let beside = hoop_files::beside(&self.path, ".new");
        let _ = fs::remove_file(&beside);
        // Nothing is synced: after a power cut, it is of another boot.
        let written = hoop_files::create_new(&beside)
            .and_then(|mut file| file.write_all(format!("{}\n{}\n", self.boot, JournalId(id)).as_bytes()))
            .and_then(|()| fs::rename(&beside, &self.path));
        if written.is_err() {
            match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        *self.id.lock() = JournalId(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_holds_for_one_boot_until_it_is_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let open = |boot: &str| Journal::open(folder.path().join("journal"), boot.to_owned()).unwrap();
        let first = open("one").id();
        assert_eq!(open("one").id(), first);
        let journal = open("one");
        journal.renew().unwrap();
        assert_ne!(journal.id(), first);
        assert_eq!(open("one").id(), journal.id());
        assert_ne!(open("two").id(), journal.id());
        assert_ne!(open("").id(), open("").id(), "a boot without a name is never the same");
        fs::write(folder.path().join("journal"), "one\nnonsense\n").unwrap();
        assert_ne!(open("one").id(), JournalId::NONE);
    }
}
