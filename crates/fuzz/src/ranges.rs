//! Ranges: in `Content-Range` and `Hoop-Missing`, in the spool's index, and sets of them beside a set of bits.

use crate::input::Input;
use hoop_seal::Layout;
use hoop_spool::fuzzing::{decode_ranges, encode_ranges};
use hoop_units::{ByteRange, ContentRange, RangeSet, UploadId};

/// Numbers up to which a set is held against bits.
const BITS: u64 = 128;

pub fn ranges(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() {
        0 => content_range(input),
        1 => missing(input),
        2 => index(input.rest()),
        3 => id(input),
        _ => set(input),
    }
}

/// Three decimal numbers and nothing else.
fn content_range(input: Input<'_>) {
    let Some(text) = input.text() else { return };
    let numbers = || -> Option<(u64, u64, u64)> {
        let numbers = text.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = numbers.0.split_once('-')?;
        let number = |digits: &str| -> Option<u64> {
            (!digits.is_empty()).then_some(())?;
            digits.chars().try_fold(0_u64, |sum, c| sum.checked_mul(10)?.checked_add(c.to_digit(10)?.into()))
        };
        Some((number(first)?, number(last)?, number(numbers.1)?))
    };
    let expected = numbers().filter(|(first, last, total)| first <= last && last < total);
    let read = text.parse::<ContentRange>().ok();
    assert_eq!(read.map(|read| (read.range.start, read.range.end - 1, read.total)), expected, "{text}");
    if let Some(read) = read {
        assert_eq!(read.to_string().parse(), Ok(read));
    }
}

/// What the other end says that it lacks, as a device and a gateway read it.
fn missing(mut input: Input<'_>) {
    let total = input.number() >> 4;
    let Some(text) = input.text() else { return };
    let Ok(set) = text.parse::<RangeSet>() else {
        assert_eq!(hoop_client::fuzzing::lacking(text, total), None);
        assert_eq!(hoop_gateway::fuzzing::delivered_from_missing(text, total), None);
        return;
    };
    check(&set);
    assert_eq!(set.to_string().parse(), Ok(set.clone()));
    let within = set.iter().all(|span| span.end <= total);
    if let Some(lacking) = hoop_client::fuzzing::lacking(text, total) {
        assert!(within && lacking == set && lacking.len() <= total);
    } else {
        assert!(!within);
    }
    let has = hoop_gateway::fuzzing::delivered_from_missing(text, total).expect("it is a set");
    check(&has);
    assert!(has.len() <= total && has.iter().all(|span| span.end <= total));
    assert!(set.iter().all(|span| !has.iter().any(|other| !other.intersect(span).is_empty())), "lacking and not");
    next(&has, total, text.len() as u64 * 10_000);
}

/// What is sent next is missing, lies on the grid, and comes to an end.
fn next(has: &RangeSet, total: u64, most: u64) {
    let Ok(layout) = Layout::for_total(128, hoop_seal::RECORD_SIZE, total) else { return };
    let mut has = has.clone();
    for _ in 0..8 {
        let Some(range) = hoop_gateway::fuzzing::next_message(&layout, &has, most) else {
            assert!(has.missing(total).all(|gap| gap.end <= layout.prelude_len()), "it stops before the end");
            return;
        };
        assert!(!has.contains(range) && range.end <= total);
        assert!(layout.records_of(range).is_some(), "{range} is off the grid");
        assert!(range.len() <= most.max(hoop_seal::RECORD_SIZE.into()) + layout.prelude_len());
        has.insert(range);
    }
}

/// The blob of the index.
fn index(bytes: &[u8]) {
    let Ok(set) = decode_ranges(bytes) else { return };
    check(&set);
    let written = encode_ranges(&set);
    assert!(written.len() <= bytes.len());
    assert_eq!(decode_ranges(&written).expect("what we write"), set);
}

fn id(input: Input<'_>) {
    let Some(text) = input.text() else { return };
    let is_id = text.len() == 32 && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    match text.parse::<UploadId>() {
        Ok(id) => assert!(is_id && id.to_hex() == text && id.to_string() == text),
        Err(_) => assert!(!is_id, "{text}"),
    }
}

fn check(set: &RangeSet) {
    let spans: Vec<ByteRange> = set.iter().collect();
    assert!(spans.iter().all(|span| !span.is_empty()));
    assert!(spans.windows(2).all(|pair| pair[0].end < pair[1].start), "spans that touch");
    assert_eq!(spans.len(), set.spans());
    assert_eq!(set.is_empty(), spans.is_empty());
}

/// Insertions and removals beside a set of bits.
fn set(mut input: Input<'_>) {
    let (mut set, mut bits) = (RangeSet::new(), 0_u128);
    while !input.is_empty() {
        let (add, start, len) = (input.coin(), u64::from(input.byte()) % BITS, u64::from(input.byte()) % 40);
        let range = ByteRange::new(start, (start + len).min(BITS));
        let mask = (range.start..range.end).fold(0, |mask, bit| mask | 1_u128 << bit);
        assert_eq!(set.contains(range), bits & mask == mask);
        if add {
            set.insert(range);
            bits |= mask;
        } else {
            set.remove(range);
            bits &= !mask;
        }
        let held = set.iter().flat_map(|span| span.start..span.end).fold(0, |held, bit| held | 1_u128 << bit);
        assert_eq!(held, bits);
        assert_eq!(set.len(), u64::from(bits.count_ones()));
        let gaps = set.missing(BITS).flat_map(|gap| gap.start..gap.end).fold(0, |gaps, bit| gaps | 1_u128 << bit);
        assert_eq!(gaps, !bits);
        check(&set);
    }
    assert_eq!(decode_ranges(&encode_ranges(&set)).expect("what we write"), set);
    assert_eq!(set.to_string().parse(), Ok(set));
}
