//! Doors to what the cache reads of foreign bytes, for `hoop-fuzz` alone.

use super::entry::{Body, Entry, kept};
use super::key::{Asker, Digest};
use super::policy::Times;
use super::record::Record;
use bytes::Bytes;
use hoop_endpoint::DeviceId;
use http::{HeaderMap, StatusCode, request};
use std::time::SystemTime;

/// Reads a record whose content, without its sum, is this, and makes the head of its answer at a time. Returns its content as it is written again.
///
/// # Panics
/// If what is written is not read as it was.
pub fn record(content: &[u8], now: SystemTime) -> Option<Bytes> {
    let record = Record::decode(&Record::sealed(content))?;
    let again = record.encode();
    assert_eq!(Record::decode(&again).as_ref(), Some(&record));
    if let Some(entry) = Entry::new(record, Body::Memory(Bytes::new())) {
        let _ = (entry.head(now), entry.policy.left(now), entry.policy.answers_errors(now));
    }
    Some(Record::content(&again).to_vec().into())
}

/// Whether what came to the first of two requests, each of its own device, is kept, and whether it may then answer the second: `None`, if it is not kept.
///
/// # Panics
/// If it does not answer its own request while it is there.
pub fn answers_other(
    [first, second]: [&request::Parts; 2],
    (status, headers): (StatusCode, &HeaderMap),
    [asked, came, now]: [SystemTime; 3],
) -> Option<bool> {
    let [one, other] = [(first, 1), (second, 2)].map(|(head, id)| Asker::of(head, DeviceId([id; 20])));
    let times = Times { asked, came };
    let (record, policy) = kept(&one, &first.headers, false, (status, headers), times, Digest::default())?;
    assert!(record.selector.selects(&one, &first.headers), "an answer is for who has asked for it");
    let _ = (policy.answers(&second.headers, now), policy.answers_errors(now), policy.left(now));
    assert!(Entry::new(record.clone(), Body::Memory(Bytes::new())).is_some(), "what is kept can be read");
    Some(record.selector.selects(&other, &second.headers))
}
