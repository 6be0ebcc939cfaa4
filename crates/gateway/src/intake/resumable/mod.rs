//! Resumable uploads as the IETF draft has them (draft-ietf-httpbis-resumable-upload), for clients that know nothing of Hoop but
//! where to send.
//!
//! The draft knows an upload by a URL, its *upload resource*, that the client is given before the first byte has come; and lets
//! parts end anywhere. So each resource has a random token, and a row in the spool's index that leads to the upload once the prelude has
//! come, and that keeps what has come of a record which is not whole yet. Whole records go where those of every upload go.
//! `docs/protocol.md` §6 says what is spoken.
//!
//! - [`fields`] reads the draft's header fields.
//! - [`standing`] says how far an upload is, as its client sees it.
//! - [`refusal`] is what the draft wants said when a request is refused.
//! - [`append`] takes a part.
//! - [`handler`] answers requests.

pub mod append;
pub mod fields;
pub mod handler;
pub mod refusal;
pub mod standing;
