//! An answer that is kept: [`Entry`].

use super::directives::Directives;
use super::key::{Asker, Digest, Selector};
use super::policy::{Policy, Times};
use super::record::{BLOCK, Record};
use crate::server::places::PlacedFile;
use bytes::Bytes;
use hoop_head::{decode_response, encode_response};
use http::header::{AGE, AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Response, StatusCode, response};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::spawn_blocking;

/// What an entry takes in memory besides its head and its body, in bytes: the head as fields, and the policy.
const ENTRY_BYTES: u64 = 4 << 10;

/// Where a body is.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Memory(Bytes),
    Disk(Arc<PlacedFile>),
}

/// An answer that is kept.
#[derive(Debug)]
pub(super) struct Entry {
    pub record: Record,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub policy: Policy,
    pub body: Body,
}

impl Entry {
    /// None: its head cannot be read.
    pub(super) fn new(record: Record, body: Body) -> Option<Self> {
        let (head, ()) = decode_response(&record.section).ok()?.into_parts();
        let mut request = HeaderMap::new();
        if record.has_authorization {
            request.insert(AUTHORIZATION, HeaderValue::from_static("x"));
        }
        let times = Times { asked: time(record.asked), came: time(record.came) };
        let policy = Policy::of(&request, head.status, &head.headers, times, record.selector.owner.is_some());
        Some(Self { record, status: head.status, headers: head.headers, policy, body })
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> u64 {
        let body = match &self.body {
            Body::Memory(body) => body.len() as u64,
            Body::Disk(_) => 0,
        };
        ENTRY_BYTES + body + 3 * self.record.section.len() as u64
    }

    /// The head that an answer from the cache has.
    pub(super) fn head(&self, now: SystemTime) -> response::Parts {
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = self.status;
        head.headers = self.headers.clone();
        head.headers.insert(AGE, HeaderValue::from(self.policy.age(now)));
        head
    }

    /// The body from `at` on, at most one block.
    ///
    /// # Errors
    /// If the disk fails, or has another body than was put there.
    pub(super) async fn read(&self, at: u64) -> io::Result<Bytes> {
        let file = match &self.body {
            Body::Memory(body) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX).min(body.len());
                return Ok(body.slice(at..body.len().min(at.saturating_add(BLOCK))));
            }
            Body::Disk(file) => file.clone(),
        };
        let block = at / BLOCK as u64;
        let start = block * BLOCK as u64;
        let len = (self.record.length - start.min(self.record.length)).min(BLOCK as u64) as usize;
        let sum = usize::try_from(block).ok().and_then(|block| self.record.sums.get(block).copied());
        let bytes = spawn_blocking(move || read_block(&file, start, len, sum)).await.map_err(io::Error::other)??;
        Ok(bytes.slice((at - start) as usize..))
    }
}

/// Reads a block, and checks its sum.
///
/// # Errors
/// If the disk fails, or the sum is another.
pub(super) fn read_block(file: &File, start: u64, len: usize, sum: Option<u32>) -> io::Result<Bytes> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, start)?;
    if sum != Some(crc32c::crc32c(&bytes)) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a body of the cache is damaged"));
    }
    Ok(bytes.into())
}

/// What an answer is kept as, before its body has come, if it is kept. `is_own`: for the device alone that has asked.
pub(super) fn kept(
    asker: &Asker,
    asked: &HeaderMap,
    is_own: bool,
    (status, headers): (StatusCode, &HeaderMap),
    times: Times,
    place: Digest,
) -> Option<(Record, Policy)> {
    let directives = Directives::of(headers);
    let (is_private, is_public) = (directives.has("private") || is_own, directives.has("public"));
    let selector = Selector::of(asker, asked, headers, is_private, is_public).ok()?;
    let policy = Policy::of(asked, status, headers, times, selector.owner.is_some());
    if !policy.is_storable() {
        return None;
    }
    Some((record(selector, asked.contains_key(AUTHORIZATION), (status, headers), times, place)?, policy))
}

/// What an answer is kept as, before its body has come. None: its head cannot be.
pub(super) fn record(
    selector: Selector,
    has_authorization: bool,
    (status, headers): (StatusCode, &HeaderMap),
    times: Times,
    place: Digest,
) -> Option<Record> {
    let (mut head, ()) = Response::new(()).into_parts();
    (head.status, head.headers) = (status, headers.clone());
    let mut section = Vec::new();
    encode_response(&head, &mut section).ok()?;
    let [asked, came] = [times.asked, times.came].map(milliseconds);
    let section = section.into();
    Some(Record { selector, has_authorization, asked, came, place, length: 0, section, sums: Vec::new() })
}

fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// A time that a file says is before the year 10000, or is the first.
fn time(milliseconds: u64) -> SystemTime {
    const YEAR_10000: u64 = 253_402_300_800_000;
    SystemTime::UNIX_EPOCH + Duration::from_millis(if milliseconds < YEAR_10000 { milliseconds } else { 0 })
}
