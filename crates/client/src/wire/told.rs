//! What a 2xx about an upload says: [`Told`]. Anything less than the four fields of `docs/protocol.md` §5, about this very upload, is no
//! word of a gateway's or a service's: an ordinary web server, a sign-in page of a hotel's Wi-Fi, or somebody else's upload.

use crate::wire::field;
use crate::wire::status::State;
use bytes::Bytes;
use hoop_units::{ByteRange, RangeSet, UploadId};
use http::{HeaderMap, Response, StatusCode};
use serde::Deserialize;

/// The most spans that an answer names as missing (`docs/protocol.md` §5); what lies beyond the last is not known.
const MISSING_MAX: usize = 32;

/// One end's word on an upload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    /// How far it is there.
    pub(crate) state: State,
    /// What is missing there.
    pub(crate) missing: RangeSet,
}

/// The body of an answer to a message, as far as it is compared.
#[derive(Deserialize)]
struct Body {
    id: String,
}

/// An answer is not what Hoop says of this upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotTold {
    /// A field is missing or malformed.
    #[error("its answer has no `{0}` as Hoop writes it")]
    Field(&'static str),
    /// It is about another upload.
    #[error("its answer is about another upload")]
    Id,
    /// It is about an upload of another length.
    #[error("its answer is about an upload of another length")]
    Total,
    /// Another status, or another body.
    #[error("it answered {0} as no Hoop does")]
    Answer(StatusCode),
}

impl Told {
    /// Reads what an answer says of the upload of that id, whose Z has `total` bytes.
    ///
    /// # Errors
    /// If it says nothing of it.
    pub(crate) fn read(headers: &HeaderMap, id: UploadId, total: u64) -> Result<Self, NotTold> {
        let value = |name| only(headers, name).ok_or(NotTold::Field(name));
        if value("hoop-upload-id")?.parse() != Ok(id) {
            return Err(NotTold::Id);
        }
        if value("hoop-total")?.parse() != Ok(total) {
            return Err(NotTold::Total);
        }
        let state = State::by_name(value("hoop-state")?).ok_or(NotTold::Field("hoop-state"))?;
        let missing = missing_of(value("hoop-missing")?, total).ok_or(NotTold::Field("hoop-missing"))?;
        Ok(Self { state, missing })
    }

    /// The same of the whole answer to a message that brought bytes, whose body names the upload as well.
    ///
    /// # Errors
    /// If it says nothing of it.
    pub(crate) fn answered(answer: &Response<Bytes>, id: UploadId, total: u64) -> Result<Self, NotTold> {
        let strange = NotTold::Answer(answer.status());
        if !matches!(answer.status(), StatusCode::OK | StatusCode::CREATED | StatusCode::ACCEPTED) {
            return Err(strange);
        }
        let told = Self::read(answer.headers(), id, total)?;
        let body: Body = serde_json::from_slice(answer.body()).map_err(|_| strange)?;
        if body.id.parse() == Ok(id) { Ok(told) } else { Err(NotTold::Id) }
    }

    /// Whether it says that the end has given the upload up.
    pub(crate) const fn is_given_up(&self) -> bool {
        self.state.is_given_up()
    }
}

/// A field that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(_), None) => field(headers, name),
        _ => None,
    }
}

/// The spans that `Hoop-Missing` names of `total` bytes; `None` if no Hoop says so.
pub(crate) fn lacking(text: &str, total: u64) -> Option<RangeSet> {
    let missing: RangeSet = text.parse().ok()?;
    let within = missing.iter().all(|span| span.end <= total);
    within.then_some(missing)
}

/// What is missing of `total` bytes, as far as `Hoop-Missing` says.
fn missing_of(text: &str, total: u64) -> Option<RangeSet> {
    let mut missing = lacking(text, total)?;
    if let Some(last) = missing.iter().last().filter(|last| missing.spans() >= MISSING_MAX && last.end < total) {
        missing.insert(ByteRange::new(last.end, total));
    }
    Some(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const ID: UploadId = UploadId([7; 16]);

    fn read(fields: &[(&'static str, &str)]) -> Result<Told, NotTold> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        Told::read(&headers, ID, 1_000)
    }

    fn fields() -> Vec<(&'static str, &'static str)> {
        vec![
            ("hoop-upload-id", "07070707070707070707070707070707"),
            ("hoop-total", "1000"),
            ("hoop-state", "stored"),
            ("hoop-missing", ""),
        ]
    }

    #[test]
    fn an_answer_without_each_field_once_says_nothing() {
        assert_eq!(read(&fields()), Ok(Told { state: State::Stored, missing: RangeSet::new() }));
        for left_out in 0..4 {
            let mut fewer = fields();
            let (name, _) = fewer.remove(left_out);
            assert_eq!(read(&fewer), Err(NotTold::Field(name)), "without it");
            let mut twice = fields();
            twice.push(twice[left_out]);
            assert_eq!(read(&twice), Err(NotTold::Field(name)), "twice");
        }
    }

    #[test]
    fn an_answer_about_another_upload_says_nothing_of_this_one() {
        let with = |place: usize, value: &'static str| {
            let mut fields = fields();
            fields[place].1 = value;
            read(&fields)
        };
        assert_eq!(with(0, "08070707070707070707070707070707"), Err(NotTold::Id));
        for total in ["999", "1001", "0", "-1", "", "1e3"] {
            assert_eq!(with(1, total), Err(NotTold::Total), "{total}");
        }
        for state in ["", "of-tomorrow", "Stored", "stored, stored"] {
            assert_eq!(with(2, state), Err(NotTold::Field("hoop-state")), "{state}");
        }
        for missing in ["128-1000", "2000-2999", "0-18446744073709551614", "all"] {
            assert_eq!(with(3, missing), Err(NotTold::Field("hoop-missing")), "{missing}");
        }
        assert_eq!(with(3, "128-999").unwrap().missing, [ByteRange::new(128, 1_000)].into_iter().collect());
    }

    #[test]
    fn a_message_is_answered_by_three_statuses_and_a_document() {
        let answered = |status: u16, body: &'static str| {
            let mut answer = Response::new(Bytes::from_static(body.as_bytes()));
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            fields().iter().for_each(|(name, value)| {
                answer.headers_mut().append(*name, HeaderValue::from_static(value));
            });
            Told::answered(&answer, ID, 1_000)
        };
        let document = r#"{"id":"07070707070707070707070707070707","state":"stored"}"#;
        for status in [200, 201, 202] {
            assert!(answered(status, document).is_ok(), "{status}");
            for body in ["", "<html>", "[]", "{}", r#"{"id":7}"#] {
                assert!(matches!(answered(status, body), Err(NotTold::Answer(_))), "{status} {body}");
            }
        }
        for status in [203, 204, 205, 206, 226, 302, 404] {
            assert!(matches!(answered(status, document), Err(NotTold::Answer(_))), "{status}");
        }
        assert_eq!(answered(201, r#"{"id":"08070707070707070707070707070707"}"#), Err(NotTold::Id));
    }

    #[test]
    fn beyond_the_last_span_that_fits_all_is_missing() {
        let spans: Vec<String> = (0..32).map(|n| format!("{}-{}", n * 10, n * 10 + 4)).collect();
        assert_eq!(missing_of(&spans.join(", "), 1_000).unwrap().iter().last(), Some(ByteRange::new(310, 1_000)));
        assert_eq!(missing_of(&spans[..31].join(", "), 1_000).unwrap().iter().last(), Some(ByteRange::new(300, 305)));
    }
}
