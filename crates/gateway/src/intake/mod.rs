//! Taking uploads from devices: the request, its body on the way to the file, checkpoints and commits, quotas, and resumable uploads.

pub mod admission;
pub mod body_reader;
pub mod body_writer;
pub mod checkpoints;
pub mod commit;
pub mod open_ended;
pub mod quotas;
pub mod receive;
pub mod refusals;
pub mod request;
pub mod resource_lock;
pub mod resumable;
pub mod state;
