//! Sealed bodies: preludes, layouts, records, streams.

use crate::input::Input;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_seal::{ContentKey, Layout, OpenStreamError, Opener, Prelude, Sealer, Suite, UploadKey};
use hoop_units::ByteRange;

/// Records that are looked at one by one: the first and the last of them.
const RECORDS_SHOWN: u64 = 4;

/// The longest plaintext that is sealed: some hundred records of the smallest size.
const PLAINTEXT_MAX: usize = 4096;

pub fn prelude(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() {
        0 => parsed_prelude(input.rest()),
        1 => header(input),
        _ => layout(input),
    }
}

fn parsed_prelude(bytes: &[u8]) {
    let Ok(prelude) = Prelude::parse(bytes) else { return };
    let written = prelude.encode();
    assert_eq!(written, bytes[..prelude.len()], "a prelude is written as it was read");
    (0..written.len()).for_each(|len| assert!(Prelude::parse(&written[..len]).is_err(), "cut off after {len}"));
    assert_eq!(Prelude::from_header(&prelude.to_header()), Ok(prelude));
}

fn header(input: Input<'_>) {
    let Some(text) = input.text() else { return };
    let bytes = URL_SAFE_NO_PAD.decode(text);
    match (Prelude::from_header(text), bytes) {
        (Ok(prelude), _) => assert_eq!(prelude.to_header(), text, "a header has one spelling"),
        (Err(_), Err(_)) => {}
        (Err(_), Ok(bytes)) => {
            let len = Prelude::parse(&bytes).ok().map(|prelude| prelude.len());
            assert_ne!(len, Some(bytes.len()), "a prelude's own bytes are refused");
        }
    }
}

/// The arithmetic of records against what it means: they tile the body, and nothing else is a range of them.
fn layout(mut input: Input<'_>) {
    let prelude_len = 21 + usize::from(input.byte());
    let (record_size, total) = (input.word().max(18), input.number());
    let Ok(layout) = Layout::for_total(prelude_len, record_size, total) else { return };
    let records = layout.records();
    assert!(records > 0 && layout.total() == total && layout.prelude_len() == prelude_len as u64);
    assert_eq!(layout.plaintext_len(), total - prelude_len as u64 - 17 * records);
    // A plaintext may have half an exbibyte at most, so that no sum overflows.
    if (1..=1 << 59).contains(&layout.plaintext_len())
        && !layout.plaintext_len().is_multiple_of(u64::from(record_size) - 17)
    {
        assert_eq!(Layout::for_plaintext(prelude_len, record_size, layout.plaintext_len()), Ok(layout));
    }
    let shown = (0..records.min(RECORDS_SHOWN)).chain(records.saturating_sub(RECORDS_SHOWN)..records);
    for index in shown {
        let record = layout.record(index);
        let start = prelude_len as u64 + index * u64::from(record_size);
        assert_eq!(record, ByteRange::new(start, (start + u64::from(record_size)).min(total)));
        assert_eq!(layout.plaintext(index).len() + 17, record.len());
        assert_eq!((layout.record_at(record.start), layout.record_at(record.end - 1)), (Some(index), Some(index)));
        assert_eq!(layout.records_of(record), Some((index, index + 1)));
    }
    assert_eq!(layout.record(records - 1).end, total);
    let (start, end) = (input.number(), input.number());
    if start <= end {
        match layout.records_of(ByteRange::new(start, end)) {
            None => {}
            Some((first, last)) => {
                assert!(first < last && last <= records);
                assert!(layout.record(first).start == start || (first == 0 && start == 0));
                assert_eq!(layout.record(last - 1).end, end);
            }
        }
    }
    let at = input.number();
    match layout.record_at(at) {
        Some(index) => assert!(layout.record(index).start <= at && at < layout.record(index).end),
        None => assert!(at < prelude_len as u64 || at >= total),
    }
}

pub fn bodies(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let suite = if input.coin() { Suite::Aes256Gcm } else { Suite::Aes128Gcm };
    match input.byte() {
        0 => foreign_body(suite, input),
        _ => own_body(suite, input),
    }
}

/// Any bytes under any key: however they are cut, the same comes out and the same goes wrong.
fn foreign_body(suite: Suite, mut input: Input<'_>) {
    let (key, cut) = (UploadKey(input.array()), usize::from(input.byte()) + 1);
    let z = input.rest();
    let Ok(prelude) = Prelude::parse(z) else { return };
    let key = || ContentKey::new(suite, &key, prelude.salt());
    let sealed = &z[prelude.len()..];
    let whole = open(key(), &prelude, [sealed]);
    let pieces = open(key(), &prelude, sealed.chunks(cut));
    assert_eq!(whole, pieces, "cut into {cut}");
    // What was released opens record by record, too.
    let room = prelude.record_size() as usize - 17;
    let (released, result) = whole;
    let records = sealed.chunks(prelude.record_size() as usize).enumerate();
    let mut single = Vec::new();
    for (index, record) in records {
        let last = (index + 1) * prelude.record_size() as usize >= sealed.len();
        match key().open(index as u64, last, &mut record.to_vec()) {
            Ok(plaintext) => single.extend_from_slice(plaintext),
            Err(_) => {
                assert!(result.is_err());
                break;
            }
        }
    }
    assert_eq!(single, released);
    assert!(released.len() <= sealed.len().div_ceil(prelude.record_size() as usize) * room);
}

type Opened = (Vec<u8>, Result<(), OpenStreamError>);

fn open<'a>(key: ContentKey, prelude: &Prelude, pieces: impl IntoIterator<Item = &'a [u8]>) -> Opened {
    let mut released = Vec::new();
    let mut opener = Opener::new(key, prelude);
    for piece in pieces {
        if let Err(error) = opener.push(piece, &mut released) {
            return (released, Err(error));
        }
    }
    let result = opener.finish(&mut released);
    (released, result)
}

/// A body of ours: it opens; and altered, cut or put together anew it does not, and releases only what is genuine.
fn own_body(suite: Suite, mut input: Input<'_>) {
    let key = UploadKey(input.array());
    let record_size = 18 + u32::from(input.byte());
    let prelude = Prelude::new(input.array(), record_size, input.piece().get(..20).unwrap_or_default());
    let prelude = prelude.expect("a short key id and a record size that is allowed");
    let (what, at, more) = (input.byte(), input.long(), usize::from(input.short()));
    let plaintext = input.rest();
    let plaintext = &plaintext[..plaintext.len().min(PLAINTEXT_MAX)];
    let content_key = || ContentKey::new(suite, &key, prelude.salt());
    let mut z = Vec::new();
    let mut sealer = Sealer::new(content_key(), &prelude, &mut z);
    plaintext.chunks(more.max(1)).for_each(|piece| sealer.push(piece, &mut z));
    sealer.finish(&mut z);
    let layout = Layout::for_plaintext(prelude.len(), record_size, plaintext.len() as u64).expect("a short plaintext");
    assert_eq!(layout.total(), z.len() as u64);
    let sealed = z.split_off(prelude.len());
    assert_eq!(open(content_key(), &prelude, [&sealed[..]]), (plaintext.to_vec(), Ok(())));
    let altered = altered(&sealed, record_size as usize, what, at as usize, more);
    if altered == sealed {
        return;
    }
    let (released, result) = open(content_key(), &prelude, [&altered[..]]);
    assert!(result.is_err(), "an altered body opens");
    assert!(plaintext.starts_with(&released), "what was released is not genuine");
}

/// The sealed records with something done to them.
fn altered(sealed: &[u8], record_size: usize, what: u8, at: usize, more: usize) -> Vec<u8> {
    let mut altered = sealed.to_vec();
    let records: Vec<&[u8]> = sealed.chunks(record_size).collect();
    let one = at % records.len();
    match what % 6 {
        0 => altered[at / 8 % sealed.len()] ^= 1 << (at % 8),
        1 => altered.truncate(at % sealed.len()),
        2 => altered.extend(std::iter::repeat_n(what, more % 600 + 1)),
        3 => altered = records.iter().enumerate().filter(|(n, _)| *n != one).flat_map(|(_, r)| r.to_vec()).collect(),
        4 => {
            let mut records = records;
            records.swap(one, more % sealed.len().div_ceil(record_size));
            altered = records.concat();
        }
        _ => {
            let mut records = records;
            records.insert(one, records[one]);
            altered = records.concat();
        }
    }
    altered
}
