//! How programs are spoken to: [`http1`].

use crate::forward::{FIELDS, HEAD_BYTES};
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use std::time::Duration;

/// How long a request's head may take to come, and a connection may rest between two requests: as long as browsers keep theirs for the next one.
const HEAD_TIME: Duration = Duration::from_secs(60);

/// How HTTP/1.1 is spoken with programs.
pub(crate) fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .preserve_header_case(true)
        .title_case_headers(true)
        .half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .max_headers(FIELDS);
    builder
}
