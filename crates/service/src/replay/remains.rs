//! What is left of a body that a disk has damaged: [`left`].

use crate::context::Context;
use crate::model::{State, Upload};
use crate::policy::admit::Admission;
use crate::store::Sealed;
use hoop_seal::Prelude;
use hoop_units::{ByteRange, RangeSet, UploadId};
use std::io;
use std::sync::Arc;

/// Whether a body ends before its upload. Blocking.
pub fn is_short(body: &dyn Sealed, upload: &Upload) -> bool {
    let last = upload.total.saturating_sub(1);
    body.read_at(&mut [0], last).is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
}

/// The parts of a whole upload that can still be read: the prelude, and the records that open. None: all of it. A body that
/// has gone is begun anew. Blocking.
///
/// # Errors
/// If the disk fails, or the upload's keys have gone, in words.
pub fn left(context: &Context, upload: &Upload) -> Result<Option<RangeSet>, String> {
    let prelude = Prelude::parse(&upload.prelude).map_err(|error| error.to_string())?;
    let admission = Admission::new(&context.policy(), prelude, upload.total).map_err(|problem| problem.to_string())?;
    let failed = |error: io::Error| error.to_string();
    let body = match context.store.bodies().open(upload.id) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => begun_anew(context, upload.id),
        opened => opened,
    };
    let body = body.map_err(failed)?;
    let mut left: RangeSet = [ByteRange::new(0, upload.prelude.len() as u64)].into_iter().collect();
    let mut record = Vec::new();
    for index in 0..admission.layout.records() {
        let range = admission.layout.record(index);
        record.resize(range.len() as usize, 0);
        match body.read_at(&mut record, range.start) {
            Ok(()) if admission.open(index, &mut record).is_ok() => left.insert(range),
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(failed(error)),
        }
    }
    if left.missing(upload.total).next().is_none() {
        return Ok(None);
    }
    body.write_at(&upload.prelude, 0).map_err(failed)?;
    body.sync().map_err(failed)?;
    Ok(Some(left))
}

/// A new body in place of one that has gone, unless it has gone because its upload is over.
fn begun_anew(context: &Context, id: UploadId) -> io::Result<Arc<dyn Sealed>> {
    let body = context.store.bodies().create(id)?;
    // Looked at once the body is there: whoever ends the upload from now on deletes it.
    match context.store.load_now(id) {
        Ok(Some(Upload { state: State::Received | State::Replaying, .. })) | Err(_) => Ok(body),
        Ok(_) => {
            context.store.bodies().remove(id)?;
            Err(io::ErrorKind::NotFound.into())
        }
    }
}
