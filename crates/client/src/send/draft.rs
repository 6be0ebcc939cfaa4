//! An upload without its ticket (`docs/protocol.md` §6, early records): [`Draft`], of which only record 0 is open, and [`Sending`], its
//! records on their way to the gateway.
//!
//! The device draws K and salt, and predicts the rest: the post URL, the length of T and so where each record lies. A ticket
//! that is otherwise ends the draft, and the upload begins anew under another K. So no record is ever sealed twice from
//! different bytes: the draft refuses to seal record 0, and is gone once it has been completed.

use crate::config::ClientConfig;
use crate::gateway::identity::Witness;
use crate::request::upload::{Measured, Upload};
use crate::seal::seal_guard::SealGuard;
use crate::seal::sealed::Sealed;
use crate::send::transfer::{Held, OnBreak, OnSent, Transfer, TransferError};
use crate::ticket::IssuedTicket;
use crate::ticket::target::Target;
use crate::wire::Link;
use bytes::Bytes;
use hoop_http::{Origin, Rng};
use hoop_seal::{ContentKey, Prelude, RECORD_SIZE, SALT_LEN, Suite, TICKET_LEN, UploadKey, token_len};
use hoop_units::RangeSet;
use http::Response;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::task::JoinHandle;
use url::Url;

/// Uploads with fewer records wait for their ticket: sending them takes less time than a second request.
const RECORDS_MIN: u64 = 4;

/// An upload without its ticket.
pub(crate) struct Draft {
    key: UploadKey,
    salt: [u8; SALT_LEN],
    suite: Suite,
    post: Url,
    measured: Measured,
    /// The length of T, in base64url.
    token_len: usize,
    /// All but record 0.
    sealed: Arc<Sealed>,
}

impl Draft {
    /// A draft, if the upload has records enough.
    #[cfg(test)]
    pub(crate) fn new(key: UploadKey, suite: Suite, upload: &Upload, measured: &Measured) -> Option<Self> {
        Self::with_guard(key, suite, upload, measured, SealGuard::default)
    }

    /// The same, where what was sealed is remembered there; `tags` is asked only if something will be.
    pub(crate) fn with_guard(
        key: UploadKey,
        suite: Suite,
        upload: &Upload,
        measured: &Measured,
        guard: impl FnOnce() -> SealGuard,
    ) -> Option<Self> {
        let post = format!("{}/hoop/post", upload.origin().ok()?).parse().ok()?;
        let credentials = [&upload.credentials.cookie, &upload.credentials.authorization];
        let credentials_len: usize = credentials.into_iter().flatten().map(|value| value.as_bytes().len()).sum();
        let token_len = (token_len(credentials_len) * 4).div_ceil(3);
        let salt = Rng.bytes();
        // Nothing of these two is ever sealed or sent: they have the right lengths.
        let plaintext = measured.clone().into_plaintext(&"-".repeat(token_len)).ok()?;
        let prelude = Prelude::new(salt, RECORD_SIZE, &[0; TICKET_LEN]).expect("a ticket is shorter than a key id");
        let sealed = Sealed::early(prelude, ContentKey::new(suite, &key, &salt), plaintext).ok()?;
        let measured = measured.clone();
        let sealed = Some(sealed).filter(|sealed| sealed.layout().records() >= RECORDS_MIN)?;
        let sealed = Arc::new(sealed.with_guard(guard()));
        Some(Self { key, salt, suite, post, measured, token_len, sealed })
    }

    /// The length of Z.
    pub(crate) fn total(&self) -> u64 {
        self.sealed.layout().total()
    }

    /// The service's origin, if the ticket is as predicted.
    pub(crate) fn service(&self) -> Option<Origin> {
        Origin::of(&self.post).ok()
    }

    /// Whether `ticket` is for the same key, and so for the same id.
    pub(crate) fn shares_key(&self, ticket: &IssuedTicket) -> bool {
        ticket.key == self.key || ticket.id == self.key.upload_id()
    }

    /// The whole upload; `None` if the ticket is not as it was predicted.
    pub(crate) fn complete(self, ticket: &IssuedTicket) -> Option<Sealed> {
        let as_predicted = ticket.id == self.key.upload_id()
            && ticket.key == self.key
            && ticket.suite == self.suite
            && ticket.post == self.post
            && ticket.ticket.len() == TICKET_LEN
            && ticket.token.len() == self.token_len;
        if !as_predicted {
            return None;
        }
        let plaintext = self.measured.into_plaintext(&ticket.token).ok()?;
        let prelude = Prelude::new(self.salt, RECORD_SIZE, &ticket.ticket).ok()?;
        let sealed = Sealed::new(prelude, ContentKey::new(self.suite, &self.key, &self.salt), plaintext).ok()?;
        (sealed.layout() == self.sealed.layout()).then(|| sealed.completing(&self.sealed))
    }
}

/// What became of them: everything is stored, or `None` if something is missing still.
pub(crate) type SentEarly = Result<Option<Response<Bytes>>, TransferError>;

/// The records of a draft on their way; given up when dropped.
pub(crate) struct Sending(JoinHandle<(Link, SentEarly)>);

impl Sending {
    /// Sends all of `draft` over `link`, once.
    pub(crate) fn begin(
        draft: &Draft,
        mut link: Link,
        config: ClientConfig,
        held: Held,
        witness: Option<Witness>,
        (on_sent, on_break): (OnSent, OnBreak),
    ) -> Self {
        let (sealed, id) = (draft.sealed.clone(), draft.key.upload_id());
        let target = Target::Gateway { dest: draft.post.clone(), permit: None, deadline: None };
        Self(tokio::spawn(async move {
            let (range, patience) = (sealed.after_first(), config.gateway_patience);
            let (config, link_too, elsewhere) = (&config, &mut link, RangeSet::new());
            let transfer = Transfer {
                config,
                link: link_too,
                target,
                id,
                sealed,
                elsewhere,
                held,
                patience,
                witness,
                on_sent,
                on_break,
            };
            let end = transfer.once(range).await;
            (link, end)
        }))
    }

    /// Whether it has come to its end.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// Its end, and its connection; `None` if it broke down.
    pub(crate) async fn end(&mut self) -> Option<(Link, SentEarly)> {
        (&mut self.0).await.ok()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Adds up what two connections have sent.
pub(crate) fn added_up(on_sent: OnSent) -> [OnSent; 2] {
    let sums = Arc::new(Mutex::new([0; 2]));
    [0, 1].map(|slot| {
        let (sums, on_sent) = (sums.clone(), on_sent.clone());
        let add: OnSent = Arc::new(move |sent| {
            // Held while it is told, so that nobody is told less than before.
            let mut sums = sums.lock();
            sums[slot] = sent;
            on_sent(sums.iter().sum());
        });
        add
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Payload;
    use crate::request::source::Content;
    use crate::ticket::tests::issued;
    use hoop_units::ByteRange;

    fn upload(len: usize) -> Upload {
        let content = vec![Content::Bytes(vec![7; len].into())];
        let mut upload =
            Upload::new("https://photos.example/a?j".parse().unwrap(), Payload::Data { content, content_type: None });
        upload.credentials.cookie = Some(http::HeaderValue::from_static("session=s3cret"));
        upload
    }

    fn draft(len: usize) -> Option<Draft> {
        let upload = upload(len);
        Draft::new(UploadKey([3; 32]), Suite::Aes256Gcm, &upload, &upload.measure(Rng).unwrap())
    }

    /// The ticket that the service would issue for the draft.
    fn ticket() -> IssuedTicket {
        let key = UploadKey([3; 32]);
        // T of 256 + 33 bytes.
        IssuedTicket { id: key.upload_id(), key, token: "T".repeat(386), ..issued(1, 9) }
    }

    #[test]
    fn a_completed_draft_has_the_records_that_went_ahead_of_it() {
        let draft = draft(300_000).unwrap();
        let early = draft.sealed.clone();
        let whole = draft.complete(&ticket()).unwrap();
        let records = whole.layout().records();
        assert_eq!(early.after_first(), ByteRange::new(128 + 65_536, whole.layout().total()));
        assert!(early.read(1, records, false).unwrap() == whole.read(1, records, false).unwrap());
        let first = whole.read(0, 1, true).unwrap();
        assert_eq!(first[..128], whole.prelude().encode()[..]);
    }

    #[test]
    #[should_panic(expected = "record 0 is sealed only once it is known")]
    fn a_draft_does_not_seal_record_0() {
        let _ = draft(300_000).unwrap().sealed.read(0, 1, false);
    }

    #[test]
    fn a_ticket_that_is_not_as_predicted_completes_nothing() {
        let other = UploadKey([4; 32]);
        let wrong = [
            IssuedTicket { id: other.upload_id(), ..ticket() },
            IssuedTicket { key: other.clone(), ..ticket() },
            IssuedTicket { suite: Suite::Aes128Gcm, ..ticket() },
            IssuedTicket { post: "https://photos.example/post".parse().unwrap(), ..ticket() },
            IssuedTicket { post: "https://other.example/hoop/post".parse().unwrap(), ..ticket() },
            IssuedTicket { token: "T".repeat(385), ..ticket() },
        ];
        for ticket in wrong {
            let draft = draft(300_000).unwrap();
            assert!(draft.shares_key(&ticket), "its key must not be used again");
            assert!(draft.complete(&ticket).is_none());
        }
        let elsewhere = IssuedTicket { id: other.upload_id(), key: other, ..ticket() };
        assert!(!draft(300_000).unwrap().shares_key(&elsewhere));
    }

    #[test]
    fn an_upload_of_few_records_waits_for_its_ticket() {
        assert!(draft(100_000).is_none());
        assert!(draft(4 * 65_519).is_some());
    }
}
