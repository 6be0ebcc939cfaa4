//! The lanes of one WebSocket: [`Lanes`] has what each wants to send and what came for it. Pure: the waiting is the shell's, which the handles wake.
//!
//! ```text
//! message = head (varint: 4 x lane + word) | bytes (for word 0 alone)
//! ```
//!
//! Lanes that have something to send take turns, a message each, so that none waits for more than one message of every other.
//!
//! What came and nobody has read is counted by what it keeps in memory, which is more than its bytes: a piece holds the whole buffer that it was cut from, and costs something by itself.

use super::buffers::BUFFER;
use super::frames::{MESSAGE_MAX, PIECE_MIN, Violation};
use bytes::{Buf as _, Bytes};
use hoop_flow::{put_varint, take_varint};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// Lanes at once. They cost nothing before they are opened, and what waits of them is bounded together.
pub(super) const LANES_MAX: usize = crate::LANES_MAX as usize;

/// Messages that a lane has ready before its sender waits: one that is on its way into TLS, and one behind it.
const OUTGOING_MAX: usize = 2;

/// What a lane holds that nobody has read, before the connection is read no further: as much as one lane of QUIC may have under way.
pub(super) const HELD_MAX: usize = 1 << 20;

/// The same of all lanes together: twice that, as of QUIC.
pub(super) const HELD_TOGETHER_MAX: usize = 2 * HELD_MAX;

/// The same of those that were not accepted yet, which anybody may have opened: the first messages of sixteen lanes. Whoever accepts them reads on.
pub(super) const OFFERED_MAX: usize = 64 * 1024;

/// How many lanes may wait to be accepted before nothing more is read: a lane costs some 700 bytes even if nothing came for it.
pub(super) const OFFERED_LANES_MAX: usize = 128;

/// What a server's lanes hold together, and each of them, until it is known whose the carrier is: as much as a stranger may send by QUIC.
pub(super) const HELD_OF_STRANGER: usize = crate::STRANGER_WINDOW as usize;

/// Once lanes hold such a part of what they may hold together, what else comes is copied out of the buffer that it came in. Who keeps up has no more than a few pieces waiting, and nothing of its
/// copied.
const COPY_FROM: usize = 4;

/// What a piece costs beside its bytes: its place in the lane, and what the allocator and the count of its users take.
const PIECE: usize = 128;

/// What goes into one message: a flow's longest frame, with its heads.
pub(super) const BYTES_MAX: usize = MESSAGE_MAX - 16;

/// What a message says of its lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// 0: bytes of it.
    Data,
    /// 1: its sender has said all.
    End,
    /// 2: its sender has broken it off.
    BrokenOff,
    /// 3: its reader reads no more.
    Unread,
}

impl Word {
    const ALL: [Self; 4] = [Self::Data, Self::End, Self::BrokenOff, Self::Unread];
}

/// A message to send.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub(super) lane: u64,
    pub(super) word: Word,
    pub(super) chunks: Vec<Bytes>,
}

impl Message {
    /// Bytes behind its head.
    pub(super) fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    pub(super) fn put_head(&self, out: &mut Vec<u8>) {
        put_varint(out, self.lane << 2 | self.word as u64);
    }
}

/// A lane as this end knows it; its number on the wire comes with its first message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key(u64);

/// What wakes the halves of a lane.
#[derive(Clone, Default, Debug)]
pub(super) struct Wakers {
    /// The sender: there is room, or no use.
    pub(super) writable: Arc<Notify>,
    /// The receiver: there is something, or nothing will come.
    pub(super) readable: Arc<Notify>,
}

/// This end's direction of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SendState {
    Open,
    /// END is due, after what waits.
    Ending,
    /// BROKEN OFF is due.
    Breaking,
    Over,
}

/// The other end's direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RecvState {
    Open,
    Ended,
    BrokenOff,
}

#[derive(Debug)]
struct Lane {
    number: Option<u64>,
    /// It stands in the row of those that send.
    in_row: bool,
    outgoing: VecDeque<Vec<Bytes>>,
    sending: SendState,
    /// The other end reads no more.
    unread_by_them: bool,
    incoming: VecDeque<Piece>,
    held: usize,
    /// At a server: nobody has accepted it yet.
    is_offered: bool,
    receiving: RecvState,
    /// This end reads no more.
    unread: bool,
    /// UNREAD is due.
    unread_due: bool,
    /// How many of its halves the application has.
    halves: u8,
    /// It no longer counts among the lanes at once.
    closed: bool,
    wakers: Wakers,
}

impl Lane {
    fn new(number: Option<u64>) -> Self {
        Self {
            number,
            in_row: false,
            outgoing: VecDeque::new(),
            sending: SendState::Open,
            unread_by_them: false,
            incoming: VecDeque::new(),
            held: 0,
            is_offered: false,
            receiving: RecvState::Open,
            unread: false,
            unread_due: false,
            halves: 2,
            closed: false,
            wakers: Wakers::default(),
        }
    }

    fn has_something(&self) -> bool {
        // Of a lane that was never spoken of, nobody need hear that it is not read.
        let unread_due = self.unread_due && self.number.is_some();
        !self.outgoing.is_empty() || matches!(self.sending, SendState::Ending | SendState::Breaking) || unread_due
    }

    /// A message of it came, or a piece of one; `copies`: it is not to stay in the buffer in which it lies.
    fn hear(&mut self, word: Word, bytes: Bytes, is_own: bool, copies: bool) {
        match word {
            Word::Data if self.unread || bytes.is_empty() => {}
            Word::Data if copies => self.push(Piece::copied(&bytes)),
            Word::Data => self.push(Piece::new(bytes, is_own)),
            Word::End => self.receiving = RecvState::Ended,
            Word::BrokenOff => {
                self.receiving = RecvState::BrokenOff;
                self.drop_incoming();
            }
            Word::Unread => {
                self.unread_by_them = true;
                self.outgoing.clear();
                if matches!(self.sending, SendState::Open | SendState::Ending) {
                    self.sending = SendState::Breaking;
                }
                self.wakers.writable.notify_one();
            }
        }
        self.wakers.readable.notify_one();
    }

    /// The next thing to say of it; None if it was never spoken of, and need not be.
    fn say(&mut self) -> Option<(Word, Vec<Bytes>)> {
        if let Some(chunks) = self.outgoing.pop_front() {
            self.wakers.writable.notify_one();
            return Some((Word::Data, chunks));
        }
        let word = match self.sending {
            SendState::Ending => Word::End,
            SendState::Breaking => Word::BrokenOff,
            SendState::Open | SendState::Over => {
                self.unread_due = false;
                return Some((Word::Unread, Vec::new()));
            }
        };
        self.sending = SendState::Over;
        (word == Word::End || self.number.is_some()).then(|| (word, Vec::new()))
    }

    fn push(&mut self, piece: Piece) {
        self.held += piece.holds;
        self.incoming.push_back(piece);
    }

    /// What waits to be read is dropped.
    fn drop_incoming(&mut self) {
        self.incoming = VecDeque::new();
        self.held = 0;
    }

    /// Nothing of it is read any more; what waits is dropped.
    fn stop_reading(&mut self) {
        self.drop_incoming();
        if !self.unread {
            self.unread = true;
            self.unread_due = self.receiving == RecvState::Open;
        }
        self.wakers.readable.notify_one();
    }
}

/// Bytes that came.
#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    /// How much memory it holds, at most.
    holds: usize,
}

impl Piece {
    /// As it came: `is_own` if it lies by itself, and in a buffer otherwise.
    fn new(bytes: Bytes, is_own: bool) -> Self {
        let holds = if is_own { bytes.len() + PIECE } else { BUFFER.max(bytes.len()) };
        Self { bytes, holds }
    }

    fn copied(bytes: &[u8]) -> Self {
        Self::new(Bytes::copy_from_slice(bytes), true)
    }
}

/// How sending stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Free,
    Full,
    /// Nobody reads, or the lane was finished.
    Useless,
}

/// What a receiver finds.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Read {
    Data(Bytes),
    Nothing,
    End,
    BrokenOff,
}

/// All lanes of a connection.
#[derive(Debug)]
pub(super) struct Lanes {
    is_device: bool,
    lanes: BTreeMap<Key, Lane>,
    /// Those whose number is known and that are not over.
    numbers: BTreeMap<u64, Key>,
    /// Those that this end has let go of, and has said so. The other end has not ended them yet, so that they still count among the lanes at once.
    let_go: BTreeSet<u64>,
    next_key: u64,
    next_number: u64,
    /// Who has something to send, in turn.
    row: VecDeque<Key>,
    /// New ones, at a server.
    offered: VecDeque<Key>,
    /// Those that count among the lanes at once.
    open: usize,
    /// The message whose frames have not all come.
    heard: Option<(u64, Word)>,
    /// What all lanes may hold before nothing more is heard.
    most: usize,
    /// What all lanes hold.
    held: usize,
    /// What those hold that nobody has accepted.
    held_offered: usize,
    /// Wakes the connection: less is held than was.
    taken: Arc<Notify>,
}

/// Why nothing more is to be heard until something is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Full {
    /// One lane holds as much as it may.
    Lane,
    /// Those that nobody has accepted do.
    Offered,
    /// All of them do.
    Together,
}

impl Lanes {
    pub(super) fn new(is_device: bool) -> Self {
        Self {
            is_device,
            lanes: BTreeMap::new(),
            numbers: BTreeMap::new(),
            let_go: BTreeSet::new(),
            next_key: 0,
            next_number: 0,
            row: VecDeque::new(),
            offered: VecDeque::new(),
            open: 0,
            heard: None,
            most: if is_device { HELD_TOGETHER_MAX } else { HELD_OF_STRANGER },
            held: 0,
            held_offered: 0,
            taken: Arc::default(),
        }
    }

    /// A new lane of this device's, if there may be one more.
    pub(super) fn open(&mut self) -> Option<(Key, Wakers)> {
        (self.open < LANES_MAX).then(|| self.insert(None))
    }

    /// At a server: it is known whose the carrier is, and lanes may hold more than a stranger's.
    pub(super) fn set_known(&mut self) {
        self.most = HELD_TOGETHER_MAX;
        self.taken.notify_one();
    }

    /// The next lane that the device has opened.
    pub(super) fn accept(&mut self) -> Option<(Key, Wakers)> {
        let key = self.offered.pop_front()?;
        let lane = self.lanes.get_mut(&key)?;
        lane.is_offered = false;
        self.held_offered -= lane.held;
        self.taken.notify_one();
        Some((key, lane.wakers.clone()))
    }

    fn insert(&mut self, number: Option<u64>) -> (Key, Wakers) {
        let key = Key(self.next_key);
        self.next_key += 1;
        self.open += 1;
        let lane = Lane::new(number);
        let wakers = lane.wakers.clone();
        self.lanes.insert(key, lane);
        (key, wakers)
    }

    /// Whether a lane's sender may [`Lanes::send`].
    pub(super) fn room(&self, key: Key) -> Room {
        match self.lanes.get(&key) {
            Some(lane) if lane.unread_by_them || lane.sending != SendState::Open => Room::Useless,
            Some(lane) if lane.outgoing.len() >= OUTGOING_MAX => Room::Full,
            Some(_) => Room::Free,
            None => Room::Useless,
        }
    }

    /// Sends chunks of at most [`BYTES_MAX`] together.
    pub(super) fn send(&mut self, key: Key, chunks: Vec<Bytes>) {
        self.change(key, |lane| lane.outgoing.push_back(chunks));
    }

    /// No more is sent; false if nobody reads, or it was finished already.
    pub(super) fn finish(&mut self, key: Key) -> bool {
        let is_open = self.room(key) != Room::Useless;
        if is_open {
            self.change(key, |lane| lane.sending = SendState::Ending);
        }
        is_open
    }

    /// The application has dropped its sender.
    pub(super) fn drop_sender(&mut self, key: Key) {
        self.change(key, |lane| {
            lane.halves -= 1;
            if lane.sending == SendState::Open {
                lane.outgoing.clear();
                lane.sending = SendState::Breaking;
            }
        });
    }

    /// The application has dropped its receiver.
    pub(super) fn drop_receiver(&mut self, key: Key) {
        self.change(key, |lane| {
            lane.halves -= 1;
            lane.stop_reading();
        });
    }

    /// There was no room for too long since `last` was heard: of the lanes that hold up others nothing is read any more, so that there is some. It is those that hold most: whoever is
    /// read from holds little. Of those that nobody has accepted nothing stays.
    pub(super) fn break_off(&mut self, last: Key) {
        while let Some(full) = self.full(last) {
            let most = |fits: fn(&Lane) -> bool| {
                let fitting = self.lanes.iter().filter(|(_, lane)| fits(lane));
                fitting.max_by_key(|(_, lane)| lane.held).map(|(key, _)| *key)
            };
            let sleeper = match full {
                Full::Lane => Some(last),
                Full::Offered => most(|lane| lane.is_offered),
                Full::Together => most(|_| true),
            };
            let Some(sleeper) = sleeper else { return };
            self.change(sleeper, Lane::stop_reading);
            if full == Full::Offered {
                self.give_up_offered(sleeper);
            }
        }
    }

    /// Nobody will accept a lane that waits for that, and of which nothing is read any more.
    fn give_up_offered(&mut self, key: Key) {
        self.offered.retain(|other| *other != key);
        self.change(key, |lane| {
            lane.is_offered = false;
            lane.halves = 0;
            lane.sending = SendState::Breaking;
        });
    }

    /// The next bytes of a lane, at most `most`.
    pub(super) fn read(&mut self, key: Key, most: usize) -> Read {
        let Some(lane) = self.lanes.get_mut(&key) else { return Read::BrokenOff };
        let Some(front) = lane.incoming.front_mut() else {
            return match lane.receiving {
                _ if lane.unread => Read::BrokenOff,
                RecvState::Open => Read::Nothing,
                RecvState::Ended => Read::End,
                RecvState::BrokenOff => Read::BrokenOff,
            };
        };
        let bytes = front.bytes.split_to(most.min(front.bytes.len()));
        if front.bytes.is_empty() {
            let before = lane.held;
            lane.held -= front.holds;
            lane.incoming.pop_front();
            let (is_offered, after) = (lane.is_offered, lane.held);
            self.count(is_offered, before, after);
        }
        Read::Data(bytes)
    }

    /// A lane holds another amount than before.
    fn count(&mut self, is_offered: bool, before: usize, after: usize) {
        self.held = self.held + after - before;
        if is_offered {
            self.held_offered = self.held_offered + after - before;
        }
        if after < before {
            self.taken.notify_one();
        }
    }

    /// Whether nothing more is to be heard until something is read; `last` was heard for last.
    pub(super) fn is_full(&self, last: Key) -> bool {
        self.full(last).is_some()
    }

    fn full(&self, last: Key) -> Option<Full> {
        if self.lanes.get(&last).is_some_and(|lane| lane.held >= HELD_MAX.min(self.most)) {
            return Some(Full::Lane);
        }
        if self.held_offered >= OFFERED_MAX || self.offered.len() >= OFFERED_LANES_MAX {
            return Some(Full::Offered);
        }
        (self.held >= self.most).then_some(Full::Together)
    }

    /// What all lanes hold, in bytes of memory.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Whether all that are remembered count among the lanes at once: so it is while nobody has accepted any.
    pub(super) fn all_count(&self) -> bool {
        self.lanes.len() + self.let_go.len() == self.open
    }

    /// What tells that less is held than was.
    pub(super) fn taken(&self) -> Arc<Notify> {
        self.taken.clone()
    }

    /// The next message, if any lane has one.
    pub(super) fn next_message(&mut self) -> Option<Message> {
        loop {
            let key = self.row.pop_front()?;
            let lane = self.lanes.get_mut(&key)?;
            lane.in_row = false;
            let said = lane.say();
            let Some((word, chunks)) = said else {
                self.settle(key);
                continue;
            };
            let lane_number = match lane.number {
                Some(number) => number,
                None => {
                    let number = self.next_number;
                    self.next_number += 1;
                    lane.number = Some(number);
                    self.numbers.insert(number, key);
                    number
                }
            };
            self.settle(key);
            return Some(Message { lane: lane_number, word, chunks });
        }
    }

    /// Whether any lane has something to send.
    pub(super) fn has_messages(&self) -> bool {
        !self.row.is_empty()
    }

    /// Takes a frame of a message that came, or a piece of one as [`Frames`](super::frames::Frames) gives it. Returns the lane that it was for, if [nothing more](Self::is_full) is to be
    /// heard now.
    pub(super) fn hear(&mut self, first: bool, last: bool, mut bytes: Bytes) -> Result<Option<Key>, Violation> {
        let is_own = bytes.len() < PIECE_MIN;
        let (number, word) = match self.heard.take() {
            Some(heard) if !first => heard,
            _ => take_head(&mut bytes)?,
        };
        if !last {
            self.heard = Some((number, word));
        }
        if word != Word::Data && !(first && last && bytes.is_empty()) {
            return Err(Violation::Head);
        }
        let Some(key) = self.lane_of(number, word)? else { return Ok(None) };
        let lane = self.lanes.get(&key).ok_or(Violation::Over(number))?;
        if word != Word::Unread && lane.receiving != RecvState::Open {
            return Err(Violation::Over(number));
        }
        let copies = !is_own && (self.held >= self.most / COPY_FROM || lane.is_offered);
        self.change(key, |lane| lane.hear(word, bytes, is_own, copies));
        Ok(self.is_full(key).then_some(key))
    }

    /// The lane of that number; a new one where the device opens one. None for one that is over, of which nobody need hear more.
    fn lane_of(&mut self, number: u64, word: Word) -> Result<Option<Key>, Violation> {
        if let Some(key) = self.numbers.get(&number) {
            return Ok(Some(*key));
        }
        if self.let_go.contains(&number) {
            if matches!(word, Word::End | Word::BrokenOff) {
                self.let_go.remove(&number);
                self.open -= 1;
            }
            return Ok(None);
        }
        if number < self.next_number {
            // It crossed the last message of this end's.
            return if word == Word::Unread { Ok(None) } else { Err(Violation::Over(number)) };
        }
        if self.is_device || number > self.next_number {
            return Err(Violation::Number(number));
        }
        if self.open >= LANES_MAX {
            return Err(Violation::Lanes);
        }
        let (key, _) = self.insert(Some(number));
        self.lanes.entry(key).and_modify(|lane| lane.is_offered = true);
        self.next_number += 1;
        self.numbers.insert(number, key);
        self.offered.push_back(key);
        Ok(Some(key))
    }

    fn change(&mut self, key: Key, change: impl FnOnce(&mut Lane)) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let before = lane.held;
        change(lane);
        let (is_offered, after) = (lane.is_offered, lane.held);
        self.count(is_offered, before, after);
        self.settle(key);
    }

    /// Puts a lane into the row if it has something to say, and forgets it once it is over and nobody holds it. Of one that only the other end has still to end, its number is remembered.
    fn settle(&mut self, key: Key) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        if lane.has_something() {
            if !lane.in_row {
                lane.in_row = true;
                self.row.push_back(key);
            }
            return;
        }
        let unspoken = lane.number.is_none();
        if lane.sending == SendState::Over && (unspoken || lane.receiving != RecvState::Open) && !lane.closed {
            lane.closed = true;
            self.open -= 1;
            if let Some(number) = lane.number {
                self.numbers.remove(&number);
            }
        }
        if lane.sending == SendState::Over && lane.halves == 0 && !lane.closed {
            if let Some(number) = lane.number {
                self.numbers.remove(&number);
                self.let_go.insert(number);
            }
            self.lanes.remove(&key);
            return;
        }
        if lane.closed && (lane.halves == 0 || lane.is_offered) {
            let (is_offered, held) = (lane.is_offered, lane.held);
            self.lanes.remove(&key);
            self.count(is_offered, held, 0);
            // One that nobody has accepted is over: nobody need, and it takes no place among those that wait. They wait as they came.
            if is_offered && let Ok(at) = self.offered.binary_search(&key) {
                self.offered.remove(at);
            }
        }
    }

    /// Whether lanes wait to be accepted.
    pub(super) fn has_offered(&self) -> bool {
        !self.offered.is_empty()
    }

    /// Whether the device may open another.
    pub(super) fn may_open(&self) -> bool {
        self.open < LANES_MAX
    }

    /// Wakes whoever waits for any lane.
    pub(super) fn wake_all(&self) {
        for lane in self.lanes.values() {
            lane.wakers.readable.notify_one();
            lane.wakers.writable.notify_one();
        }
        self.taken.notify_one();
    }
}

fn take_head(bytes: &mut Bytes) -> Result<(u64, Word), Violation> {
    let mut rest = &bytes[..];
    let head = take_varint(&mut rest).map_err(|_| Violation::Head)?;
    bytes.advance(bytes.len() - rest.len());
    Ok((head >> 2, Word::ALL[(head & 3) as usize]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lane: u64, word: Word) -> Bytes {
        let mut out = Vec::new();
        Message { lane, word, chunks: Vec::new() }.put_head(&mut out);
        out.into()
    }

    fn bytes(lane: u64, bytes: &[u8]) -> Bytes {
        [&head(lane, Word::Data)[..], bytes].concat().into()
    }

    fn hear(lanes: &mut Lanes, message: Bytes) -> Result<Option<Key>, Violation> {
        lanes.hear(true, true, message)
    }

    #[test]
    fn lanes_take_turns_a_message_each_and_are_numbered_as_they_first_speak() {
        let mut lanes = Lanes::new(true);
        let keys: Vec<Key> = (0..3).map(|_| lanes.open().expect("there is room").0).collect();
        for key in [keys[2], keys[0], keys[2], keys[0], keys[1]] {
            lanes.send(key, vec![Bytes::from_static(b"x")]);
        }
        let said: Vec<u64> = std::iter::from_fn(|| lanes.next_message()).map(|message| message.lane).collect();
        assert_eq!(said, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn a_lane_that_never_spoke_is_dropped_without_a_word() {
        let mut lanes = Lanes::new(true);
        let (key, _) = lanes.open().expect("there is room");
        lanes.drop_sender(key);
        lanes.drop_receiver(key);
        assert_eq!(lanes.next_message(), None);
        assert!(lanes.lanes.is_empty() && lanes.open == 0);
    }

    #[test]
    fn both_ends_forget_a_lane_in_whatever_order_halves_and_directions_end() {
        // Who does what, and in which order: every one of the permutations.
        for order in 0..720_u32 {
            let (mut device, mut server) = (Lanes::new(true), Lanes::new(false));
            let (sending, _) = device.open().expect("there is room");
            device.send(sending, vec![Bytes::from_static(b"hello")]);
            exchange(&mut device, &mut server);
            let (receiving, _) = server.accept().expect("it came");
            let mut acts: Vec<u32> = (0..6).collect();
            let mut rest = order;
            for at in (1..6).rev() {
                acts.swap(at as usize, (rest % (at + 1)) as usize);
                rest /= at + 1;
            }
            for act in acts {
                match act {
                    0 => drop(device.finish(sending)),
                    1 => device.drop_sender(sending),
                    2 => device.drop_receiver(sending),
                    3 => drop(server.finish(receiving)),
                    4 => server.drop_sender(receiving),
                    _ => server.drop_receiver(receiving),
                }
                if order % 2 == 0 {
                    exchange(&mut device, &mut server);
                }
            }
            exchange(&mut device, &mut server);
            for lanes in [&device, &server] {
                let is_empty = lanes.lanes.is_empty() && lanes.numbers.is_empty() && lanes.let_go.is_empty();
                assert!(is_empty && lanes.open == 0, "{order}: {lanes:?}");
            }
        }
    }

    /// All that both have to say, until neither has more; what crosses, crosses.
    fn exchange(device: &mut Lanes, server: &mut Lanes) {
        for _ in 0..100 {
            let there: Vec<Message> = std::iter::from_fn(|| device.next_message()).collect();
            let back: Vec<Message> = std::iter::from_fn(|| server.next_message()).collect();
            if there.is_empty() && back.is_empty() {
                return;
            }
            for (messages, to) in [(there, &mut *server), (back, &mut *device)] {
                for message in messages {
                    let mut bytes = Vec::new();
                    message.put_head(&mut bytes);
                    message.chunks.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
                    to.hear(true, true, bytes.into()).expect("no violation");
                }
            }
        }
        panic!("they never end");
    }

    #[test]
    fn a_device_has_so_many_lanes_at_once_and_one_more_is_a_violation() {
        let (mut device, mut server) = (Lanes::new(true), known());
        let keys: Vec<Key> = std::iter::from_fn(|| device.open()).map(|(key, _)| key).collect();
        assert_eq!(keys.len(), LANES_MAX);
        for number in 0..LANES_MAX as u64 {
            assert_eq!(hear(&mut server, bytes(number, b"x")), Ok(None));
            assert!(server.accept().is_some());
        }
        assert_eq!(hear(&mut server, bytes(LANES_MAX as u64, b"x")), Err(Violation::Lanes));
        device.drop_sender(keys[0]);
        device.drop_receiver(keys[0]);
        assert_eq!(device.next_message(), None);
        assert!(device.may_open() && device.open().is_some() && device.open().is_none());
    }

    #[test]
    fn messages_on_lanes_out_of_turn_or_ended_are_violations_unless_crossed() {
        let mut server = Lanes::new(false);
        assert_eq!(hear(&mut server, bytes(1, b"x")), Err(Violation::Number(1)));
        assert_eq!(hear(&mut Lanes::new(true), bytes(0, b"x")), Err(Violation::Number(0)), "a server's lane");
        assert_eq!(hear(&mut server, bytes(0, b"x")), Ok(None));
        assert_eq!(hear(&mut server, head(0, Word::End)), Ok(None));
        assert_eq!(hear(&mut server, bytes(0, b"x")), Err(Violation::Over(0)));
        let (key, _) = server.accept().expect("it came");
        assert!(server.finish(key));
        assert_eq!(server.next_message().map(|message| message.word), Some(Word::End));
        assert_eq!(hear(&mut server, head(0, Word::Unread)), Ok(None));
        assert_eq!(hear(&mut server, head(0, Word::End)), Err(Violation::Over(0)));
        for malformed in [&b""[..], &[0x40, 0x01], &[0x01, 0x00], &[0x02, 0x00], &[0x03, 0x00]] {
            assert_eq!(hear(&mut server, Bytes::copy_from_slice(malformed)), Err(Violation::Head), "{malformed:?}");
        }
    }

    /// A server's, of a carrier of which it is known whose it is.
    fn known() -> Lanes {
        let mut server = Lanes::new(false);
        server.set_known();
        server
    }

    #[test]
    fn what_nobody_reads_is_bounded_and_dropped_with_its_reader() {
        let mut server = known();
        let piece = bytes(0, &vec![0; 64 * 1024]);
        let mut messages = 0;
        let key = loop {
            messages += 1;
            if let Some(key) = hear(&mut server, piece.clone()).expect("no violation") {
                break key;
            }
        };
        assert_eq!(messages, 1, "nobody has accepted it");
        server.accept().expect("it came");
        assert!(!server.is_full(key));
        while hear(&mut server, piece.clone()).expect("no violation").is_none() {
            messages += 1;
        }
        assert_eq!(messages + 1, HELD_MAX / (64 * 1024));
        assert_eq!(server.read(key, HELD_MAX), Read::Data(Bytes::from(vec![0; 64 * 1024])));
        assert!(!server.is_full(key));
        assert_eq!(hear(&mut server, piece.clone()), Ok(Some(key)));
        server.break_off(key);
        assert_eq!(server.read(key, 9), Read::BrokenOff);
        assert_eq!(server.next_message().map(|message| message.word), Some(Word::Unread));
        assert_eq!(hear(&mut server, piece), Ok(None));
        assert_eq!(server.lanes[&key].held, 0);
    }

    const LANES: usize = 100;

    /// A server that has heard of so many lanes.
    fn with_lanes(accepts: bool) -> (Lanes, Vec<Key>) {
        let mut server = known();
        let mut keys = Vec::new();
        for number in 0..LANES as u64 {
            assert_eq!(hear(&mut server, bytes(number, b"x")), Ok(None));
            if accepts {
                keys.extend(server.accept().map(|(key, _)| key));
            }
        }
        (server, keys)
    }

    /// How many pieces of `len` bytes, cut from buffers one each, go to lanes in turns before nothing more is to be heard; and how many of these buffers are held then.
    fn fill(server: &mut Lanes, len: usize) -> (usize, usize) {
        let mut buffers = Vec::new();
        for number in (0..LANES as u64).cycle() {
            let mut buffer = bytes::BytesMut::with_capacity(BUFFER);
            buffer.extend_from_slice(&head(number, Word::Data));
            buffer.resize(buffer.len() + len, 7);
            let message = buffer.split().freeze();
            let message = if message.len() < PIECE_MIN { Bytes::copy_from_slice(&message) } else { message };
            let full = hear(server, message).expect("no violation");
            buffers.push(buffer);
            if full.is_some() {
                break;
            }
        }
        let pieces = buffers.len();
        (pieces, buffers.iter_mut().filter_map(|buffer| (!buffer.try_reclaim(BUFFER)).then_some(())).count())
    }

    #[test]
    fn lanes_that_are_over_before_anybody_accepts_them_are_forgotten() {
        let (mut server, _) = with_lanes(false);
        let (open, waiting) = (server.open, server.offered.len());
        let first = server.next_number;
        for number in first..first + 3 * LANES_MAX as u64 {
            let word = if number % 2 == 0 { Word::End } else { Word::BrokenOff };
            hear(&mut server, bytes(number, b"greeting")).unwrap();
            hear(&mut server, head(number, word)).unwrap();
            hear(&mut server, head(number, Word::Unread)).unwrap();
            assert_eq!(server.next_message().map(|said| (said.lane, said.word)), Some((number, Word::BrokenOff)));
            assert_eq!((server.lanes.len(), server.numbers.len(), server.offered.len()), (open, open, waiting));
            assert_eq!(server.held_offered, server.held);
        }
        let next = server.next_number;
        hear(&mut server, bytes(next, b"greeting")).unwrap();
        for _ in 0..waiting {
            assert!(server.accept().is_some());
        }
        let (key, _) = server.accept().unwrap();
        assert_eq!(server.read(key, 100), Read::Data(Bytes::from_static(b"greeting")));
        assert!(server.accept().is_none());
    }

    #[test]
    fn all_lanes_together_stay_within_a_bound_however_short_the_pieces_are() {
        for len in [1, 100, PIECE_MIN - 1, PIECE_MIN, 20_000, 64 * 1024] {
            let (mut server, _) = with_lanes(true);
            let (pieces, buffers) = fill(&mut server, len);
            let held = if buffers > 0 { buffers * BUFFER + (pieces - buffers) * len } else { pieces * (len + PIECE) };
            assert!(held <= HELD_TOGETHER_MAX + BUFFER + LANES * PIECE, "{held} for pieces of {len}");
            assert!(pieces * len >= HELD_TOGETHER_MAX / 200, "{pieces} pieces of {len} are very few");
        }
    }

    #[test]
    fn a_strangers_lanes_hold_little_until_it_is_known_whose_they_are() {
        for len in [1, 100, PIECE_MIN, 20_000, 64 * 1024] {
            let (mut server, keys) = with_lanes(true);
            server.most = HELD_OF_STRANGER;
            let (_, buffers) = fill(&mut server, len);
            assert!(server.held() <= HELD_OF_STRANGER + BUFFER + PIECE, "{} for pieces of {len}", server.held());
            assert!(buffers <= 1, "{buffers} buffers are held for pieces of {len}");
            let last = *keys.iter().find(|key| server.is_full(**key)).expect("it is full");
            server.set_known();
            assert!(!server.is_full(last), "pieces of {len}");
        }
    }

    #[test]
    fn unaccepted_lanes_share_at_most_64_kib_and_accepting_one_makes_room() {
        for len in [1, PIECE_MIN, 20_000] {
            let (mut server, _) = with_lanes(false);
            let (pieces, buffers) = fill(&mut server, len);
            assert_eq!(buffers, 0, "pieces of {len}");
            assert!((pieces - 1) * len <= OFFERED_MAX, "{pieces} pieces of {len}");
            let (first, _) = server.accept().expect("they wait");
            assert!(!server.is_full(first));
        }
    }

    #[test]
    fn few_lanes_wait_to_be_accepted_even_if_nothing_came_for_them() {
        let mut server = known();
        let mut numbers = 0..;
        let last = numbers.find_map(|number| hear(&mut server, head(number, Word::Data)).expect("no violation"));
        assert_eq!((server.offered.len(), server.held()), (OFFERED_LANES_MAX, 0));
        let last = last.expect("it is full");
        assert!(server.accept().is_some() && !server.is_full(last));
        assert_eq!(hear(&mut server, head(OFFERED_LANES_MAX as u64, Word::Data)).map(|full| full.is_some()), Ok(true));
        server.break_off(last);
        assert!(!server.is_full(last));
    }

    #[test]
    fn of_a_lane_that_one_end_has_let_go_of_it_remembers_the_number_alone() {
        let (mut server, keys) = with_lanes(true);
        for key in keys {
            server.drop_sender(key);
            server.drop_receiver(key);
        }
        let said: Vec<Message> = std::iter::from_fn(|| server.next_message()).collect();
        assert_eq!(said.len(), 2 * LANES, "each is broken off, and read no more");
        assert!(server.lanes.is_empty() && server.numbers.is_empty());
        assert_eq!(server.open, LANES, "they count until the device ends them");
        for number in 0..LANES as u64 {
            assert_eq!(hear(&mut server, bytes(number, b"it crossed")), Ok(None));
            assert_eq!(hear(&mut server, head(number, Word::Unread)), Ok(None));
            assert_eq!(hear(&mut server, head(number, Word::End)), Ok(None));
            assert_eq!(hear(&mut server, head(number, Word::End)), Err(Violation::Over(number)));
        }
        assert_eq!((server.open, server.let_go.len(), server.held()), (0, 0, 0));
    }

    #[test]
    fn a_full_connection_breaks_off_its_fullest_lanes_until_there_is_room() {
        for accepts in [true, false] {
            let (mut server, keys) = with_lanes(accepts);
            // One that is read from.
            let (awake, len) = (keys.first().copied(), if accepts { 20_000 } else { 900 });
            let mut last = None;
            for _ in 0..100 {
                for number in 0..LANES as u64 {
                    last = last.or(hear(&mut server, bytes(number, &vec![0; len])).expect("no violation"));
                    awake.into_iter().for_each(|awake| while server.read(awake, len) != Read::Nothing {});
                }
                if last.is_some() {
                    break;
                }
            }
            let last = last.expect("it is full");
            assert!(server.is_full(last));
            server.break_off(last);
            assert!(!server.is_full(last));
            let broken_off: Vec<u64> = std::iter::from_fn(|| server.next_message())
                .filter(|message| {
                    assert!(message.word == Word::Unread || !accepts && message.word == Word::BrokenOff);
                    message.word == Word::Unread
                })
                .map(|message| message.lane)
                .collect();
            assert!((1..=2 * LANES / 3).contains(&broken_off.len()), "{broken_off:?}");
            assert!(!broken_off.contains(&0) || !accepts, "it was read from");
        }
    }

    #[test]
    fn what_is_held_is_none_once_all_is_read_or_dropped() {
        let (mut server, keys) = with_lanes(true);
        fill(&mut server, 5_000);
        assert!(server.held() > 0);
        for (at, key) in keys.into_iter().enumerate() {
            match at % 4 {
                0 => while matches!(server.read(key, 999), Read::Data(_)) {},
                1 => server.drop_receiver(key),
                2 => drop(hear(&mut server, head(at as u64, Word::BrokenOff)).expect("no violation")),
                _ => server.change(key, Lane::stop_reading),
            }
        }
        assert_eq!((server.held(), server.held_offered), (0, 0));
    }

    #[test]
    fn a_message_in_parts_is_one_of_its_lane() {
        let mut server = Lanes::new(false);
        assert_eq!(server.hear(true, false, bytes(0, b"a")), Ok(None));
        assert_eq!(server.hear(false, false, Bytes::from_static(b"b")), Ok(None));
        assert_eq!(server.hear(false, true, Bytes::from_static(b"c")), Ok(None));
        let (key, _) = server.accept().expect("it came");
        let read: Vec<Read> = (0..4).map(|_| server.read(key, 9)).collect();
        let piece = |bytes| Read::Data(Bytes::from_static(bytes));
        assert_eq!(read, [piece(b"a"), piece(b"b"), piece(b"c"), Read::Nothing]);
        assert_eq!(server.hear(true, false, head(0, Word::End)), Err(Violation::Head));
    }
}
