//! What devices have sent and nobody has consumed: [`ByteLog`].

use crate::log::{Damage, Entry, Kind, Log, OpenError, entry_len, name_of};
use crate::sync::Logged;
use crate::{Settings, StoreError};
use hoop_flow::{DeviceId, FlowName};
use hoop_units::ByteRange;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::path::Path;

/// Bytes of a stream: host(20), flow(8), offset(8), bytes.
const BYTES: u8 = 2;

/// What lies before is consumed: host(20), flow(8), offset(8).
const CONSUMED: u8 = 3;

/// All of a flow is forgotten: host(20), flow(8).
const FORGOTTEN: u8 = 4;

/// What an OCTETS entry holds at most of a stream.
const PIECE: usize = 65_536;

/// What a piece counts for at least: so what is known of pieces takes little memory beside the bound, however small they are.
const PIECE_COUNTS: u64 = 1_024;

/// Consecutive bytes, where they are.
#[derive(Clone, Copy, Debug)]
struct Piece {
    offset: u64,
    position: u64,
    len: u32,
}

impl Piece {
    const fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    fn entry_len(&self) -> u64 {
        entry_len(36 + self.len as usize)
    }

    fn counts(&self) -> u64 {
        self.entry_len().max(PIECE_COUNTS)
    }
}

/// What is held of one flow.
#[derive(Clone, Default, Debug)]
struct Stream {
    /// What lies before it is consumed.
    start: u64,
    end: u64,
    pieces: VecDeque<Piece>,
    /// Whether the log says where it starts.
    is_marked: bool,
}

#[derive(Debug)]
pub struct ByteLog {
    streams: HashMap<FlowName, Stream>,
    log: Log,
    /// What each device's pieces count.
    hosts: HashMap<DeviceId, u64>,
    held: u64,
    most: u64,
    most_per_host: u64,
    /// Pieces that were copied out of the oldest segment, which is there as long as the copies are not synced: of whom, from where, and where to.
    moved: Vec<(FlowName, Piece, u64)>,
    /// Flows that were forgotten, and behind which position that is synced, if it was told: until then a restart may find their bytes.
    forgotten: HashMap<FlowName, Option<u64>>,
    /// Streams of which the log may not say where they start.
    unmarked: Vec<FlowName>,
    /// Whether some that were forgotten were not told, or that is lost.
    has_untold: bool,
}

impl ByteLog {
    pub fn open(folder: &Path, settings: &Settings) -> Result<(Self, Vec<Damage>), OpenError> {
        let mut found = HashMap::new();
        let visit = |_: &mut Log, entry: &Entry<'_>| recover(&mut found, entry);
        let (log, damages) = Log::open(folder, Kind::Bytes, settings.segment_len, settings.salt, visit)?;
        let (most, most_per_host) = (settings.bytes, settings.bytes_per_host);
        let mut bytes = Self {
            streams: HashMap::new(),
            log,
            hosts: HashMap::new(),
            held: 0,
            most,
            most_per_host,
            moved: Vec::new(),
            forgotten: HashMap::new(),
            unmarked: Vec::new(),
            has_untold: false,
        };
        for (name, stream) in found.into_iter().filter_map(|(name, found)| Some((name, found.stream()?))) {
            for piece in &stream.pieces {
                bytes.count(name.device, piece.counts());
                bytes.log.needs(piece.entry_len());
            }
            bytes.streams.insert(name, stream);
        }
        Ok((bytes, damages))
    }

    /// What counts against the bound, and the bytes on disk.
    pub fn usage(&self) -> (u64, u64) {
        (self.held, self.log.total())
    }

    /// Forgets the streams of flows that are not there any more.
    pub fn keep_only(&mut self, is_there: impl Fn(FlowName) -> bool) {
        let gone: Vec<FlowName> = self.streams.keys().filter(|name| !is_there(**name)).copied().collect();
        for name in gone {
            let _ = self.forget(name);
        }
    }

    pub fn held(&self, name: FlowName) -> Option<ByteRange> {
        self.streams.get(&name).map(|stream| ByteRange::new(stream.start, stream.end))
    }

    pub fn append(&mut self, name: FlowName, offset: u64, bytes: &[u8]) -> Result<u64, StoreError> {
        let held = self.held(name).unwrap_or(ByteRange::new(offset, offset));
        if offset > held.end {
            return Err(StoreError::Gap { asked: offset, held });
        }
        let known = usize::try_from(held.end - offset).unwrap_or(usize::MAX).min(bytes.len());
        if !self.streams.get(&name).is_some_and(|stream| stream.is_marked) {
            // Not behind what follows.
            if self.forgotten.get(&name) == Some(&None) {
                self.tell_forgotten(name)?;
            }
            self.mark(CONSUMED, name, Some(held.start))?;
            let fresh = Stream { start: held.start, end: held.end, ..Stream::default() };
            self.streams.entry(name).or_insert(fresh).is_marked = true;
        }
        let mut end = held.end;
        for part in bytes[known..].chunks(PIECE) {
            let piece = Piece { offset: end, position: 0, len: part.len() as u32 };
            self.admit(name.device, piece.counts())?;
            let (flow, at) = (name.flow.0.to_be_bytes(), end.to_be_bytes());
            let position = self.log.append(BYTES, &[&name.device.0, &flow, &at, part])?;
            self.count(name.device, piece.counts());
            let stream = self.streams.get_mut(&name).expect("it is marked");
            stream.pieces.push_back(Piece { position, ..piece });
            stream.end = piece.end();
            end = stream.end;
        }
        Ok(end)
    }

    fn admit(&self, host: DeviceId, counts: u64) -> Result<(), StoreError> {
        if self.held + counts > self.most {
            return Err(StoreError::Full("as many bytes as it may that nobody has consumed"));
        }
        let held = self.hosts.get(&host).copied().unwrap_or_default();
        match held + counts > self.most_per_host {
            true => Err(StoreError::DeviceFull("bytes that nobody has consumed")),
            false => Ok(()),
        }
    }

    fn count(&mut self, host: DeviceId, counts: u64) {
        self.held += counts;
        *self.hosts.entry(host).or_default() += counts;
    }

    fn uncount(&mut self, host: DeviceId, counts: u64) {
        self.held -= counts;
        if let Some(held) = self.hosts.get_mut(&host) {
            *held -= counts;
            if *held == 0 {
                self.hosts.remove(&host);
            }
        }
    }

    pub fn read(&self, name: FlowName, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        let Some(stream) = self.streams.get(&name) else { return Ok(0) };
        if offset < stream.start || offset > stream.end {
            return Err(StoreError::Gap { asked: offset, held: ByteRange::new(stream.start, stream.end) });
        }
        let first = stream.pieces.partition_point(|piece| piece.end() <= offset);
        let mut have = 0;
        for piece in stream.pieces.range(first..) {
            let at = offset + have as u64;
            let damaged = || StoreError::Damaged(format!("byte {at} of a flow is not what was written"));
            let (_, bytes) = self.log.read(piece.position)?.ok_or_else(damaged)?;
            let bytes = bytes.get(36 + (at - piece.offset) as usize..).ok_or_else(damaged)?;
            let len = bytes.len().min(into.len() - have);
            into[have..have + len].copy_from_slice(&bytes[..len]);
            have += len;
            if have == into.len() {
                break;
            }
        }
        Ok(have)
    }

    pub fn consume(&mut self, name: FlowName, offset: u64) -> Result<(), StoreError> {
        let Some(stream) = self.streams.get_mut(&name).filter(|stream| stream.start < offset) else { return Ok(()) };
        stream.start = offset.min(stream.end);
        let start = stream.start;
        let gone = stream.pieces.partition_point(|piece| piece.end() <= start);
        let gone: Vec<Piece> = stream.pieces.drain(..gone).collect();
        self.drop_pieces(name, gone);
        self.mark(CONSUMED, name, Some(start))
    }

    /// Nothing before `start` is asked for any more; if that is beyond what is held, there the next begins.
    pub fn go_on(&mut self, name: FlowName, start: u64) -> Result<(), StoreError> {
        self.consume(name, start)?;
        if let Some(stream) = self.streams.get_mut(&name).filter(|stream| stream.end < start) {
            (stream.start, stream.end, stream.is_marked) = (start, start, false);
            self.unmarked.push(name);
        }
        Ok(())
    }

    /// Appends what the log does not say: because it could not be written, or was lost, or goes without saying until bytes follow. To be done before a sync after which bytes are
    /// said to be kept.
    pub fn write_marks(&mut self) -> Result<(), StoreError> {
        if self.has_untold {
            let untold: Vec<_> =
                self.forgotten.iter().filter(|(_, end)| end.is_none()).map(|(name, _)| *name).collect();
            for name in untold {
                self.tell_forgotten(name)?;
            }
            self.has_untold = false;
        }
        while let Some(name) = self.unmarked.last().copied() {
            if let Some(stream) = self.streams.get(&name).filter(|stream| !stream.is_marked) {
                self.mark(CONSUMED, name, Some(stream.start))?;
                self.streams.entry(name).and_modify(|stream| stream.is_marked = true);
            }
            self.unmarked.pop();
        }
        Ok(())
    }

    fn drop_pieces(&mut self, name: FlowName, pieces: impl IntoIterator<Item = Piece>) {
        for piece in pieces {
            self.uncount(name.device, piece.counts());
            self.log.release(piece.entry_len());
        }
    }

    /// Forgets all of a flow.
    pub fn forget(&mut self, name: FlowName) -> Result<(), StoreError> {
        if self.drop_stream(name) { self.tell_forgotten(name) } else { Ok(()) }
    }

    /// Holds nothing of a flow any more, though a restart would find it until that is [told](Self::tell_forgotten); whether anything was held.
    pub fn drop_stream(&mut self, name: FlowName) -> bool {
        let Some(stream) = self.streams.remove(&name) else { return false };
        self.drop_pieces(name, stream.pieces);
        true
    }

    /// Tells the log that all of a flow is forgotten.
    pub fn tell_forgotten(&mut self, name: FlowName) -> Result<(), StoreError> {
        self.forgotten.insert(name, None);
        self.has_untold = true;
        self.mark(FORGOTTEN, name, None)?;
        self.forgotten.insert(name, Some(self.log.end()));
        Ok(())
    }

    /// Whether a restart could find bytes of this flow that are forgotten.
    pub fn may_return(&self, name: FlowName) -> bool {
        self.forgotten.get(&name).is_some_and(|end| end.is_none_or(|end| end > self.log.synced()))
    }

    /// Forgets a flow of which nothing is held beyond `end`: its record says so.
    pub fn settle(&mut self, name: FlowName, end: u64) -> Result<(), StoreError> {
        match self.held(name) {
            Some(held) if held == ByteRange::new(end, end) => self.forget(name),
            _ => Ok(()),
        }
    }

    /// Marks are not reckoned as needed: what needs them is written again with them.
    fn mark(&mut self, kind: u8, name: FlowName, offset: Option<u64>) -> Result<(), StoreError> {
        let (flow, offset) = (name.flow.0.to_be_bytes(), offset.map(u64::to_be_bytes));
        let offset = offset.as_ref().map_or(&[][..], |offset| offset);
        self.log.append(kind, &[&name.device.0, &flow, offset])?;
        self.log.release(entry_len(28 + offset.len()));
        Ok(())
    }

    /// Copies what is needed of the oldest segment, if that is worth it; whether it was.
    pub fn tidy(&mut self) -> io::Result<bool> {
        let synced = self.log.synced();
        self.forgotten.retain(|_, end| end.is_none_or(|end| end > synced));
        if self.log.tidied()? {
            self.moved.clear();
        }
        if !self.log.is_untidy(self.streams.len() as u64 * entry_len(36)) {
            return Ok(false);
        }
        let oldest = self.log.oldest()?;
        let mut marks = HashSet::new();
        for entry in oldest.entries() {
            let Some(name) = entry.bytes.first_chunk().map(name_of) else { continue };
            let Some(stream) = self.streams.get_mut(&name) else { continue };
            // How far it is consumed is said again with what is held, or for itself.
            if entry.kind == CONSUMED || entry.kind == BYTES {
                marks.insert(name);
            }
            let Some(offset) = entry.bytes[28..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes)) else {
                continue;
            };
            let at = stream.pieces.binary_search_by_key(&offset, |piece| piece.offset);
            if entry.kind == BYTES
                && let Ok(at) = at
                && stream.pieces[at].position == entry.position
            {
                let before = stream.pieces[at];
                stream.pieces[at].position = self.log.append(BYTES, &[entry.bytes])?;
                self.moved.push((name, before, stream.pieces[at].position));
                self.log.release(entry.len());
            }
        }
        for name in marks {
            let start = self.streams[&name].start;
            self.mark(CONSUMED, name, Some(start)).map_err(io::Error::other)?;
        }
        self.log.copied(&oldest);
        Ok(true)
    }
}

impl Logged for ByteLog {
    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn lost(&mut self, from: u64) {
        for (name, before, after) in std::mem::take(&mut self.moved) {
            let Some(stream) = self.streams.get_mut(&name) else { continue };
            if let Ok(at) = stream.pieces.binary_search_by_key(&before.offset, |piece| piece.offset)
                && stream.pieces[at].position == after
            {
                stream.pieces[at].position = before.position;
            }
        }
        for end in self.forgotten.values_mut().filter(|end| end.is_none_or(|end| end > from)) {
            (*end, self.has_untold) = (None, true);
        }
        self.unmarked = self.streams.keys().copied().collect();
        let mut gone = Vec::new();
        for (name, stream) in &mut self.streams {
            stream.is_marked = false;
            let kept = stream.pieces.iter().take_while(|piece| piece.position < from).count();
            gone.extend(stream.pieces.drain(kept..).map(|piece| (*name, piece)));
            stream.end = stream.pieces.back().map_or(stream.start, Piece::end);
        }
        for (name, piece) in gone {
            self.drop_pieces(name, [piece]);
        }
    }
}

/// What the log says of a stream, in whatever order: pieces are copied behind later ones when a segment is to go.
#[derive(Default, Debug)]
struct Found {
    mark: Option<u64>,
    pieces: BTreeMap<u64, Piece>,
}

/// Takes in an entry of the log, at the start.
fn recover(found: &mut HashMap<FlowName, Found>, entry: &Entry<'_>) {
    let Some((name, rest)) = entry.bytes.split_first_chunk() else { return };
    let name = name_of(name);
    let offset = rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    match (entry.kind, offset) {
        (BYTES, Some(offset)) => {
            let piece = Piece { offset, position: entry.position, len: (rest.len() - 8) as u32 };
            found.entry(name).or_default().pieces.insert(offset, piece);
        }
        (CONSUMED, Some(offset)) => {
            let stream = found.entry(name).or_default();
            stream.mark = stream.mark.max(Some(offset));
        }
        (FORGOTTEN, _) => drop(found.remove(&name)),
        _ => {}
    }
}

impl Found {
    /// What follows on what is consumed, without a gap. Without a mark nobody knows what is missing before the first piece.
    fn stream(self) -> Option<Stream> {
        let start = self.mark?;
        let mut stream = Stream { start, end: start, pieces: VecDeque::new(), is_marked: true };
        for piece in self.pieces.into_values() {
            if piece.offset <= stream.end && piece.end() > stream.end {
                stream.end = piece.end();
                stream.pieces.push_back(piece);
            }
        }
        Some(stream)
    }
}
