//! The folder's disk: what is written and synced, checksums of records, the files that uploads share, and the folder's lock.

pub mod checksums;
pub mod lock;
pub mod segments;
pub mod sys;
