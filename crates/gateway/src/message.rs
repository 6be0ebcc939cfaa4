//! One message to a service: which range it carries ([`next_message`]), and its body ([`PayloadBody`]).

use crate::service::{LastMove, touch};
use crate::shared::Shared;
use bytes::Bytes;
use hoop_seal::Layout;
use hoop_spool::Payload;
use hoop_units::{ByteRange, RangeSet, UploadId};
use http_body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The most that one message carries: a minute or two of a slow uplink. What breaks off loses a record at most; but a
/// service's answer in between says how far things are.
pub const MESSAGE_BYTES: u64 = 16 << 20;

/// The file is read in pieces of this size: a pipe's worth, so that four transfers hold half a megabyte.
const READ_BYTES: u64 = 128 * 1024;

/// The next range to send: the beginning of the first that is missing, cut at borders of records, with at most `most`
/// bytes but one record at least. `None`: nothing is missing.
pub fn next_message(layout: &Layout, has: &RangeSet, most: u64) -> Option<ByteRange> {
    let total = layout.total();
    let gap = has.missing(total).find(|gap| gap.end > layout.prelude_len())?;
    let first = layout.record_at(gap.start).unwrap_or(0);
    // The last record that is missing, whole or in part, unless that is too much.
    let last = layout.record_at(gap.end - 1).unwrap_or(0);
    let records = (most / u64::from(hoop_seal::RECORD_SIZE)).max(1);
    let last = last.min(first + records - 1);
    // The first message repeats the prelude.
    let start = if first == 0 { 0 } else { layout.record(first).start };
    Some(ByteRange::new(start, layout.record(last).end))
}

/// A range of the payload as a message's body. It is read from the file as the socket takes it.
pub struct PayloadBody {
    payload: Arc<Payload>,
    rest: ByteRange,
    shared: Arc<Shared>,
    id: UploadId,
    moved: LastMove,
}

impl PayloadBody {
    pub fn new(shared: &Arc<Shared>, payload: &Arc<Payload>, id: UploadId, range: ByteRange, moved: &LastMove) -> Self {
        Self { payload: payload.clone(), rest: range, shared: shared.clone(), id, moved: moved.clone() }
    }
}

impl http_body::Body for PayloadBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let len = self.rest.len().min(READ_BYTES);
        let mut bytes = vec![0; len as usize];
        if let Err(error) = self.payload.read_at(self.rest.start, &mut bytes) {
            return Poll::Ready(Some(Err(error)));
        }
        self.rest.start += len;
        touch(&self.moved);
        self.shared.progress.sent(self.id, len);
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RS: u64 = 65_536;

    fn set(ranges: &[(u64, u64)]) -> RangeSet {
        ranges.iter().map(|&(start, end)| ByteRange::new(start, end)).collect()
    }

    #[test]
    fn messages_are_cut_at_records_and_the_first_repeats_the_prelude() {
        let layout = Layout::for_total(128, 65_536, 128 + 3 * RS + 100).unwrap();
        let next =
            |has: &[(u64, u64)], most| next_message(&layout, &set(has), most).map(|range| (range.start, range.end));
        assert_eq!(next(&[], u64::MAX), Some((0, layout.total())));
        assert_eq!(next(&[(0, 128)], RS), Some((0, 128 + RS)));
        assert_eq!(next(&[], 1), Some((0, 128 + RS)), "one record at least");
        assert_eq!(next(&[(0, 128 + RS)], 2 * RS), Some((128 + RS, 128 + 3 * RS)));
        assert_eq!(next(&[(0, 128 + RS), (128 + 2 * RS, layout.total())], u64::MAX), Some((128 + RS, 128 + 2 * RS)));
        assert_eq!(next(&[(0, 128 + 3 * RS)], RS), Some((128 + 3 * RS, layout.total())));
        assert_eq!(next(&[(0, layout.total())], RS), None);
        assert_eq!(next(&[(128, layout.total())], RS), None, "the prelude travels with every message");
    }

    #[test]
    fn a_gap_off_the_grid_is_widened_to_whole_records() {
        let layout = Layout::for_total(128, 65_536, 128 + 3 * RS).unwrap();
        let has = set(&[(0, 128 + RS + 5), (128 + RS + 9, layout.total())]);
        assert_eq!(next_message(&layout, &has, RS), Some(ByteRange::new(128 + RS, 128 + 2 * RS)));
    }
}
