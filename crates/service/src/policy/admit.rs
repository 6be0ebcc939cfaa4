//! Whether an upload may come in: [`Admission`] from its prelude, [`inspect`] for what record 0 says. Pure: the time
//! comes in.

use crate::model::{Credentials, Facts};
use crate::policy::head::RequestHead;
use crate::policy::{Policy, owner};
use hoop_http::{Code, Problem};
use hoop_seal::{ContentKey, Layout, OpenError, Prelude, RECORD_SIZE, Ticket, TokenError};
use hoop_timekeeper::Over;
use hoop_units::{UnixTime, UploadId};
use std::time::Duration;

/// How far clocks may be off (`docs/protocol.md` §2).
pub const GRACE_SECS: u32 = 300;

/// An upload whose ticket opened and whose length fits.
pub struct Admission {
    /// Everything before the records.
    pub prelude: Prelude,
    /// The ticket.
    pub ticket: Ticket,
    /// Where each record lies.
    pub layout: Layout,
    /// Opens the records.
    pub key: ContentKey,
}

impl Admission {
    /// Checks what can be known from the prelude and the length of Z alone. Times are [`Admission::check_time`]'s.
    ///
    /// # Errors
    /// `body-not-sealed`, `ticket-foreign` or `too-large`.
    pub fn new(policy: &Policy, prelude: Prelude, total: u64) -> Result<Self, Problem> {
        if prelude.record_size() != RECORD_SIZE {
            let detail = format!("the record size must be {RECORD_SIZE}, not {}", prelude.record_size());
            return Err(Problem::new(Code::BodyNotSealed, detail));
        }
        let ticket = policy.keys.open_ticket(&policy.origin, prelude.key_id());
        let ticket = ticket.map_err(|error| Problem::new(Code::TicketForeign, error))?;
        let limit = ticket.grant.max_bytes.min(policy.max_bytes);
        if total > limit {
            return Err(Problem::new(Code::TooLarge, format!("{total} bytes, and at most {limit} are taken")));
        }
        let layout = Layout::for_total(prelude.len(), prelude.record_size(), total);
        let layout = layout.map_err(|error| Problem::new(Code::BodyNotSealed, error))?;
        let key = ContentKey::new(ticket.grant.suite, &ticket.grant.key, prelude.salt());
        Ok(Self { prelude, ticket, layout, key })
    }

    /// The upload's name.
    pub const fn id(&self) -> UploadId {
        self.ticket.label.upload_id
    }

    /// Whether an upload that is first seen now comes in the ticket's time: what ends outside `over` has certainly not had its time, and no ticket
    /// was issued after `peak`, the latest time that it ever was here. A ticket of a time when the clock was ahead is this service's all the same,
    /// until it has had its time.
    ///
    /// # Errors
    /// `ticket-early` or `ticket-expired`.
    pub fn check_time(&self, over: Over, peak: UnixTime) -> Result<(), Problem> {
        in_time(self.ticket.grant.not_before, self.ticket.label.expires, over, peak)
    }

    /// Opens record `index` in place: its plaintext.
    ///
    /// # Errors
    /// `record-corrupt`, naming the record.
    pub fn open<'a>(&self, index: u64, record: &'a mut [u8]) -> Result<&'a mut [u8], Problem> {
        let expected = self.layout.plaintext(index).len();
        let opened = self.key.open(index, self.layout.is_last(index), record);
        let plaintext = opened.map_err(|error: OpenError| corrupt(index, error))?;
        match plaintext.len() as u64 == expected {
            true => Ok(plaintext),
            false => Err(corrupt(index, format_args!("record {index} is padded, and no padding is taken"))),
        }
    }
}

/// [`Admission::check_time`] of a ticket with these times.
///
/// # Errors
/// `ticket-early` or `ticket-expired`.
pub fn in_time(not_before: UnixTime, expires: UnixTime, over: Over, peak: UnixTime) -> Result<(), Problem> {
    if peak.plus_secs(GRACE_SECS) < not_before {
        let wait = not_before.since(peak);
        let detail = format!("it is valid in {wait} s; is a clock wrong?");
        return Err(Problem::new(Code::TicketEarly, detail).retry_after(Duration::from_secs(wait.into())));
    }
    if over.before > expires.plus_secs(GRACE_SECS) {
        return Err(Problem::new(Code::TicketExpired, format!("since {} s", over.before.since(expires))));
    }
    match expires > over.after {
        true => Err(Problem::new(Code::TicketExpired, "it was issued while the clock was ahead, and has had its time")),
        false => Ok(()),
    }
}

fn corrupt(index: u64, detail: impl std::fmt::Display) -> Problem {
    Problem::new(Code::RecordCorrupt, detail).field(format!("record {index}"))
}

/// Checks what record 0 says: head, length, token, route and the route's limit. `begun` is when the upload was first
/// seen.
///
/// # Errors
/// The code of what is wrong.
pub fn inspect(
    policy: &Policy,
    admission: &Admission,
    record: &[u8],
    begun: UnixTime,
) -> Result<(RequestHead, Credentials, Facts), Problem> {
    let head = RequestHead::parse(record, admission.layout.plaintext_len())?;
    let credentials = open_token(policy, admission.id(), &head.token)?;
    if begun.0 > credentials.expires.saturating_add(GRACE_SECS) {
        return Err(Problem::new(Code::TokenInvalid, "it has expired").field("Hoop-Token"));
    }
    if !admission.ticket.grant.route.fits(&head.method, &head.target) {
        let detail = format!("it is not for {} {}", head.method, head.path());
        return Err(Problem::new(Code::RouteMismatch, detail));
    }
    let (total, limit) = (admission.layout.total(), policy.routes.of(&head.method, head.path()).max_bytes);
    if let Some(limit) = limit.filter(|limit| total > *limit) {
        return Err(Problem::new(Code::TooLarge, format!("{total} bytes, and this route takes {limit} at most")));
    }
    let owner = owner::of(policy, &credentials);
    let facts = Facts { method: head.method.clone(), path: head.path().to_owned(), owner };
    Ok((head, credentials, facts))
}

/// Opens T.
///
/// # Errors
/// `token-invalid` or `token-mismatch`.
pub fn open_token(policy: &Policy, id: UploadId, token: &[u8]) -> Result<Credentials, Problem> {
    let content = policy.keys.open_token(&policy.origin, id, token).map_err(|error| {
        let code = match error {
            TokenError::Form | TokenError::UnknownKey(_) => Code::TokenInvalid,
            TokenError::Unauthentic => Code::TokenMismatch,
        };
        Problem::new(code, error).field("Hoop-Token")
    })?;
    serde_json::from_slice(&content)
        .map_err(|_| Problem::new(Code::TokenInvalid, "its content is of another version").field("Hoop-Token"))
}
