//! What a power cut leaves of a folder: a program's writes and syncs, recorded ([`Recorder`]) and cut anywhere ([`Journal::cut`]).
//!
//! `kill -9` leaves the page cache as it is, so a test that kills notices no missing sync. Here a real program runs with a small library
//! before libc (`shim/shim.c`), which notes each write, new name and sync below a folder, in order and with the bytes; so SQLite's files are
//! recorded like all others. A cut at record *k* builds a folder anew in which
//!
//! - everything is there that was synced: of a file, what was written before a sync began that returned before the cut; of names (made,
//!   renamed, removed), those whose folder was synced so;
//! - of the rest anything may be there: any of the later writes, in sectors of 512 bytes, in any order; lengths grown without their bytes; any
//!   of the later names, or as many as came first.
//!
//! What a program told others is a note in the same journal ([`note`], [`Recorder::note`]), so a test knows what must be there at each cut.
//!
//! Not in the model: a disk that says that it has synced and has not, or that loses what it had; sectors torn within themselves. The files that SQLite shares by
//! memory (`-shm`) are left out, since SQLite makes them anew; any other file that is written by a mapping, and what else the library cannot follow, fails the test.

mod disk;
mod journal;
mod record;
mod recorder;
mod trial;

pub use disk::Rules;
pub use journal::{Journal, JournalError};
pub use record::Record;
pub use recorder::{Recorder, note};
pub use trial::{Trial, folder, number_of, seed, victim};
