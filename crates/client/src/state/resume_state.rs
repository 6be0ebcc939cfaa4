//! What a later process needs to seal the same upload again: [`ResumeState`], a part of its record.
//!
//! The ticket, the salt, and the plaintext in runs: bytes as they are, and files by path and identity. A file that is not the very one
//! that was measured is a clear error; what no time or length tells, the tags do ([`SealGuard`](crate::seal::seal_guard::SealGuard)).

use crate::request::plaintext::Plaintext;
use crate::request::source::{Identity, Segment, SourceError};
use crate::seal::seal_guard::boot;
use crate::ticket::{IssuedTicket, TicketsDocument};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_seal::SALT_LEN;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The most bytes of a plaintext that are kept in a record: heads and text fields, not files given as bytes.
const BYTES_MAX: usize = 256 * 1024;

/// How to seal an upload again. Has its ticket's secrets; `Debug` shows none.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ResumeState {
    ticket: serde_json::Value,
    salt: String,
    runs: Vec<Run>,
    /// The run of the machine in which it was begun.
    boot: String,
}

/// One run of the plaintext.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Run {
    /// In base64url.
    Octets(String),
    /// A file, which must still be the same.
    File { path: PathBuf, identity: Identity },
}

/// An upload cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// Nothing was kept to go on with.
    #[error("not enough of it was kept: {0}")]
    NotKept(&'static str),
    /// The machine was restarted since, and what was sealed may have been forgotten.
    #[error("this machine was restarted since it was begun")]
    Restarted,
    /// Another process seals it now.
    #[error("another process is at it now")]
    InUse,
}

impl ResumeState {
    /// Of an upload that is being begun; `None` if a later process could not have its plaintext.
    pub(crate) fn of(ticket: &IssuedTicket, salt: &[u8; SALT_LEN], plaintext: &Plaintext) -> Option<Self> {
        let mut len = 0;
        let mut runs = Vec::new();
        for segment in plaintext.segments() {
            runs.push(match segment {
                Segment::Bytes(bytes) => {
                    len += bytes.len();
                    Run::Octets(URL_SAFE_NO_PAD.encode(bytes))
                }
                Segment::File(opened) => {
                    let (path, identity) = opened.identity()?;
                    Run::File { path, identity }
                }
            });
        }
        let ticket = serde_json::to_value(TicketsDocument::of(ticket)).ok()?;
        (len <= BYTES_MAX).then_some(Self { ticket, salt: URL_SAFE_NO_PAD.encode(salt), runs, boot: boot()? })
    }

    /// The ticket and the salt, if the machine has not been restarted since.
    pub(crate) fn ticket(&self) -> Result<(IssuedTicket, [u8; SALT_LEN]), ResumeError> {
        if boot().as_ref() != Some(&self.boot) {
            return Err(ResumeError::Restarted);
        }
        let damaged = ResumeError::NotKept("its record is damaged");
        let document: Option<TicketsDocument> = serde_json::from_value(self.ticket.clone()).ok();
        let ticket = document.and_then(|document| document.check().ok()?.pop());
        let salt = URL_SAFE_NO_PAD.decode(&self.salt).ok().and_then(|salt| salt.try_into().ok());
        ticket.zip(salt).ok_or(damaged)
    }

    /// The plaintext, from the files as they were.
    ///
    /// # Errors
    /// If one cannot be read or is not as it was.
    pub(crate) fn plaintext(&self) -> Result<Plaintext, SourceError> {
        let mut plaintext = Plaintext::default();
        for run in &self.runs {
            plaintext.push(match run {
                Run::Octets(text) => Segment::Bytes(URL_SAFE_NO_PAD.decode(text).unwrap_or_default().into()),
                Run::File { path, identity } => Segment::reopen(path, identity)?,
            });
        }
        Ok(plaintext)
    }
}

impl std::fmt::Debug for ResumeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResumeState").finish_non_exhaustive()
    }
}

impl PartialEq for ResumeState {
    fn eq(&self, other: &Self) -> bool {
        (&self.salt, &self.runs, &self.boot) == (&other.salt, &other.runs, &other.boot) && self.ticket == other.ticket
    }
}

impl Eq for ResumeState {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::plaintext::tests::read_all;
    use crate::request::source::Content;
    use crate::ticket::tests::issued;

    fn plaintext(path: &std::path::Path) -> Plaintext {
        let mut plaintext = Plaintext::default();
        plaintext.push(Segment::Bytes("head".into()));
        plaintext.push(Segment::open(&Content::File(path.to_owned())).unwrap());
        plaintext
    }

    #[test]
    fn the_same_plaintext_is_had_again_through_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "file").unwrap();
        let state = ResumeState::of(&issued(1, 9), &[5; 16], &plaintext(&path)).unwrap();
        let again: ResumeState = serde_json::from_slice(&serde_json::to_vec(&state).unwrap()).unwrap();
        assert_eq!(read_all(&again.plaintext().unwrap()), b"headfile");
        let (ticket, salt) = again.ticket().unwrap();
        assert_eq!((ticket.id, ticket.token, salt), (issued(1, 9).id, issued(1, 9).token, [5; 16]));
        assert!(!format!("{state:?}").contains(&issued(1, 9).token));
    }

    #[test]
    fn a_file_that_was_touched_replaced_or_removed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let changes: [&dyn Fn(); 4] = [
            &|| std::fs::File::options().append(true).open(&path).unwrap().set_len(5).unwrap(),
            &|| {
                // The same bytes, length and modification time, in another file.
                let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
                let other = folder.path().join("b");
                std::fs::write(&other, "file").unwrap();
                std::fs::File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
                std::fs::rename(other, &path).unwrap();
            },
            &|| {
                // The same file and length, and the modification time set back.
                let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, b"FILE", 0).unwrap();
                file.set_modified(modified).unwrap();
            },
            &|| std::fs::remove_file(&path).unwrap(),
        ];
        for (number, change) in changes.iter().enumerate() {
            std::fs::write(&path, "file").unwrap();
            let state = ResumeState::of(&issued(1, 9), &[5; 16], &plaintext(&path)).unwrap();
            assert!(state.plaintext().is_ok());
            change();
            let error = state.plaintext().unwrap_err();
            assert!(error.to_string().contains(&path.display().to_string()), "{number}: {error}");
        }
    }

    #[test]
    fn an_upload_begun_before_the_machine_restarted_is_not_resumed() {
        let mut state = ResumeState::of(&issued(1, 9), &[5; 16], &Plaintext::default()).unwrap();
        state.boot = "another".into();
        assert!(matches!(state.ticket(), Err(ResumeError::Restarted)));
    }

    #[test]
    fn what_has_no_name_or_is_too_much_is_not_kept() {
        let mut pipe = Plaintext::default();
        pipe.push(Segment::spooled(&b"from a pipe"[..]));
        assert!(ResumeState::of(&issued(1, 9), &[5; 16], &pipe).is_none());
        let mut long = Plaintext::default();
        long.push(Segment::Bytes(vec![0; BYTES_MAX + 1].into()));
        assert!(ResumeState::of(&issued(1, 9), &[5; 16], &long).is_none());
    }
}
