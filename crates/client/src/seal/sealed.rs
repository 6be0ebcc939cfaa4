//! Z, sealed while it is being sent: [`Sealed`] reads any of its records, [`Sealed::stream`] is a range of it as a
//! message body.
//!
//! No bytes are kept: a range that has to be sent again is read and sealed again. Were its plaintext another by then, two plaintexts
//! would go out under one nonce, and whoever has both could work out their difference. A file's length and time do not tell
//! (a shared mapping can change it and leave both alone), so of each record that was sealed half of its tag is kept, eight bytes, and one
//! that comes out differently is not sent, not by a later process either ([`SealGuard`]). A thread reads files and seals in place
//! in frames of four records, a few frames ahead of the socket, so disk, cipher and network work at the same time.
//! Memory: [`FRAMES_AHEAD`] + 2 frames of 256 KiB, and eight bytes a record, 1.3 MB for an upload of 10 GB.

use crate::request::plaintext::Plaintext;
use crate::request::source::SourceError;
use crate::seal::seal_guard::SealGuard;
use bytes::Bytes;
use hoop_http::{Body, BodyError, streamed};
use hoop_seal::{ContentKey, Layout, LayoutError, Prelude, RECORD_OVERHEAD};
use hoop_units::{ByteRange, RangeSet};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Records in a frame: 256 KiB at a time is where larger writes stop being faster.
const RECORDS_PER_FRAME: u64 = 4;

/// Frames that are ready before the socket takes them: enough that neither side waits for the other's hiccups.
const FRAMES_AHEAD: usize = 3;

/// An upload's sealed body, made as it is read.
#[derive(Debug)]
pub struct Sealed {
    prelude: Prelude,
    layout: Layout,
    key: ContentKey,
    plaintext: Plaintext,
    /// Records below this one must not be sealed yet.
    first: u64,
    /// How each record came out that was sealed.
    guard: Arc<SealGuard>,
}

impl Sealed {
    /// `plaintext` sealed with `key`, which belongs to the prelude's salt.
    ///
    /// # Errors
    /// If there is more of it than can be counted.
    pub fn new(prelude: Prelude, key: ContentKey, plaintext: Plaintext) -> Result<Self, LayoutError> {
        let layout = Layout::for_plaintext(prelude.len(), prelude.record_size(), plaintext.len())?;
        Ok(Self { prelude, layout, key, plaintext, first: 0, guard: Arc::default() })
    }

    /// The same without a ticket: prelude and head are there with their lengths alone, so all records but the first can be
    /// read. The first must not be: it would be sealed a second time, with the true head, under the same nonce.
    pub(crate) fn early(prelude: Prelude, key: ContentKey, plaintext: Plaintext) -> Result<Self, LayoutError> {
        Ok(Self { first: 1, ..Self::new(prelude, key, plaintext)? })
    }

    /// The same, where what was sealed is remembered there.
    pub(crate) fn with_guard(self, guard: SealGuard) -> Self {
        Self { guard: Arc::new(guard), ..self }
    }

    /// Whether a later process could know what was sealed.
    pub(crate) fn is_kept(&self) -> bool {
        self.guard.are_kept()
    }

    /// What is sealed.
    pub(crate) const fn plaintext(&self) -> &Plaintext {
        &self.plaintext
    }

    /// The same, where records of it were sealed as `draft`: they must not come out otherwise now.
    pub(crate) fn completing(self, draft: &Self) -> Self {
        Self { guard: draft.guard.clone(), ..self }
    }

    /// Whether prelude and record 0 are still to come.
    pub(crate) const fn is_early(&self) -> bool {
        self.first > 0
    }

    /// What is after record 0.
    ///
    /// # Panics
    /// If nothing is.
    pub(crate) fn after_first(&self) -> ByteRange {
        ByteRange::new(self.layout.record(1).start, self.layout.total())
    }

    /// What stands before the records.
    pub const fn prelude(&self) -> &Prelude {
        &self.prelude
    }

    /// Where each record lies.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All of Z.
    pub const fn whole(&self) -> ByteRange {
        ByteRange::new(0, self.layout.total())
    }

    /// `range` widened to record borders, and to 0 where it begins in the prelude.
    pub fn on_grid(&self, range: ByteRange) -> ByteRange {
        let range = range.intersect(self.whole());
        let start = self.layout.record_at(range.start).map_or(0, |index| self.layout.record(index).start);
        let last = range.end.saturating_sub(1).max(start).max(self.layout.prelude_len());
        let end = self.layout.record_at(last).map_or(range.end, |index| self.layout.record(index).end);
        ByteRange::new(start, end)
    }

    /// How many records lie in `has` from end to end, record 0 with the prelude.
    pub(crate) fn records_in(&self, has: &RangeSet) -> u64 {
        let size = u64::from(self.prelude.record_size());
        let after_prelude = |offset: u64| offset.saturating_sub(self.layout.prelude_len());
        let whole = has.iter().map(|range| {
            let first = if range.start == 0 { 0 } else { after_prelude(range.start).div_ceil(size).max(1) };
            let is_last = range.end >= self.layout.total();
            let end = if is_last { self.layout.records() } else { after_prelude(range.end) / size };
            end.saturating_sub(first)
        });
        whole.sum()
    }

    /// Reads and seals the records from `first` up to `end`, after the prelude if `from_start`.
    ///
    /// # Errors
    /// If a file cannot be read, or changed since it was measured.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn read(&self, first: u64, end: u64, from_start: bool) -> Result<Vec<u8>, SourceError> {
        assert!(
            first >= self.first && !(from_start && self.is_early()),
            "record {first} is sealed only once it is known"
        );
        let mut frame = if from_start { self.prelude.encode() } else { Vec::new() };
        let mut at = frame.len();
        let len: u64 = (first..end).map(|index| self.layout.record(index).len()).sum();
        frame.resize(at + usize::try_from(len).expect("a frame fits in memory"), 0);
        for index in first..end {
            let len = usize::try_from(self.layout.record(index).len()).expect("a record fits in memory");
            let record = &mut frame[at..at + len];
            let room = len - RECORD_OVERHEAD as usize;
            self.plaintext.read_at(self.layout.plaintext(index).start, &mut record[..room])?;
            self.key.seal_slice(index, self.layout.is_last(index), record);
            if !self.guard.agree(index, record)? {
                return Err(SourceError::Changed(self.plaintext.path_at(self.layout.plaintext(index).start)));
            }
            at += len;
        }
        Ok(frame)
    }

    /// Reads, seals and hands to `take`, frame by frame, the bytes of `range`, which is cut at record borders.
    /// Stops early when `take` says so.
    fn produce(&self, range: ByteRange, mut take: impl FnMut(Result<Vec<u8>, SourceError>) -> bool) {
        let (first, end) = self.layout.records_of(range).expect("the range is on the grid");
        let mut from_start = range.start == 0;
        for index in (first..end).step_by(RECORDS_PER_FRAME as usize) {
            let frame = self.read(index, end.min(index + RECORDS_PER_FRAME), from_start);
            from_start = false;
            let failed = frame.is_err();
            if !take(frame) || failed {
                return;
            }
        }
    }

    /// Writes all of Z.
    ///
    /// # Errors
    /// The first failure to read; `write` reports its own by returning false.
    pub fn write_to(&self, mut write: impl FnMut(&[u8]) -> bool) -> Result<(), SourceError> {
        let mut result = Ok(());
        self.produce(self.whole(), |frame| match frame {
            Ok(frame) => write(&frame),
            Err(error) => {
                result = Err(error);
                false
            }
        });
        result
    }

    /// The bytes of `range`, which is cut at record borders, as a message body of known length.
    pub fn stream(self: &Arc<Self>, range: ByteRange, meter: Arc<Meter>) -> Body {
        let (sender, frames) = mpsc::channel(FRAMES_AHEAD);
        let (sealed, stop) = (self.clone(), meter.clone());
        tokio::task::spawn_blocking(move || {
            sealed.produce(range, |frame| !stop.is_stopped() && sender.blocking_send(frame.map(Bytes::from)).is_ok());
        });
        streamed(FrameBody { frames, remaining: range.len(), meter })
    }
}

/// Counts what a body hands to the connection, and can stop it.
pub struct Meter {
    sent: AtomicU64,
    stopped: AtomicBool,
    failure: Mutex<Option<SourceError>>,
    on_sent: Box<dyn Fn(u64) + Send + Sync>,
}

impl Meter {
    /// A meter at zero; `on_sent` is told after each frame how many bytes there were so far.
    pub fn new(on_sent: impl Fn(u64) + Send + Sync + 'static) -> Self {
        let failure = Mutex::default();
        Self { sent: AtomicU64::new(0), stopped: AtomicBool::new(false), failure, on_sent: Box::new(on_sent) }
    }

    /// Bytes handed to the connection so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends the body early: its connection breaks.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The local failure that ended the body, once.
    pub fn take_failure(&self) -> Option<SourceError> {
        self.failure.lock().take()
    }

    pub(crate) fn add(&self, bytes: u64) {
        let before = self.sent.fetch_add(bytes, Ordering::Relaxed);
        (self.on_sent)(before + bytes);
    }

    pub(crate) fn fail(&self, error: SourceError) {
        *self.failure.lock() = Some(error);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// Frames from the sealing thread.
pub(crate) struct FrameBody {
    pub(crate) frames: mpsc::Receiver<Result<Bytes, SourceError>>,
    pub(crate) remaining: u64,
    pub(crate) meter: Arc<Meter>,
}

impl http_body::Body for FrameBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        if self.meter.is_stopped() {
            return Poll::Ready(Some(Err("stopped".into())));
        }
        let Poll::Ready(frame) = self.frames.poll_recv(context) else { return Poll::Pending };
        Poll::Ready(Some(match frame {
            Some(Ok(bytes)) => {
                self.remaining -= bytes.len() as u64;
                self.meter.add(bytes.len() as u64);
                Ok(Frame::data(bytes))
            }
            Some(Err(error)) => {
                let text = error.to_string();
                self.meter.fail(error);
                Err(text.into())
            }
            None => Err("the sealing thread ended early".into()),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::plaintext::tests::Numbers;
    use crate::request::source::Segment;
    use hoop_http::Rng;
    use hoop_seal::{Opener, RECORD_SIZE, Suite, UploadKey};
    use http_body_util::BodyExt as _;

    fn sealed(len: usize) -> (Arc<Sealed>, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let mut plaintext = Plaintext::default();
        plaintext.push(Segment::Bytes(bytes.clone().into()));
        let prelude = Prelude::new([7; 16], RECORD_SIZE, &[1; 107]).unwrap();
        (Arc::new(Sealed::new(prelude, key(), plaintext).unwrap()), bytes)
    }

    fn key() -> ContentKey {
        ContentKey::new(Suite::Aes256Gcm, &UploadKey([3; 32]), &[7; 16])
    }

    fn whole(sealed: &Sealed) -> Vec<u8> {
        let mut z = Vec::new();
        sealed
            .write_to(|frame| {
                z.extend_from_slice(frame);
                true
            })
            .unwrap();
        z
    }

    #[test]
    fn all_of_it_opens_to_the_plaintext() {
        for len in [0, 1, 65_519, 65_520, 700_000] {
            let (sealed, plaintext) = sealed(len);
            let z = whole(&sealed);
            assert_eq!(z.len() as u64, sealed.layout().total());
            let (mut opener, mut out) = (Opener::new(key(), sealed.prelude()), Vec::new());
            opener.push(&z[sealed.prelude().len()..], &mut out).unwrap();
            opener.finish(&mut out).unwrap();
            assert!(out == plaintext, "{len} bytes");
        }
    }

    #[test]
    fn records_count_as_held_from_end_to_end_alone() {
        let (sealed, _) = sealed(200_000);
        let (layout, total) = (sealed.layout(), sealed.layout().total());
        assert_eq!(layout.records(), 4);
        let [one, two, last] = [1, 2, 3].map(|index| layout.record(index));
        for (has, records) in [
            (vec![], 0),
            (vec![(0, total)], 4),
            (vec![(0, one.start)], 1),
            (vec![(0, one.start - 1)], 0),
            (vec![(1, one.start)], 0),
            (vec![(layout.prelude_len(), one.start)], 0),
            (vec![(0, layout.prelude_len() - 1)], 0),
            (vec![(1, total)], 3),
            (vec![(one.start, one.end)], 1),
            (vec![(one.start + 1, one.end)], 0),
            (vec![(one.start, one.end - 1), (two.start, two.end)], 1),
            (vec![(one.start + 1, last.start)], 1),
            (vec![(last.start, total)], 1),
            (vec![(last.start, total - 1)], 0),
            (vec![(total - 1, total)], 0),
        ] {
            let ranges = has.iter().map(|(start, end)| ByteRange::new(*start, *end)).collect();
            assert_eq!(sealed.records_in(&ranges), records, "{has:?}");
        }
    }

    /// As through a shared mapping, which may leave length and time as they were.
    #[test]
    fn a_record_whose_plaintext_changed_unseen_is_never_sealed_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![b'A'; 200_000]).unwrap();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let mut plaintext = Plaintext::default();
        plaintext.push(Segment::open(&crate::Content::File(path.clone())).unwrap());
        let prelude = Prelude::new([7; 16], RECORD_SIZE, &[1; 107]).unwrap();
        let sealed = Sealed::new(prelude, key(), plaintext).unwrap();
        let before = sealed.read(0, 2, true).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"other", 70_000).unwrap();
        file.set_modified(modified).unwrap();
        assert_eq!(
            sealed.read(0, 1, true).unwrap(),
            before[..sealed.prelude().len() + 65_536],
            "record 0 is as it was"
        );
        assert!(matches!(sealed.read(1, 2, false), Err(SourceError::Changed(changed)) if changed == path));
        assert!(sealed.read(2, 3, false).is_ok(), "record 2 was not sealed before");
    }

    #[tokio::test]
    async fn a_stream_of_any_range_equals_that_range_of_the_whole() {
        let (sealed, _) = sealed(700_000);
        let z = whole(&sealed);
        let seed = u64::from_ne_bytes(Rng.bytes()) | 1;
        let mut numbers = Numbers(seed);
        for _ in 0..30 {
            let start = numbers.below(z.len());
            let end = start + 1 + numbers.below(z.len() - start);
            let range = sealed.on_grid(ByteRange::new(start as u64, end as u64));
            assert!(range.start <= start as u64 && range.end >= end as u64, "seed {seed}: {range}");
            assert!(sealed.layout().records_of(range).is_some(), "seed {seed}: {range} is off the grid");
            let meter = Arc::new(Meter::new(|_| ()));
            let bytes = sealed.stream(range, meter.clone()).collect().await.unwrap().to_bytes();
            assert!(bytes == z[range.start as usize..range.end as usize], "seed {seed}: {range}");
            assert_eq!(meter.sent(), range.len());
        }
    }

    #[test]
    fn a_range_within_the_prelude_takes_record_0_along() {
        let (sealed, _) = sealed(100_000);
        let first = ByteRange::new(0, sealed.layout().record(0).end);
        assert_eq!(sealed.on_grid(ByteRange::new(0, 5)), first);
        assert_eq!(sealed.on_grid(ByteRange::new(3, 4)), first);
        assert_eq!(sealed.on_grid(ByteRange::new(0, u64::MAX)), sealed.whole());
    }

    #[tokio::test]
    async fn a_stopped_stream_ends_with_an_error() {
        let (sealed, _) = sealed(5_000_000);
        let meter = Arc::new(Meter::new(|_| ()));
        let body = sealed.stream(sealed.whole(), meter.clone());
        meter.stop();
        assert!(body.collect().await.is_err());
    }
}
