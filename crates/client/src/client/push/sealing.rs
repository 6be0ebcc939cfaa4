//! From an upload and its ticket to Z and its record: [`seal`], [`record`].

use crate::client::error::PushError;
use crate::request::upload::{Measured, Upload};
use crate::seal::seal_guard::SealGuard;
use crate::seal::sealed::Sealed;
use crate::state::store::{SecretText, UploadRecord};
use crate::ticket::IssuedTicket;
use crate::wire::status::State;
use hoop_http::Rng;
use hoop_seal::{ContentKey, Prelude, RECORD_SIZE};
use std::collections::BTreeMap;
use url::Url;

/// Opens and measures on a thread that may block: pipes are copied.
pub(super) async fn measure(upload: &Upload) -> Result<Measured, PushError> {
    let upload = upload.clone();
    let measured = tokio::task::spawn_blocking(move || upload.measure(Rng)).await;
    Ok(measured.map_err(|_| PushError::Internal("reading the files panicked"))??)
}

pub(super) fn seal(ticket: &IssuedTicket, measured: Measured, guard: SealGuard) -> Result<Sealed, PushError> {
    let plaintext = measured.into_plaintext(&ticket.token)?;
    let prelude = Prelude::new(Rng.bytes(), RECORD_SIZE, &ticket.ticket).expect("a ticket is shorter than a key id");
    let key = ContentKey::new(ticket.suite, &ticket.key, prelude.salt());
    let len = plaintext.len();
    let sealed =
        Sealed::new(prelude, key, plaintext).map_err(|_| PushError::TooLarge { len, max: ticket.max_bytes })?;
    within_limit(sealed.with_guard(guard), ticket)
}

pub(super) fn within_limit(sealed: Sealed, ticket: &IssuedTicket) -> Result<Sealed, PushError> {
    match sealed.layout().total() {
        total if total > ticket.max_bytes => Err(PushError::TooLarge { len: total, max: ticket.max_bytes }),
        _ => Ok(sealed),
    }
}

pub(super) fn record(upload: &Upload, ticket: &IssuedTicket, bytes: u64, total: u64, now: u32) -> UploadRecord {
    let mut url = upload.url.clone();
    url.set_query(None);
    url.set_fragment(None);
    UploadRecord {
        id: ticket.id.to_hex(),
        key: SecretText::of(&ticket.key),
        url: url.to_string(),
        dest: ticket.post.to_string(),
        uploads: uploads_of(&ticket.post).to_string(),
        gateway: None,
        monitor: None,
        name: upload.label(),
        bytes,
        total,
        created: now,
        expires: ticket.expires.as_secs(),
        state: State::Receiving.name().to_owned(),
        finished: false,
        denied: Vec::new(),
        held: BTreeMap::new(),
        deadline: None,
        permits: BTreeMap::new(),
        token: Some(SecretText::new(&ticket.token)),
        resume_state: None,
    }
}

/// The uploads resource stands beside the post resource (`docs/protocol.md` section 7).
fn uploads_of(post: &Url) -> Url {
    post.join("uploads").expect("a relative path joins any http URL")
}
