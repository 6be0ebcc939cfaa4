//! What a server may do to its machine: [`Powers`]. Which [`user`] it is, and which files it may touch ([`confine`]).

mod confine;
mod user;

use crate::base::exit::Failure;
use std::path::Path;
pub use user::give_up_ports;

/// What the flags say of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Powers {
    user: Option<String>,
    is_confined: bool,
}

impl Powers {
    /// `--user`, and whether `--no-landlock` was given.
    pub fn new(user: Option<String>, no_landlock: bool) -> Self {
        Self { user, is_confined: !no_landlock }
    }

    /// Becomes the user, if one is named. Before anything is opened, and before there is a second thread.
    ///
    /// # Errors
    /// See [`user::become_user`].
    pub fn take_user(&self, state: Option<&Path>) -> Result<(), Failure> {
        user::become_user(self.user.as_deref(), state)
    }

    /// Keeps the process to its own files, if that was not forbidden. Before there is a second thread.
    pub fn confine(&self, state: Option<&Path>, named: &[&Path]) {
        if self.is_confined {
            confine::confine(state, named);
        }
    }

    /// Which flags have another value in `now`: only a restart takes them over.
    pub fn waiting(&self, now: &Self) -> Vec<&'static str> {
        let differ = [("user", self.user != now.user), ("no-landlock", self.is_confined != now.is_confined)];
        differ.into_iter().filter(|(_, differs)| *differs).map(|(flag, _)| flag).collect()
    }
}
