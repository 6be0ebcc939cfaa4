//! Uploads by their ids: [`known`].

use crate::access::cors::Page;
use crate::core::problems::store_problem;
use crate::core::state::Core;
use hoop_http::{Code, Problem};
use hoop_spool::Upload;
use hoop_units::UploadId;
use std::sync::Arc;

/// What is recorded of the upload that `field` of a request names, for whoever may know it.
///
/// # Errors
/// `request-invalid`, `upload-unknown`; `origin-forbidden` for a page of another origin.
pub async fn known(core: &Arc<Core>, page: Option<&Page>, id: &str, field: &str) -> Result<Upload, Problem> {
    let id: UploadId = id.parse().map_err(|error| Problem::new(Code::RequestInvalid, error).field(field))?;
    let upload = core.looks.blocking(core, move |core| core.spool.get(id)).await;
    let upload = upload.map_err(|error| store_problem(&error))?;
    let upload = upload.ok_or_else(|| Problem::new(Code::UploadUnknown, format_args!("{id}")).field(field))?;
    page.map_or(Ok(()), |page| page.check_upload(&upload.dest))?;
    Ok(upload)
}
