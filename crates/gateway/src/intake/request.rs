//! What a request says of itself before its body comes: [`Announced`], and the offer to the spool that follows from it. Nothing here waits.

use super::refusals::early_problem;
use crate::core::wire::{self, dest_of};
use crate::peer::destination::{Dest, Destinations};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{Code, Problem};
use hoop_seal::{Layout, Prelude, RECORD_SIZE, TicketLabel};
use hoop_spool::{EARLY_SECS, KEEP_SECS, Offer};
use hoop_units::{AddressKey, ByteRange, ContentRange, UnixTime, UploadId};
use http::{HeaderMap, header};

/// What a request says of itself before its body comes.
pub struct Announced {
    pub device: AddressKey,
    pub dest: Dest,
    /// `Hoop-Permit`.
    pub permit: Option<Vec<u8>>,
    /// `Hoop-Deadline`.
    pub deadline: Option<UnixTime>,
    /// `Content-Length`.
    pub length: Option<u64>,
    /// Of a `PUT`.
    pub part: Option<Part>,
    /// Whether it waits for a 100 before it sends the body (RFC 9110 §10.1.1).
    pub expects_continue: bool,
}

impl Announced {
    /// Whether it brings records whose prelude is still to come.
    pub fn is_early(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.prelude.is_none())
    }
}

/// Which part of an upload a `PUT` carries.
pub struct Part {
    pub id: UploadId,
    pub range: ContentRange,
    /// `None`: early, the device does not have it yet.
    pub prelude: Option<Prelude>,
}

/// Reads a request's query and header fields.
///
/// # Errors
/// What is wrong with them; see `docs/protocol.md` §6.
pub fn announced(
    destinations: &Destinations,
    takes_early: bool,
    id: Option<&str>,
    query: Option<&str>,
    headers: &HeaderMap,
    device: AddressKey,
) -> Result<Announced, Problem> {
    let dest = destinations.check(&dest_of(query)?)?;
    let length = content_length(headers)?;
    let part = id.map(|id| part(id, headers)).transpose()?;
    if !takes_early && part.as_ref().is_some_and(|part| part.prelude.is_none()) {
        return Err(early_problem("this gateway takes no records before the prelude"));
    }
    if let Some(Part { range: ContentRange { range, .. }, .. }) = &part
        && length.is_some_and(|length| length != range.len())
    {
        let detail = format!("Content-Range names {} bytes, Content-Length {}", range.len(), length.unwrap_or(0));
        return Err(Problem::new(Code::RangeInvalid, detail).field("Content-Range"));
    }
    let expects_continue = headers.contains_key(header::EXPECT);
    let (permit, deadline) = (permit(headers)?, deadline(headers)?);
    Ok(Announced { device, dest, permit, deadline, length, part, expects_continue })
}

/// What `Hoop-Permit` says, if it is there.
pub fn permit(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Problem> {
    let Some(value) = headers.get(wire::PERMIT) else { return Ok(None) };
    let invalid = || Problem::new(Code::PermitInvalid, "Hoop-Permit is not base64url").field("Hoop-Permit");
    URL_SAFE_NO_PAD.decode(value.as_bytes()).map(Some).map_err(|_| invalid())
}

/// What `Hoop-Deadline` says, if it is there: until when the upload should be at its service, in seconds since 1970.
pub fn deadline(headers: &HeaderMap) -> Result<Option<UnixTime>, Problem> {
    let mut values = headers.get_all(wire::DEADLINE).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let seconds = digits.and_then(|text| text.parse().ok()).filter(|_| values.next().is_none());
    let detail = "Hoop-Deadline is one number of seconds since 1970";
    let invalid = || Problem::new(Code::RequestInvalid, detail).field("Hoop-Deadline");
    seconds.map(|seconds| Some(UnixTime(seconds))).ok_or_else(invalid)
}

/// An offer with the sender's deadline, which no later counts than the service would take the upload.
pub fn with_deadline(offer: Offer, deadline: Option<UnixTime>) -> Offer {
    let latest = offer.expires.plus_secs(KEEP_SECS);
    Offer { deadline: deadline.map(|deadline| deadline.min(latest)), ..offer }
}

pub fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(header::CONTENT_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    let invalid = || Problem::new(Code::RequestInvalid, "Content-Length is not a number").field("Content-Length");
    length.map(Some).ok_or_else(invalid)
}

/// What the path and the headers of a `PUT` say of its part.
pub fn part(id: &str, headers: &HeaderMap) -> Result<Part, Problem> {
    let id: UploadId = id.parse().map_err(|error| Problem::new(Code::RequestInvalid, error).field("id"))?;
    let text = |name: header::HeaderName, written: &'static str| {
        let mut values = headers.get_all(name).iter();
        let value = values.next().and_then(|value| value.to_str().ok());
        let twice = || Problem::new(Code::RequestInvalid, format!("{written} is there twice")).field(written);
        values.next().map_or(Ok(value), |_| Err(twice()))
    };
    let range = text(header::CONTENT_RANGE, "Content-Range")?
        .ok_or_else(|| Problem::new(Code::RangeInvalid, "Content-Range is missing").field("Content-Range"))?
        .parse::<ContentRange>()
        .map_err(|error| Problem::new(Code::RangeInvalid, error).field("Content-Range"))?;
    let prelude = match text(wire::PRELUDE, "Hoop-Prelude")? {
        Some(prelude) => Some(
            Prelude::from_header(prelude)
                .map_err(|error| Problem::new(Code::BodyNotSealed, error).field("Hoop-Prelude"))?,
        ),
        // A boolean of RFC 9651 §3.3.6.
        None if text(wire::EARLY, "Hoop-Early")?.map(str::trim) == Some("?1") => None,
        None => return Err(Problem::new(Code::RequestInvalid, "Hoop-Prelude is missing").field("Hoop-Prelude")),
    };
    Ok(Part { id, range, prelude })
}

fn label(prelude: &Prelude) -> Result<TicketLabel, Problem> {
    if prelude.record_size() != RECORD_SIZE {
        let detail = format!("records have {RECORD_SIZE} bytes in every upload, not {}", prelude.record_size());
        return Err(Problem::new(Code::BodyNotSealed, detail));
    }
    TicketLabel::parse(prelude.key_id()).map_err(|error| Problem::new(Code::BodyNotSealed, error))
}

/// What a prelude says of its upload.
pub fn sealed_offer(now: UnixTime, prelude: &Prelude, total: Option<u64>, dest: String) -> Result<Offer, Problem> {
    let label = label(prelude)?;
    let expires = hoop_spool::ticket_end(label.expires, now);
    let (device, deadline) = (AddressKey::UNKNOWN, None);
    Ok(Offer { id: label.upload_id, prelude: prelude.encode(), total, dest, expires, device, deadline })
}

/// What is known of an upload whose prelude is still to come.
pub fn early_offer(now: UnixTime, part: &Part, dest: String) -> Offer {
    let expires = now.plus_secs(EARLY_SECS);
    let (device, deadline) = (AddressKey::UNKNOWN, None);
    Offer { id: part.id, prelude: Vec::new(), total: Some(part.range.total), dest, expires, device, deadline }
}

/// Whether a range is one that a sender may bring: whole records, and not the first before its prelude.
///
/// # Errors
/// `range-off-grid`, `prelude-needed`.
pub fn check_range(layout: Layout, range: ByteRange, early: bool) -> Result<(), Problem> {
    let Some((first, _)) = layout.records_of(range) else {
        let detail = format!("bytes {range} do not begin and end at borders of records");
        return Err(Problem::new(Code::RangeOffGrid, detail).field("Content-Range"));
    };
    match early && first == 0 {
        true => Err(early_problem("record 0 comes with the prelude; early ones are those after it")),
        false => Ok(()),
    }
}
