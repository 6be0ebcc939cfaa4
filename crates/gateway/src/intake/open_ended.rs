//! What a sender may send that does not tell how much it will be: [`OpenEnded`].
//!
//! A length that is told is weighed once, when the upload begins. One that is not told is weighed again and again while bytes come: the
//! spool promises the next few MiB of the device's share and of the disk, so that several such uploads together do not exceed them, and none
//! of them keeps more from others than its next step.

use super::admission::Admission;
use crate::core::blocking::blocking;
use crate::core::problems::{full_problem, store_problem};
use hoop_http::{Code, Problem};
use hoop_spool::Intake;
use std::sync::Arc;

/// The limit of one sender.
pub struct OpenEnded(Arc<Admission>);

impl OpenEnded {
    /// Of a sender that has brought nothing yet.
    pub fn new(admission: &Arc<Admission>) -> Self {
        Self(admission.clone())
    }

    /// Up to where this sender may write, which wants to write `len` bytes at `at`.
    ///
    /// # Errors
    /// `too-large`; `spool-full`, if the upload's device or all devices together have as much as they may.
    pub async fn limit(&self, intake: &Intake, at: u64, len: u64) -> Result<u64, Problem> {
        let longest = self.0.max_upload_bytes;
        if at + len > longest {
            return Err(Problem::new(Code::TooLarge, format!("this gateway takes {longest} bytes at most")));
        }
        let intake = intake.another();
        let promise = blocking(&self.0, move |admission| admission.promise_next(&intake));
        let promised = promise.await.map_err(|error| store_problem(&error))?;
        match promised >= len {
            true => Ok(longest.min(at + promised)),
            false => Err(full_problem("one device has as many bytes here as it may, or the disk is full")),
        }
    }
}
