//! What is said of an upload, whether or not anything of it has come: [`Marked`].

use super::{Note, Payer, Tag};
use hoop_http::Code;
use hoop_units::{UnixTime, UploadId};

/// What is known of an upload from its device or owner alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marked {
    /// Its name.
    pub id: UploadId,
    /// Whose it is, by its token.
    pub owner: Tag,
    /// Who pays for it. None: an older version has written it.
    pub payer: Option<Payer>,
    /// What its device says of it.
    pub note: Option<Note>,
    /// When it was first heard of.
    pub created: UnixTime,
    /// The ticket's end.
    pub expires: UnixTime,
    /// Paused before anything of it has come.
    pub paused: bool,
    /// Stopped before anything of it has come.
    pub stopped: bool,
}

impl Marked {
    /// An upload of which only the owner is known.
    pub const fn new(id: UploadId, owner: Tag, payer: Payer, created: UnixTime, expires: UnixTime) -> Self {
        Self { id, owner, payer: Some(payer), note: None, created, expires, paused: false, stopped: false }
    }

    /// Why nothing of it may come, if its owner has stopped or paused it.
    pub const fn refusal(&self) -> Option<Code> {
        match (self.stopped, self.paused) {
            (true, _) => Some(Code::UploadStopped),
            (false, true) => Some(Code::UploadPaused),
            (false, false) => None,
        }
    }
}
