//! Files and folders for their owner alone.
//!
//! What a role keeps (keys, tokens, sealed bodies, who sent what to where) is nobody else's business, and nobody else may replace it or take its locks. So:
//!
//! - [`private_umask`]: what a process makes is for its owner alone, also where nobody thought of it.
//! - [`folder`]: a folder that is made, or found, is the caller's alone (0700). A wider one is narrowed, with all that is in it, and the log says so. One in
//!   which others may have put or may replace things is refused.
//! - [`create`], [`open`], [`lock`], [`touch`]: a file for its owner alone (0600), never through a link that somebody put in its place.
//! - [`open_plain`], [`read_plain`]: a file in a folder of ours, never through a link, nor anything else that is no plain file.
//! - [`replace`]: a file that is written anew, whole or not at all.
//! - [`space`]: what the file system has left.
//! - [`Print`]: whether a file is still the one that was read.
//! - [`settled`]: whether a file that people write is whole, and not empty; [`line_at`]: where its mistake is.
//!
//! The judgement is pure ([`judge`]); modes are Unix's. On other systems folders and files are made, and their access rights are the system's.

mod folder;
mod judgement;
mod plain;
mod print;
mod private_file;
mod replace;
mod settled;
mod space;

pub use folder::{FolderError, folder};
pub use judgement::{Facts, Refusal, Verdict, judge};
pub use plain::{NotPlain, is_not_plain, open_plain, read_plain};
pub use print::Print;
pub use private_file::{Lock, LockError, create, lock, open, touch};
pub use replace::{beside, create_new, parent, replace, replace_by};
pub use settled::{line_at, settled};
pub use space::{Space, space};

/// Folders are made with this mode.
pub const FOLDER_MODE: u32 = 0o700;

/// Files are made with this mode.
pub const FILE_MODE: u32 = 0o600;

/// Whatever this process makes from now on is for its owner alone, and so is what its children make.
pub fn private_umask() {
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}
