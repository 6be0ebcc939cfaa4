//! Requests' heads that take much memory: [`Heads`].
//!
//! What has come of a flow and is not read counts for its device. A head that was read counts for nobody, takes several times its length, and stays as long as its exchange. So a
//! device takes a [place](Places) before it may have more than a few kilobytes of one. All but these lies unread while it waits.

use super::places::{Place, Places};
use crate::exchange::read_head_asking;
use bytes::Bytes;
use hoop_endpoint::{DeviceId, FlowReader};
use hoop_head::{HeadError, decode_request};
use hoop_http::end_hop;
use http::Request;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A longer section is large, in bytes. Few web servers take a longer line of a head.
const SECTION_SMALL: usize = 8 << 10;

/// A longer head is large, in bytes, as it is written for HTTP/1.1: a section may be much shorter.
const HEAD_SMALL: usize = 16 << 10;

/// Large heads at once, each of which takes up to 0.6 MB. A device may have a quarter of those that are free.
const LARGE_MAX: usize = 256;

/// How long a device waits for a place, whose own large requests have them: as for a connection.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Who may have large heads.
#[derive(Clone, Debug)]
pub(crate) struct Heads(Arc<Places>);

/// A head's section, and what came with it of the body.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) bytes: Bytes,
    pub(super) rest: Bytes,
    place: Option<Place>,
}

/// A request's head. If it is large, it has its place as long as this is there.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) request: Request<()>,
    pub(super) place: Option<Place>,
}

impl Heads {
    pub(super) fn new() -> Self {
        Self(Places::new(LARGE_MAX, LARGE_MAX))
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if there is none for long.
    async fn take(&self, device: DeviceId) -> io::Result<Option<Place>> {
        Ok(timeout(WAIT_MAX, self.0.take(device)).await?)
    }

    /// Reads a head's section.
    ///
    /// # Errors
    /// As [`crate::exchange::read_head`]; [`io::ErrorKind::TimedOut`] if it is large, and there is no place.
    pub(super) async fn read(&self, reader: &mut FlowReader, device: DeviceId) -> io::Result<Section> {
        let mut place = None;
        let more = async || {
            place = self.take(device).await?;
            Ok(())
        };
        let (bytes, rest) = read_head_asking(reader, SECTION_SMALL, more).await?;
        Ok(Section { bytes, rest, place })
    }

    /// Decodes the section that was read, or an earlier one in its stead.
    ///
    /// # Errors
    /// If it is no request's; [`io::ErrorKind::TimedOut`] if it is large, and there is no place.
    pub(super) async fn decode(&self, section: &[u8], mut place: Option<Place>, device: DeviceId) -> io::Result<Head> {
        let decode = || request_of(section).map_err(io::Error::other);
        if place.is_none() && section.len() > SECTION_SMALL {
            place = self.take(device).await?;
        }
        let mut request = decode()?;
        if place.is_none() && len(&request) > HEAD_SMALL {
            // It does not lie decoded while it waits.
            drop(request);
            place = self.take(device).await?;
            request = decode()?;
        }
        Ok(Head { request, place })
    }
}

/// A section's request without the fields of one hop (RFC 9110 §7.6.1): agents take these out, and a device may have none.
///
/// # Errors
/// If it is no request's.
pub(super) fn request_of(section: &[u8]) -> Result<Request<()>, HeadError> {
    let mut request = decode_request(section)?;
    end_hop(request.headers_mut());
    Ok(request)
}

/// The length of a head as it is written for HTTP/1.1.
fn len(request: &Request<()>) -> usize {
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let uri = request.uri();
    uri.host().map_or(0, str::len) + uri.path().len() + uri.query().map_or(0, str::len) + fields.sum::<usize>()
}

impl Section {
    /// Its place, if it is large.
    pub(super) fn place(&mut self) -> Option<Place> {
        self.place.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_head::encode_request;
    use http::HeaderName;

    const ONE: DeviceId = DeviceId([1; 20]);
    const OTHER: DeviceId = DeviceId([2; 20]);

    /// A request with so many fields of so many bytes each.
    fn section(fields: usize, value: &str) -> Vec<u8> {
        let mut request = Request::get("http://web.example/");
        for _ in 0..fields {
            request = request.header("x-a", value);
        }
        let mut section = Vec::new();
        encode_request(&request.body(()).unwrap().into_parts().0, &mut section).unwrap();
        section
    }

    #[tokio::test]
    async fn fields_of_one_hop_go_no_further() {
        let request = Request::post("http://web.example/").header("proxy-authorization", "Basic eDp5");
        let request = request.header("trailer", "x-b").header("x-b", "2");
        let mut section = Vec::new();
        encode_request(&request.body(()).unwrap().into_parts().0, &mut section).unwrap();
        let decoded = Heads::new().decode(&section, None, ONE).await.unwrap().request;
        assert_eq!(decoded.headers().keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-b"]);
    }

    #[tokio::test]
    async fn a_device_with_its_share_of_large_heads_waits_and_leaves_others_theirs() {
        let heads = Heads::new();
        // Letters that no table and no code makes shorter; and what a table makes of a few bytes.
        let long = section(20, &"~|".repeat(500));
        let mut short_that_expands = section(1, "a");
        for _ in 0..9 {
            // A field `x-a` whose value is an `a` and 400 parts of the table (`docs/head.md`).
            short_that_expands.extend(b"\x23x-a\x7f\x92\x02a");
            short_that_expands.extend([0x13; 400]);
        }
        assert!(long.len() > SECTION_SMALL && short_that_expands.len() < SECTION_SMALL, "{}", short_that_expands.len());
        let soon = |device, section| {
            let heads = heads.clone();
            async move { timeout(Duration::from_millis(5), heads.decode(section, None, device)).await }
        };
        let mut held = Vec::new();
        while let Ok(head) = soon(ONE, if held.len() % 2 == 0 { &long } else { &short_that_expands }).await {
            held.push(head.unwrap());
            assert!(held.len() < LARGE_MAX / 2, "a device has its share");
        }
        assert!(held.len() > LARGE_MAX / 8 && held.iter().all(|head| head.place.is_some()));
        assert!(soon(ONE, &short_that_expands).await.is_err());
        assert!(soon(OTHER, &long).await.unwrap().unwrap().place.is_some());
        let small = section(20, "a");
        assert!(soon(ONE, &small).await.unwrap().unwrap().place.is_none(), "small ones never wait");
        held.pop();
        assert!(soon(ONE, &long).await.is_ok());
    }
}
