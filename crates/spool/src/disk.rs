//! The folder's disk: what is written and synced, checksums of records, and the folder's lock.

pub mod checksums;
pub mod lock;
pub mod sys;
