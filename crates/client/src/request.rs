//! The request that is uploaded: [`upload`] says what it is, [`multipart`] lays a form out, [`source`] opens files, [`plaintext`] joins the
//! pieces, and [`pieces`] tells how a body was put together.

pub(crate) mod multipart;
pub(crate) mod pieces;
pub(crate) mod plaintext;
pub(crate) mod source;
pub(crate) mod upload;
