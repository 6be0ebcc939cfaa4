//! One message to a service: which range it carries ([`next_message`]), and its body ([`PayloadBody`]).

use crate::core::blocking::DropBlocking;
use crate::core::state::Core;
use crate::peer::client::Motion;

use bytes::Bytes;
use hoop_seal::Layout;
use hoop_spool::{Payload, ReadError};
use hoop_units::{ByteRange, RangeSet, UploadId};
use http_body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

/// The most that one message carries: a minute or two of a slow uplink. What breaks off loses a record at most; but a
/// service's answer in between says how far things are.
pub const MESSAGE_BYTES: u64 = 16 << 20;

/// The file is read in pieces of this size, one ahead of the socket: so that four transfers hold a megabyte.
const READ_BYTES: u64 = 128 * 1024;

/// A piece goes to the connection in frames of this size. It takes one more as long as it holds less than 64 KiB: what it holds counts
/// as sent, and takes 7 s at 128 kbit/s.
const FRAME_BYTES: usize = 32 * 1024;

/// The next range to send: the beginning of the first that the service lacks and we have, cut at borders of records, with at most
/// `most` bytes but one record at least. `None`: there is nothing to send now. What is stored is cut at borders, too.
pub fn next_message(layout: &Layout, has: &RangeSet, stored: &RangeSet, most: u64) -> Option<ByteRange> {
    let mut left = stored.clone();
    has.iter().for_each(|range| left.remove(range));
    // The prelude alone is nothing: it travels with every message.
    let span = left.iter().find(|span| span.end > layout.prelude_len())?;
    let first = layout.record_at(span.start).unwrap_or(0);
    // The last record that is missing, whole or in part, unless that is too much.
    let last = layout.record_at(span.end - 1).unwrap_or(0);
    let records = (most / u64::from(hoop_seal::RECORD_SIZE)).max(1);
    let last = last.min(first + records - 1);
    // The first message repeats the prelude.
    let start = if first == 0 { 0 } else { layout.record(first).start };
    Some(ByteRange::new(start, layout.record(last).end))
}

/// A payload for several who read it.
pub type SharedPayload = Arc<DropBlocking<Payload>>;

/// A range of the payload as a message's body. It is read from the file as the socket takes it, where waiting for the disk
/// (one that has to spin up, say) holds nobody else up.
pub struct PayloadBody {
    payload: SharedPayload,
    /// What has not been asked of the disk.
    rest: ByteRange,
    /// The piece that goes, as far as it has not gone.
    piece: Bytes,
    /// The next one, being read.
    ahead: Option<JoinHandle<io::Result<Bytes>>>,
    /// Its length.
    ahead_len: u64,
    core: Arc<Core>,
    id: UploadId,
    motion: Arc<Motion>,
    /// Why the file could not be read.
    fault: Arc<OnceLock<ReadError>>,
}

impl PayloadBody {
    /// The body of a message, and how it moves on.
    pub fn new(core: &Arc<Core>, payload: &SharedPayload, id: UploadId, range: ByteRange) -> (Self, Arc<Motion>) {
        let (payload, core, motion) = (payload.clone(), core.clone(), Motion::new(range.len()));
        let (fault, piece, ahead) = (Arc::default(), Bytes::new(), None);
        let body = Self { payload, rest: range, piece, ahead, ahead_len: 0, core, id, motion: motion.clone(), fault };
        (body, motion)
    }

    /// Where it stands why the file could not be read, once the message has broken off for that.
    pub fn fault(&self) -> Arc<OnceLock<ReadError>> {
        self.fault.clone()
    }

    /// Begins to read the next piece.
    fn read_ahead(&mut self) {
        // Up to a border of records: each is compared with its checksum, and would be read twice if it were cut.
        let piece = ByteRange::new(self.rest.start, self.rest.end.min(self.rest.start + READ_BYTES));
        self.ahead_len = self.payload.border_before_end(piece) - piece.start;
        if self.ahead_len == 0 {
            return;
        }
        let (payload, fault) = (self.payload.clone(), self.fault.clone());
        let (start, len) = (self.rest.start, self.ahead_len as usize);
        self.rest.start += self.ahead_len;
        self.ahead = Some(tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; len];
            match payload.read_at(start, &mut bytes) {
                Ok(()) => Ok(bytes.into()),
                Err(error) => {
                    let broken_off = io::Error::other(error.to_string());
                    let _ = fault.set(error);
                    Err(broken_off)
                }
            }
        }));
    }
}

impl http_body::Body for PayloadBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.motion.is_over() {
            return Poll::Ready(Some(Err(io::Error::other("the answer came before the whole message was sent"))));
        }
        if self.piece.is_empty() {
            if self.ahead.is_none() {
                self.read_ahead();
            }
            let Some(ahead) = &mut self.ahead else { return Poll::Ready(None) };
            let read = std::task::ready!(Pin::new(ahead).poll(context));
            self.ahead = None;
            match read.unwrap_or_else(|error| Err(error.into())) {
                Ok(piece) => self.piece = piece,
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            self.read_ahead();
        }
        let frame = FRAME_BYTES.min(self.piece.len());
        let bytes = self.piece.split_to(frame);
        self.motion.sent(bytes.len() as u64);
        self.core.progress.sent(self.id, bytes.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && self.rest.is_empty() && self.ahead.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.piece.len() as u64 + self.ahead_len + self.rest.len())
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
        let whole = set(&[(0, layout.total())]);
        let next = |has: &[(u64, u64)], most| {
            next_message(&layout, &set(has), &whole, most).map(|range| (range.start, range.end))
        };
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
        let whole = set(&[(0, layout.total())]);
        assert_eq!(next_message(&layout, &has, &whole, RS), Some(ByteRange::new(128 + RS, 128 + 2 * RS)));
    }

    #[test]
    fn nothing_is_sent_that_is_not_stored() {
        let layout = Layout::for_total(128, 65_536, 128 + 4 * RS + 100).unwrap();
        let next = |has: &[(u64, u64)], stored: &[(u64, u64)]| {
            next_message(&layout, &set(has), &set(stored), u64::MAX).map(|range| (range.start, range.end))
        };
        assert_eq!(next(&[], &[(0, 128)]), None, "the prelude alone");
        assert_eq!(next(&[], &[(0, 128 + 2 * RS)]), Some((0, 128 + 2 * RS)));
        assert_eq!(next(&[(0, 128 + RS)], &[(0, 128 + 2 * RS)]), Some((128 + RS, 128 + 2 * RS)));
        assert_eq!(next(&[(0, 128 + 2 * RS)], &[(0, 128 + 2 * RS)]), None);
        assert_eq!(next(&[(0, 128 + 3 * RS)], &[(0, 128 + 2 * RS)]), None, "the rest came by another way");
        let apart = [(0, 128), (128 + RS, 128 + 2 * RS), (128 + 3 * RS, layout.total())];
        assert_eq!(next(&[], &apart), Some((128 + RS, 128 + 2 * RS)));
        assert_eq!(next(&[(128 + RS, 128 + 2 * RS)], &apart), Some((128 + 3 * RS, layout.total())));
    }
}
