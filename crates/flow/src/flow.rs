//! One flow at one of its ends: [`Flow`].

use crate::frame::{Attached, DATA_MAX, Frame, Open, Refusal, Resume, Use};
use crate::id::FlowName;
use crate::proof::{Binding, DeviceKey, FlowKey};
use crate::receive::{GAPS_MAX, Incoming, Overrun};
use crate::record::Record;
use crate::send::{CREDIT_FIRST, Outgoing};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::discriminant;
use core::time::Duration;
use hoop_units::{ByteRange, Timestamp, UnixTime};

/// The most lanes of one flow: more interfaces than devices have.
pub const LANES_MAX: usize = 8;

/// How much is received before an ACK is due at once, at least: a larger window needs fewer.
const ACK_EVERY: u64 = 64 * 1024;

/// The part of the window that is received before an ACK is due at once. Each is a packet of its own, and so many keep the sender going.
const ACK_PART: u64 = 4;

/// How long an ACK waits for more to acknowledge at most, as in QUIC (RFC 9000 §13.2.1).
const ACK_DELAY: Duration = Duration::from_millis(25);

/// A server's ATTACHED of a new flow waits as long for the first bytes of the answer, to go with them: unless so much has come that the device may soon have to wait for more credit.
const ATTACHED_DELAY: Duration = ACK_DELAY;
const ATTACHED_UNTIL: u64 = CREDIT_FIRST / 4;

/// How long whoever keeps bytes before it acknowledges them, or lacks some before them, waits until it says that it hears.
const HEARS_DELAY: Duration = Duration::from_millis(250);

/// A range that goes on with the one before it is reckoned to it up to this length: what is doubled on a faster lane is no longer.
const SENT_MAX: u64 = 256 * 1024;

/// After how many round trips a lane that has nothing to send takes over what another has not brought.
const DOUBLE_AFTER: u32 = 2;

/// Whoever has no more than so many bytes under way waits for them, and a lane that has nothing to send has room for them.
const LITTLE: u64 = 256 * 1024;

/// So many ranges may be under way on several lanes: the peer, who has every other one and a part of one from each lane, has fewer gaps than it bears. From here on a range that goes
/// on with the one before it is reckoned to it whatever its length and age, so that no peer who acknowledges nothing makes a flow remember more.
const SCATTERED_MAX: usize = 2 * (GAPS_MAX - 2 * LANES_MAX);

/// So long at least others wait for what a lane has not brought, where they have new bytes to send; or half as long again as what it brought took of late.
const LATE_MIN: Duration = Duration::from_millis(500);

/// Over so long the pace of a lane is measured.
const PACE_OVER: Duration = Duration::from_millis(200);

/// A lane that has not brought an ACK which another has counts as dark after so many of its round trips, and [`DARK_MIN`]: an ACK that was lost on the way comes with the carrier's probe,
/// after two or three.
const DARK_AFTER: u32 = 3;

/// What is added to that: an ACK is said on all lanes at once, but each comes when it can, and a carrier's probe waits some time for acknowledgements that are held back.
const DARK_MIN: Duration = Duration::from_millis(150);

/// What is added where no other lane has brought one: more than a peer waits that keeps bytes before it acknowledges them.
const DARK_ALONE_MIN: Duration = Duration::from_millis(350);

/// Where an old deadline or size may come over a lane that was dark, the new one is said again after so long, and after twice as long each time, up to [`NEWS_AGAIN_MAX`]: the old one may come at any time, and the lane be
/// dark again before the new one comes behind it.
const NEWS_AGAIN: Duration = Duration::from_millis(500);
const NEWS_AGAIN_MAX: Duration = Duration::from_secs(4);

/// The round trip of a lane of which none is known.
const RTT_FIRST: Duration = Duration::from_millis(333);

/// How a flow ended (END, RESET): `docs/flow.md` §6.
pub mod ended {
    /// Both streams are whole, and both ends know it.
    pub const FINISHED: u64 = 0;
    /// Its deadline has passed.
    pub const EXPIRED: u64 = 1;
    /// One end lacks bytes that the other no longer has.
    pub const LOST: u64 = 2;
    /// The other end broke the protocol.
    pub const PROTOCOL: u64 = 3;
    /// The service at the server gave it up.
    pub const GIVEN_UP: u64 = 4;
    /// From here on, what the applications agree on.
    pub const APPLICATION: u64 = 0x100;
}

/// A lane, as its owner calls it: one stream of one carrier, for one attachment of one flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LaneId(pub u64);

/// What the owner of a flow chooses.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How far ahead of what is consumed the peer may send: bounds what is held for the application.
    pub window: u64,
    /// Whether what comes is acknowledged as it comes, or once [`Flow::keep`] says that it outlives a restart.
    pub keeps_at_once: bool,
}

impl Default for Options {
    /// 1 MiB: 84 Mbit/s at 100 ms; acknowledged as it comes.
    fn default() -> Self {
        Self { window: 1 << 20, keeps_at_once: true }
    }
}

/// What is to be written to a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transmit {
    /// These bytes, one or more whole frames.
    Frames(Vec<u8>),
    /// A DATA frame of these bytes of the stream, which the owner has ([`crate::frame::put_data_head`]).
    Data(ByteRange),
}

/// What has happened, for the owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The flow is attached to this lane; nothing was attached before if `first`.
    Attached {
        /// Which.
        lane: LaneId,
        /// Whether the flow was offline until now.
        first: bool,
    },
    /// The lane is done with: to be closed once what was transmitted is sent, and then [detached](Flow::detach) like one that broke off.
    Close(LaneId),
    /// The last lane is gone.
    Offline,
    /// The peer keeps more, or wants more: what lies before [`Outgoing::acked`] may be dropped.
    Acked,
    /// The server closed the last lane for want of traffic: to be resumed when there is some.
    Parked,
    /// The device says when it should be done.
    Deadline(Option<UnixTime>),
    /// The peer says how long its stream will be.
    Size(Option<u64>),
    /// A server has refused the lane, and why; what follows from it is the owner's to decide.
    Refused {
        /// Which lane.
        lane: LaneId,
        /// Why.
        refusal: Refusal,
    },
    /// The flow is over for good.
    Ended {
        /// How: see [`ended`].
        code: u64,
    },
}

/// The peer broke the protocol: the lane is to be closed; the flow is unharmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// More was sent than was granted.
    #[error("the peer sends more than it was granted")]
    Credit,
    /// Bytes past the end, or another end.
    #[error("the peer sends past the end that it told, or tells another")]
    End,
    /// Too many gaps.
    #[error("the peer leaves too many gaps")]
    Gaps,
    /// An acknowledgement of what was not sent.
    #[error("the peer acknowledges what it was not sent")]
    Unsent,
    /// A frame that has no place there.
    #[error("a frame that has no place there")]
    Unexpected,
    /// The server's proof is wrong.
    #[error("the server does not have the flow's key")]
    Proof,
    /// The flow has no such lane.
    #[error("a frame on a lane that is not attached")]
    NoLane,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Device,
    Server,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The server's agreement has not come.
    Greeting,
    /// Attached.
    Up,
}

/// A range that was sent over a lane.
#[derive(Clone, Copy, Debug)]
struct Sent {
    range: ByteRange,
    at: Timestamp,
    /// What of it another lane has sent too lies before this.
    doubled: u64,
}

impl Sent {
    /// What of it has not come and is on no other lane.
    fn single(&self, acked: u64) -> ByteRange {
        let start = self.range.start.max(self.doubled).max(acked).min(self.range.end);
        ByteRange::new(start, self.range.end)
    }
}

#[derive(Debug)]
struct Lane {
    id: LaneId,
    binding: Binding,
    epoch: u64,
    stage: Stage,
    lane_use: Use,
    rtt: Duration,
    /// When something came over it last.
    heard: Option<Timestamp>,
    /// Since when it owes an acknowledgement and brings nothing.
    owes: Option<Timestamp>,
    /// When another lane brought an ACK first since then: they are said on all lanes.
    missed: Option<Timestamp>,
    /// How long what it brought took of late, until it was acknowledged. What others took over from it does not count.
    usual: Option<Duration>,
    /// It owed one for too long, while another lane did not, and nothing came over it since. What it had under way is lost, for now.
    is_dark: bool,
    left: Left,
    news: Announcement,
    pace: Pace,
    /// What is to be said on this lane before all else.
    greeting: Option<Greeting>,
    /// Whether PARK is to be said on it.
    parks: bool,
    due: Due,
    sent: VecDeque<Sent>,
}

impl Lane {
    /// Until when its ATTACHED waits for something to go with.
    const fn held(&self) -> Option<Timestamp> {
        match self.greeting {
            Some(Greeting::Answer(Hold::Until(until))) => Some(until),
            _ => None,
        }
    }
}

/// What a lane begins with.
#[derive(Debug)]
enum Greeting {
    /// A device's OPEN or RESUME.
    Ready(Vec<u8>),
    /// A server's ATTACHED, which is made when it is sent.
    Answer(Hold),
}

/// Whether a server's ATTACHED waits for something that it may go with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// It waits for nothing.
    None,
    /// From when it is first asked for.
    Begins,
    /// Until then.
    Until(Timestamp),
}

/// What was said of the deadline and the size on a lane since it was heard last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Announcement {
    #[default]
    None,
    Said,
    /// It has changed since then: where the lane was dark, the old one may come behind the new one on another.
    Old,
}

/// What a lane had under way when it went dark: it may come still, in so many pieces, until all before `end` is acknowledged.
#[derive(Clone, Copy, Default, Debug)]
struct Left {
    pieces: usize,
    end: u64,
}

/// How fast bytes go over a lane, as its carrier takes them.
#[derive(Clone, Copy, Debug)]
struct Pace {
    since: Timestamp,
    bytes: u64,
    /// Bytes a second, in the last interval of which all is known.
    rate: u64,
}

impl Pace {
    const NONE: Self = Self { since: Timestamp::ZERO, bytes: 0, rate: 0 };

    fn take(&mut self, bytes: u64, now: Timestamp) {
        let passed = now.since(self.since);
        if passed >= PACE_OVER {
            *self = Self { since: now, bytes: 0, rate: rate(self.bytes, passed) };
        }
        self.bytes += bytes;
    }

    /// What it is now: what is taken no more is no rate.
    fn at(&self, now: Timestamp) -> u64 {
        let passed = now.since(self.since);
        if passed > PACE_OVER { self.rate.min(rate(self.bytes, passed)) } else { self.rate }
    }
}

fn rate(bytes: u64, passed: Duration) -> u64 {
    bytes.saturating_mul(1_000_000) / (passed.as_micros() as u64).max(1)
}

/// What OPEN and RESUME both say.
struct Said {
    epoch: u64,
    since: u64,
    received: u64,
    credit: u64,
    lane_use: Use,
}

impl Said {
    const fn of_open(open: &Open<'_>) -> Self {
        let Open { epoch, since, received, credit, lane_use, .. } = *open;
        Self { epoch, since, received, credit, lane_use }
    }
}

/// What the peer is to be told on a lane. Each lane tells everything: nobody knows which of them has gone dark, and what was said last on a slow one the peer may hear last.
#[derive(Clone, Copy, Default, Debug)]
struct Due {
    ack: bool,
    fin: bool,
    reset: bool,
    end: bool,
    deadline: bool,
    size: bool,
}

impl Due {
    const fn is_any(self) -> bool {
        self.ack || self.fin || self.reset || self.end || self.deadline || self.size
    }
}

/// What a device needs for an OPEN, until the server has agreed once.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) device_key: DeviceKey,
    pub(crate) nonce: [u8; 32],
    pub(crate) service: String,
}

/// One flow at one of its ends: a pure machine.
///
/// It knows offsets, not bytes: its owner keeps what it sends until it is acknowledged, and takes what comes. Lanes come and go
/// ([`Flow::attach`], [`Flow::detach`]); whatever the peer may have missed with a lane is said again on the next.
#[derive(Debug)]
pub struct Flow {
    name: FlowName,
    key: FlowKey,
    role: Role,
    /// A device's last epoch; at a server the highest that it has seen.
    epoch: u64,
    /// Lanes of a lower epoch are gone.
    since: u64,
    /// At a device: whether the server has agreed to a lane since then.
    is_heard: bool,
    opening: Option<Opening>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// The latest time that was told.
    now: Timestamp,
    lanes: Vec<Lane>,
    /// When what was said of the deadline and the size is said again, and how long it is until the next time.
    news_again: Option<(Timestamp, Duration)>,
    /// When an ACK is due that is not yet.
    ack_at: Option<Timestamp>,
    unacked: u64,
    deadline: Option<UnixTime>,
    /// Whether the peer may know of another deadline than that of its OPEN, and so of one that there is no longer.
    tells_deadline: bool,
    size: Option<u64>,
    /// The same of the size.
    tells_size: bool,
    reset: Option<u64>,
    ended: Option<u64>,
    /// Whether it is over no sooner than all that has come is consumed.
    ends_consumed: bool,
    events: VecDeque<Event>,
}

/// The code of a flow that is given up.
const fn given_up(code: u64) -> u64 {
    if code == ended::FINISHED { ended::GIVEN_UP } else { code }
}

impl Flow {
    /// A device's new flow. `nonce` is drawn for it; `service` has at most [`crate::frame::SERVICE_MAX`] bytes.
    pub fn open(name: FlowName, device_key: DeviceKey, nonce: [u8; 32], service: String, options: Options) -> Self {
        let key = device_key.flow_key(name, &nonce);
        let incoming = Incoming::new(options.window, 0, options.keeps_at_once);
        let mut flow = Self::new(name, key, Role::Device, Outgoing::new(), incoming);
        flow.opening = Some(Opening { device_key, nonce, service });
        flow
    }

    /// A server's new flow, attached to the lane that the OPEN came over.
    ///
    /// # Errors
    /// The answer, if the proof is wrong. Whether the server wants the flow is for the caller to ask before.
    pub fn accept(
        open: &Open<'_>,
        device_key: &DeviceKey,
        lane: LaneId,
        binding: Binding,
        options: Options,
    ) -> Result<Self, Refusal> {
        if !open.is_proven(device_key, binding) {
            return Err(Refusal::Unknown);
        }
        let key = device_key.flow_key(open.name, &open.nonce);
        let incoming = Incoming::new(options.window, CREDIT_FIRST, options.keeps_at_once);
        let mut flow = Self::new(open.name, key, Role::Server, Outgoing::new(), incoming);
        flow.deadline = open.deadline;
        flow.events.push_back(Event::Deadline(open.deadline));
        flow.events.push_back(Event::Size(open.size));
        flow.admit(&Said::of_open(open), lane, binding, Hold::Begins)?;
        Ok(flow)
    }

    fn new(name: FlowName, key: FlowKey, role: Role, outgoing: Outgoing, incoming: Incoming) -> Self {
        Self {
            name,
            key,
            role,
            epoch: 0,
            since: 0,
            is_heard: false,
            opening: None,
            outgoing,
            incoming,
            now: Timestamp::ZERO,
            lanes: Vec::new(),
            news_again: None,
            ack_at: None,
            unacked: 0,
            deadline: None,
            tells_deadline: false,
            size: None,
            tells_size: false,
            reset: None,
            ended: None,
            ends_consumed: false,
            events: VecDeque::new(),
        }
    }

    /// A flow as it was kept, attached to nothing.
    pub fn restore(record: &Record, options: Options) -> Self {
        // A device writes its record down at leisure; a server before it sends what it says.
        let outgoing = Outgoing::restored(record, record.is_device);
        let incoming = Incoming::restored(record, options.window, options.keeps_at_once);
        let role = if record.is_device { Role::Device } else { Role::Server };
        let mut flow = Self::new(record.name, record.key, role, outgoing, incoming);
        (flow.epoch, flow.since) = (record.epoch, record.epoch);
        (flow.deadline, flow.size, flow.reset, flow.ended) = (record.deadline, record.size, record.reset, record.ended);
        // Whoever had this before may have said so on a lane that was lost.
        (flow.tells_deadline, flow.tells_size) = (true, record.size.is_some());
        flow.opening =
            record.opening.clone().map(|(device_key, nonce, service)| Opening { device_key, nonce, service });
        flow
    }

    /// What outlives a restart. What is under way is not in it: it is asked for, or sent, again.
    pub fn record(&self) -> Record {
        Record {
            name: self.name,
            key: self.key,
            is_device: self.role == Role::Device,
            epoch: self.epoch,
            acked: self.outgoing.acked(),
            available: self.outgoing.available(),
            written: self.outgoing.end(),
            finished: self.outgoing.is_finished(),
            credit: self.outgoing.credit(),
            kept: self.incoming.kept(),
            consumed: self.incoming.consumed(),
            granted: self.incoming.granted(),
            end: self.incoming.end(),
            deadline: self.deadline,
            size: self.size,
            reset: self.reset,
            ended: self.ended,
            opening: self.opening.clone().map(|opening| (opening.device_key, opening.nonce, opening.service)),
        }
    }

    /// Its name.
    pub const fn name(&self) -> FlowName {
        self.name
    }

    /// What it sends.
    pub const fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    /// What it receives.
    pub const fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    /// How it ended, if it did.
    pub const fn ended(&self) -> Option<u64> {
        self.ended
    }

    /// When it should be done.
    pub const fn deadline(&self) -> Option<UnixTime> {
        self.deadline
    }

    /// Whether it is attached to a lane.
    pub fn is_attached(&self) -> bool {
        self.lanes.iter().any(|lane| lane.stage == Stage::Up)
    }

    /// Whether nothing is to be sent, asked for or acknowledged: its lanes could be closed. Without a lane it does not count what is said on each new one anyway.
    pub fn is_quiet(&self) -> bool {
        let says = match self.lanes.is_empty() {
            true => self.all_due().reset || self.all_due().end,
            // What was said on one lane is said.
            false => self.ack_at.is_some() || self.lanes.iter().all(|lane| lane.due.is_any()),
        };
        !says
            && self.outgoing.acked() == self.outgoing.end()
            && (!self.outgoing.is_finished() || self.outgoing.is_done())
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // ---- the application's side ----

    /// The owner has `bytes` more to send.
    pub const fn write(&mut self, bytes: u64) {
        self.outgoing.write(bytes);
    }

    /// The owner writes no more than the peer wants ([`Outgoing::credit`]), and has more than that. Without this, what is written is taken for the last of it, and whatever lane is fast sends it again
    /// soon. It holds until something is written that ends before that.
    pub const fn expect_more(&mut self) {
        self.outgoing.expect_more();
    }

    /// After [`Flow::restore`]: the owner does not have the bytes that it once wrote. It [writes](Flow::write) them again, from
    /// [`Outgoing::available`] on, and they must be the same; nothing is sent that it has not written again.
    pub const fn supply_again(&mut self) {
        self.outgoing.supply_again();
    }

    /// The owner has no more to send.
    pub fn finish(&mut self) {
        self.outgoing.finish();
        let fin = !self.outgoing.is_done();
        self.lanes.iter_mut().for_each(|lane| lane.due.fin = fin);
    }

    /// The owner has dropped what lies before `offset`, which is acknowledged.
    pub fn drop_before(&mut self, offset: u64) {
        self.outgoing.drop_before(offset);
    }

    /// What has come before `offset` outlives a restart now.
    pub fn keep(&mut self, offset: u64, now: Timestamp) {
        let before = self.incoming.received();
        self.incoming.keep(offset);
        self.unacked += self.incoming.received() - before;
        self.schedule_ack(now);
        self.finish_if_done();
    }

    /// The application has taken what has come before `offset`.
    pub fn consume(&mut self, offset: u64, now: Timestamp) {
        self.incoming.consume(offset);
        self.schedule_ack(now);
        self.finish_if_done();
    }

    /// At a server: the flow is not finished before all that has come is [consumed](Flow::consume) too, so that a server that was restarted meanwhile finds what is not.
    pub fn end_once_consumed(&mut self) {
        self.ends_consumed = true;
    }

    /// Sets how far ahead of the application the peer may send.
    pub fn set_window(&mut self, window: u64, now: Timestamp) {
        self.incoming.set_window(window);
        self.schedule_ack(now);
    }

    /// A device says when the flow should be done.
    pub fn set_deadline(&mut self, at: Option<UnixTime>) {
        (self.deadline, self.tells_deadline) = (at, true);
        self.lanes.iter_mut().for_each(|lane| lane.due.deadline = true);
        self.age_news();
    }

    /// Says how long the outgoing stream will be.
    pub fn set_size(&mut self, size: Option<u64>) {
        (self.size, self.tells_size) = (size, true);
        self.lanes.iter_mut().for_each(|lane| lane.due.size = true);
        self.age_news();
    }

    fn age_news(&mut self) {
        let said = self.lanes.iter_mut().filter(|lane| lane.news == Announcement::Said);
        said.for_each(|lane| lane.news = Announcement::Old);
    }

    /// Gives the flow up. A server's end is final; a device's is once the server knows, or the device forgets the flow. Code 0 becomes 4: nobody can say that streams are whole
    /// which are not.
    pub fn reset(&mut self, code: u64) {
        let code = given_up(code);
        match self.role {
            Role::Server => self.end(code),
            Role::Device => {
                self.reset = self.reset.or(Some(code));
                self.lanes.iter_mut().for_each(|lane| lane.due.reset = true);
            }
        }
    }

    /// The deadline and what grace there is have passed: the flow ends here, whatever the other end does.
    pub fn expire(&mut self) {
        self.end(ended::EXPIRED);
    }

    fn end(&mut self, code: u64) {
        if self.ended.is_none() {
            self.ended = Some(code);
            self.events.push_back(Event::Ended { code });
            let due = self.all_due();
            self.lanes.iter_mut().for_each(|lane| lane.due = due);
        }
    }

    // ---- lanes ----

    /// A device's new lane: what to say first is ready to be transmitted. `replaces`: there is no other that works; those that there are go.
    pub fn attach(&mut self, lane: LaneId, binding: Binding, lane_use: Use, replaces: bool) {
        debug_assert!(self.role == Role::Device, "a server's lanes come with OPEN and RESUME");
        let replaces = replaces || self.lanes.is_empty();
        if replaces {
            self.close_all();
        }
        if self.lanes.len() >= LANES_MAX {
            return self.events.push_back(Event::Close(lane));
        }
        self.epoch += 1;
        if replaces {
            (self.since, self.is_heard) = (self.epoch, false);
        }
        let (received, credit) = self.incoming.grant();
        let (name, epoch, since, proof) = (self.name, self.epoch, self.since, [0; 32]);
        let mut greeting = Vec::new();
        match &self.opening {
            Some(Opening { device_key, nonce, service }) => {
                let (deadline, size, nonce) = (self.deadline, self.size, *nonce);
                let open =
                    Open { name, epoch, since, received, credit, deadline, size, lane_use, nonce, service, proof };
                Frame::Open(open.proven(device_key, binding)).put(&mut greeting);
            }
            None => {
                let resume = Resume { name, epoch, since, received, credit, lane_use, proof };
                Frame::Resume(resume.proven(&self.key, binding)).put(&mut greeting);
            }
        }
        self.add(lane, binding, epoch, Stage::Greeting, lane_use, Greeting::Ready(greeting));
    }

    /// At a server: a RESUME of this flow, or an OPEN of it again, came over a new lane.
    ///
    /// # Errors
    /// The answer, if it is not attached.
    pub fn resume(&mut self, resume: &Resume, lane: LaneId, binding: Binding) -> Result<(), Refusal> {
        if !resume.is_proven(&self.key, binding) {
            return Err(Refusal::Unknown);
        }
        let Resume { epoch, since, received, credit, lane_use, .. } = *resume;
        self.admit(&Said { epoch, since, received, credit, lane_use }, lane, binding, Hold::None)
    }

    /// At a server: an OPEN of a flow that there is: the device has not heard that it was accepted.
    ///
    /// # Errors
    /// The answer, if it is not attached.
    pub fn reopen(
        &mut self,
        open: &Open<'_>,
        device_key: &DeviceKey,
        lane: LaneId,
        binding: Binding,
    ) -> Result<(), Refusal> {
        let same = device_key.flow_key(self.name, &open.nonce).0 == self.key.0;
        if !same || !open.is_proven(device_key, binding) {
            return Err(Refusal::Unknown);
        }
        self.admit(&Said::of_open(open), lane, binding, Hold::None)
    }

    fn admit(&mut self, said: &Said, lane: LaneId, binding: Binding, hold: Hold) -> Result<(), Refusal> {
        if let Some(code) = self.ended {
            return Err(Refusal::Ended { code });
        }
        let epoch = said.epoch;
        if epoch < self.since || self.lanes.iter().any(|lane| lane.epoch == epoch) {
            return Err(Refusal::Stale { highest: self.epoch });
        }
        let is_new = said.since > self.since;
        self.since = self.since.max(said.since);
        self.close_before(self.since);
        if self.lanes.len() >= LANES_MAX {
            return Err(Refusal::Full);
        }
        // The first word after the device's older lanes are gone cannot be older than what they brought; another may be.
        if self.outgoing.resume(said.received, said.credit, is_new).is_err() {
            self.end(ended::LOST);
            return Err(Refusal::Ended { code: ended::LOST });
        }
        self.news(Event::Acked);
        self.forget_acked();
        self.epoch = self.epoch.max(epoch);
        let first = self.lanes.is_empty();
        self.add(lane, binding, epoch, Stage::Up, said.lane_use, Greeting::Answer(hold));
        self.events.push_back(Event::Attached { lane, first });
        self.finish_if_done();
        Ok(())
    }

    fn add(&mut self, id: LaneId, binding: Binding, epoch: u64, stage: Stage, lane_use: Use, greeting: Greeting) {
        let (rtt, sent) = (RTT_FIRST, VecDeque::new());
        // The deadline and the size of an OPEN count where the flow begins with it; another OPEN says nothing of them. Nobody knows what the peer has heard on lanes before.
        let (greeting, due) = (Some(greeting), self.all_due());
        self.lanes.push(Lane {
            id,
            binding,
            epoch,
            stage,
            lane_use,
            rtt,
            heard: None,
            owes: None,
            missed: None,
            usual: None,
            is_dark: false,
            left: Left::default(),
            news: Announcement::default(),
            pace: Pace::NONE,
            greeting,
            parks: false,
            due,
            sent,
        });
    }

    /// The lane is gone. What went over it and is not acknowledged goes over another, or over the next.
    pub fn detach(&mut self, lane: LaneId) {
        let Some(at) = self.lanes.iter().position(|known| known.id == lane) else { return };
        let was_attached = self.is_attached();
        let gone = self.lanes.remove(at);
        self.lose(&gone.sent);
        if was_attached && !self.is_attached() {
            self.events.push_back(Event::Offline);
        }
    }

    /// What a lane had under way that is gone, or dark, goes over another.
    fn lose(&mut self, sent: &VecDeque<Sent>) {
        for sent in sent {
            self.outgoing.lost(sent.range);
        }
        // What another lane has under way is not lost; and it may be on that one alone now.
        for sent in self.lanes.iter_mut().flat_map(|lane| &mut lane.sent) {
            self.outgoing.not_lost(sent.range);
            sent.doubled = 0;
        }
    }

    fn close_all(&mut self) {
        self.close_before(u64::MAX);
    }

    /// Closes the lanes of a lower epoch.
    fn close_before(&mut self, epoch: u64) {
        let lower = self.lanes.iter().filter(|lane| lane.epoch < epoch);
        for lane in lower.map(|lane| lane.id).collect::<Vec<_>>() {
            self.detach(lane);
            self.events.push_back(Event::Close(lane));
        }
    }

    /// All that there is to say now.
    fn all_due(&self) -> Due {
        let ended = self.ended.is_some();
        Due {
            ack: !ended,
            fin: !ended && self.outgoing.is_finished() && !self.outgoing.is_done(),
            reset: !ended && self.reset.is_some(),
            end: ended && self.role == Role::Server,
            deadline: !ended && self.role == Role::Device && self.tells_deadline,
            size: !ended && self.tells_size,
        }
    }

    /// Nothing comes any more over a lane that was detached before. What was said of the deadline and the size on it may have come behind what was said on others since.
    pub fn tell_news_again(&mut self) {
        let Due { deadline, size, .. } = self.all_due();
        for lane in &mut self.lanes {
            lane.due.deadline |= deadline;
            lane.due.size |= size;
        }
    }

    fn mind_news(&mut self, now: Timestamp) {
        let Some((_, wait)) = self.news_again.filter(|(at, _)| *at <= now) else { return };
        self.tell_news_again();
        let next = wait * 2;
        self.news_again = (next <= NEWS_AGAIN_MAX).then_some((now + next, next));
    }

    /// Says the last ACK again: where only this end receives, the other's carrier answers it, or is found to be silent.
    pub fn repeat_ack(&mut self) {
        if self.ended.is_none() {
            self.raise_ack();
        }
    }

    /// An ACK is due now, on each lane: whichever lives brings it.
    fn raise_ack(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.due.ack = true);
        (self.ack_at, self.unacked) = (None, 0);
    }

    /// The round-trip time of a lane's carrier.
    pub fn set_rtt(&mut self, lane: LaneId, rtt: Duration) {
        if let Some(lane) = self.lane(lane) {
            lane.rtt = rtt;
        }
    }

    /// A server closes all lanes for want of traffic, as soon as PARK is said on each; the flow stays.
    pub fn park(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.parks = true);
        // What was not acknowledged would bring the device back.
        self.raise_ack();
    }

    fn lane(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.id == id)
    }

    // ---- frames ----

    /// Takes in a frame that came over a lane. Of DATA it returns what is new, in order.
    ///
    /// # Errors
    /// See [`Violation`]: the owner closes the lane and calls [`Flow::detach`].
    pub fn handle(&mut self, lane: LaneId, frame: &Frame<'_>, now: Timestamp) -> Result<Vec<ByteRange>, Violation> {
        let stage = self.hear(lane, now)?;
        match (self.role, stage, frame) {
            (Role::Device, Stage::Greeting, Frame::Attached(attached)) => self.attached(lane, attached)?,
            (Role::Device, Stage::Greeting, Frame::Refused(refusal)) => self.refused(lane, *refusal),
            (_, Stage::Greeting, _) => return Err(Violation::Unexpected),
            // Whoever has ended a flow says so again and listens no more.
            (Role::Server, ..) if self.ended.is_some() => self.say_end_on(lane),
            (Role::Server, _, Frame::Reset { code }) => self.end(given_up(*code)),
            (Role::Server, _, Frame::Deadline(at)) => {
                self.deadline = *at;
                self.news(Event::Deadline(*at));
            }
            (Role::Server, _, Frame::Use(lane_use)) => {
                if let Some(lane) = self.lane(lane) {
                    lane.lane_use = *lane_use;
                }
            }
            (Role::Device, _, Frame::End { code }) => self.ended_there(*code),
            (Role::Device, _, Frame::Park) => {
                self.detach(lane);
                self.events.push_back(Event::Close(lane));
                if !self.is_attached() {
                    self.events.push_back(Event::Parked);
                }
            }
            (_, _, Frame::Data { offset, bytes }) => {
                return self.handle_data(lane, ByteRange::new(*offset, *offset + bytes.len() as u64), now);
            }
            (_, _, Frame::Ack { received, credit }) => {
                for other in self.lanes.iter_mut().filter(|other| other.id != lane) {
                    other.missed = other.missed.or(Some(now));
                }
                self.acked(*received, *credit)?;
            }
            (_, _, Frame::Fin { end }) => {
                self.incoming.fin(*end).map_err(|_| Violation::End)?;
                self.ack_soon(now);
                self.finish_if_done();
            }
            (_, _, Frame::Size(size)) => self.news(Event::Size(*size)),
            _ => return Err(Violation::Unexpected),
        }
        Ok(Vec::new())
    }

    /// Takes in that bytes of a DATA frame, or of several that adjoin, came over a lane, as [`Flow::handle`] does; they need not lie together.
    ///
    /// # Errors
    /// As [`Flow::handle`].
    pub fn handle_data(&mut self, lane: LaneId, range: ByteRange, now: Timestamp) -> Result<Vec<ByteRange>, Violation> {
        match self.hear(lane, now)? {
            Stage::Greeting => Err(Violation::Unexpected),
            Stage::Up if self.ended.is_some() => {
                self.say_end_on(lane);
                Ok(Vec::new())
            }
            Stage::Up => self.data(range, now),
        }
    }

    /// Something has come over a lane: it lives.
    fn hear(&mut self, lane: LaneId, now: Timestamp) -> Result<Stage, Violation> {
        self.now = self.now.max(now);
        let lane = self.lane(lane).ok_or(Violation::NoLane)?;
        (lane.heard, lane.owes, lane.missed, lane.is_dark) = (Some(now), None, None, false);
        let (stage, news) = (lane.stage, core::mem::take(&mut lane.news));
        if news == Announcement::Old {
            self.tell_news_again();
            self.news_again = Some((now + NEWS_AGAIN, NEWS_AGAIN));
        }
        Ok(stage)
    }

    /// A server says on that lane how the flow has ended, perhaps once more.
    fn say_end_on(&mut self, lane: LaneId) {
        let is_server = self.role == Role::Server;
        if let Some(lane) = self.lane(lane) {
            lane.due.end = is_server;
        }
    }

    fn attached(&mut self, id: LaneId, attached: &Attached) -> Result<(), Violation> {
        let (key, first) = (self.key, !self.is_attached());
        let Some(lane) = self.lane(id) else { return Err(Violation::NoLane) };
        if !attached.is_proven(&key, lane.binding, lane.epoch) {
            return Err(Violation::Proof);
        }
        lane.stage = Stage::Up;
        // What went with the greeting is under way, unless the server knows less than it did.
        let rewinds = !core::mem::replace(&mut self.is_heard, true) && attached.received < self.outgoing.received();
        self.opening = None;
        let told = self.outgoing.resume(attached.received, attached.credit, rewinds);
        if told.is_err() {
            self.reset(ended::LOST);
        }
        // A server that was restarted may not know the end any more.
        let fin = self.all_due().fin;
        self.lanes.iter_mut().filter(|lane| lane.id == id).for_each(|lane| lane.due.fin |= fin);
        self.events.push_back(Event::Attached { lane: id, first });
        self.news(Event::Acked);
        self.forget_acked();
        Ok(())
    }

    /// At a device: the server says how the flow has ended. That both streams are whole is seen here, too; a device that goes on from an older record of its own has lost what came
    /// after that.
    fn ended_there(&mut self, code: u64) {
        let is_whole = self.incoming.is_done() && self.outgoing.is_finished();
        self.end(if code == ended::FINISHED && !is_whole { ended::LOST } else { code });
        self.close_all();
    }

    fn refused(&mut self, lane: LaneId, refusal: Refusal) {
        match refusal {
            Refusal::Ended { code } => self.ended_there(code),
            Refusal::Stale { highest } => self.epoch = self.epoch.max(highest),
            _ => {}
        }
        self.detach(lane);
        self.events.push_back(Event::Refused { lane, refusal });
        self.events.push_back(Event::Close(lane));
    }

    fn data(&mut self, range: ByteRange, now: Timestamp) -> Result<Vec<ByteRange>, Violation> {
        let before = self.incoming.received();
        let new = self.incoming.data(range).map_err(|overrun| match overrun {
            Overrun::Credit => Violation::Credit,
            Overrun::End => Violation::End,
            Overrun::Gaps => Violation::Gaps,
        })?;
        self.unacked += self.incoming.received() - before;
        let is_raised = match new.is_empty() {
            // The peer has not heard that it is here.
            true => {
                self.raise_ack();
                true
            }
            false => self.schedule_ack(now),
        };
        // Whoever sends is to know that its bytes arrive, though they cannot be acknowledged yet.
        self.ack_at = self.ack_at.or(Some(now + HEARS_DELAY)).filter(|_| !is_raised);
        self.finish_if_done();
        Ok(new)
    }

    /// Tells the owner what counts as it was said last, however often that was.
    fn news(&mut self, event: Event) {
        let same = |known: &&mut Event| discriminant(*known) == discriminant(&event);
        match self.events.iter_mut().find(same) {
            Some(known) => *known = event,
            None => self.events.push_back(event),
        }
    }

    /// Whether it is due at once.
    fn schedule_ack(&mut self, now: Timestamp) -> bool {
        let credit = self.incoming.ungranted();
        if self.unacked == 0 && credit == 0 {
            return false;
        }
        let window = self.incoming.window();
        // Whoever may send little would otherwise wait for the delay each time.
        let many = ACK_EVERY.max(window / ACK_PART).min(window / 2);
        let enough = self.unacked >= many || credit >= many;
        match enough {
            true => self.raise_ack(),
            false => self.ack_soon(now),
        }
        enough
    }

    /// An ACK is due at the next multiple of [`ACK_DELAY`]: so those of all flows go together, in few packets.
    fn ack_soon(&mut self, now: Timestamp) {
        let delay = ACK_DELAY.as_micros() as u64;
        let next = Timestamp::from_micros((now.as_micros() / delay).saturating_add(1).saturating_mul(delay));
        self.ack_at = self.ack_at.into_iter().chain([next]).min();
    }

    fn acked(&mut self, received: u64, credit: u64) -> Result<(), Violation> {
        let before = (self.outgoing.acked(), self.outgoing.credit());
        self.outgoing.ack(received, credit).map_err(|_| Violation::Unsent)?;
        if (self.outgoing.acked(), self.outgoing.credit()) != before {
            self.news(Event::Acked);
            self.forget_acked();
        }
        self.finish_if_done();
        Ok(())
    }

    fn forget_acked(&mut self) {
        let acked = self.outgoing.acked();
        for lane in &mut self.lanes {
            while let Some(sent) = lane.sent.pop_front_if(|sent| sent.range.end <= acked) {
                if sent.doubled == 0 {
                    let took = self.now.since(sent.at);
                    lane.usual = Some(lane.usual.map_or(took, |usual| (usual * 7 + took) / 8));
                }
            }
        }
        if self.outgoing.is_done() {
            self.lanes.iter_mut().for_each(|lane| lane.due.fin = false);
        }
    }

    /// The server says when both streams are whole; the device waits for its word.
    fn finish_if_done(&mut self) {
        let waits = self.ends_consumed && self.incoming.consumed() < self.incoming.kept();
        if self.role == Role::Server && self.outgoing.is_done() && self.incoming.is_done() && !waits {
            self.end(ended::FINISHED);
        }
    }

    // ---- what to send ----

    /// What to write to a lane that takes about `room` bytes. None: nothing now.
    pub fn poll_transmit(&mut self, lane: LaneId, room: usize, now: Timestamp) -> Option<Transmit> {
        self.now = self.now.max(now);
        self.mind_dark(now);
        self.mind_news(now);
        let at = self.lanes.iter().position(|known| known.id == lane)?;
        let mut out = match self.lanes[at].greeting.take() {
            Some(Greeting::Ready(greeting)) => greeting,
            Some(Greeting::Answer(hold)) => match self.held_until(at, hold, now) {
                Some(until) => {
                    self.lanes[at].greeting = Some(Greeting::Answer(Hold::Until(until)));
                    return None;
                }
                None => self.answer(at),
            },
            None => Vec::new(),
        };
        if self.lanes[at].stage == Stage::Up {
            self.tell(at, now, &mut out);
        } else if out.is_empty() && self.ends_early(&self.lanes[at]) {
            self.lanes[at].due.fin = false;
            Frame::Fin { end: self.outgoing.end() }.put(&mut out);
        }
        if !out.is_empty() {
            return Some(Transmit::Frames(out));
        }
        if self.ended.is_some() || self.reset.is_some() {
            return None;
        }
        self.next_data(at, room, now).map(Transmit::Data)
    }

    /// Until when a server's ATTACHED waits, if it does.
    fn held_until(&self, at: usize, hold: Hold, now: Timestamp) -> Option<Timestamp> {
        let until = match hold {
            Hold::None => return None,
            Hold::Begins => now + ATTACHED_DELAY,
            Hold::Until(until) => until,
        };
        (now < until && !self.has_answer(&self.lanes[at])).then_some(until)
    }

    /// Whether an ATTACHED that waits need wait no longer: there is something that it can go with, or the device is about to use up what it may send without one.
    fn has_answer(&self, lane: &Lane) -> bool {
        let says = lane.parks || self.ended.is_some() || (lane.due.fin && self.outgoing.may_tell_end());
        says || self.incoming.whole() >= ATTACHED_UNTIL || (self.carries_data(lane) && self.has_next(lane))
    }

    /// A server's ATTACHED. It says what an ACK would.
    fn answer(&mut self, at: usize) -> Vec<u8> {
        let (received, credit) = self.incoming.grant();
        if self.lanes.len() == 1 {
            (self.ack_at, self.unacked) = (None, 0);
        }
        let lane = &mut self.lanes[at];
        lane.due.ack = false;
        let attached = Attached { received, credit, proof: [0; 32] }.proven(&self.key, lane.binding, lane.epoch);
        let mut greeting = Vec::new();
        Frame::Attached(attached).put(&mut greeting);
        greeting
    }

    /// What is due to be told on a lane.
    fn tell(&mut self, at: usize, now: Timestamp, out: &mut Vec<u8>) {
        if self.ended.is_none() && self.ack_at.is_some_and(|at| at <= now) {
            self.raise_ack();
        }
        let (id, stands_by) = (self.lanes[at].id, self.stands_by(&self.lanes[at]));
        let due = core::mem::take(&mut self.lanes[at].due);
        if due.end {
            Frame::End { code: self.ended.unwrap_or_default() }.put(out);
            return self.events.push_back(Event::Close(id));
        }
        if self.ended.is_some() {
            return;
        }
        if due.reset {
            return Frame::Reset { code: self.reset.unwrap_or_default() }.put(out);
        }
        if (due.deadline || due.size) && self.lanes[at].news == Announcement::None {
            self.lanes[at].news = Announcement::Said;
        }
        if due.deadline {
            Frame::Deadline(self.deadline).put(out);
        }
        if due.size {
            Frame::Size(self.size).put(out);
        }
        match due.ack {
            true if stands_by => self.lanes[at].due.ack = true,
            true => {
                let (received, credit) = self.incoming.grant();
                Frame::Ack { received, credit }.put(out);
            }
            false => {}
        }
        if due.fin {
            match self.outgoing.may_tell_end() {
                true => Frame::Fin { end: self.outgoing.end() }.put(out),
                false => self.lanes[at].due.fin = true,
            }
        }
        if core::mem::take(&mut self.lanes[at].parks) {
            Frame::Park.put(out);
            self.events.push_back(Event::Close(id));
            self.detach(id);
        }
    }

    /// Whether [`Flow::poll_transmit`] has something for this lane now, if it takes bytes of the stream; what is late on others aside
    /// ([`Flow::lane_timeout`]).
    pub fn wants(&self, lane: LaneId) -> bool {
        let Some(lane) = self.lanes.iter().find(|known| known.id == lane) else { return false };
        match lane.greeting {
            Some(Greeting::Ready(_) | Greeting::Answer(Hold::None | Hold::Begins)) => return true,
            Some(Greeting::Answer(Hold::Until(_))) => return self.has_answer(lane),
            None => {}
        }
        let Due { ack, fin, reset, end, deadline, size } = lane.due;
        let (ack, fin) = (ack && !self.stands_by(lane), fin && self.outgoing.may_tell_end());
        let tells = end || (self.ended.is_none() && (ack || fin || reset || deadline || size || lane.parks));
        (lane.stage == Stage::Up && tells) || self.ends_early(lane) || (self.carries_data(lane) && self.has_next(lane))
    }

    /// Whether the end of the stream goes right behind its bytes, before the server has answered: who waits for all that is said need not wait for another round trip.
    fn ends_early(&self, lane: &Lane) -> bool {
        lane.stage == Stage::Greeting && lane.due.fin && self.carries_data(lane) && self.outgoing.may_tell_end()
    }

    /// When [`Flow::poll_transmit`] has something for this lane that it has not now, if nothing else happens.
    pub fn lane_timeout(&self, lane: LaneId) -> Option<Timestamp> {
        let lane = self.lanes.iter().find(|known| known.id == lane)?;
        if self.ended.is_some() {
            return None;
        }
        if lane.held().is_some() {
            return lane.held();
        }
        let ack = self.ack_at.filter(|_| lane.stage == Stage::Up && !self.stands_by(lane));
        let late = (self.carries_data(lane) && self.lanes.len() > 1).then(|| self.late_at(lane)).flatten();
        let news = self.news_again.map(|(at, _)| at).filter(|_| lane.stage == Stage::Up);
        ack.into_iter().chain(late).chain(self.next_dark_at()).chain(news).min()
    }

    /// Since when something that went over this lane waits to be acknowledged.
    pub fn waits_since(&self, lane: LaneId) -> Option<Timestamp> {
        let lane = self.lanes.iter().find(|known| known.id == lane)?;
        self.waits_on(lane).or(lane.owes)
    }

    fn waits_on(&self, lane: &Lane) -> Option<Timestamp> {
        let acked = self.outgoing.acked();
        lane.sent.iter().find(|sent| sent.range.end > acked).map(|sent| sent.at)
    }

    /// Whether bytes of the stream go over this lane now.
    fn carries_data(&self, lane: &Lane) -> bool {
        self.ended.is_none() && self.reset.is_none() && !self.stands_by(lane) && !lane.is_dark
    }

    /// Finds the lanes that have gone dark. What they had under way goes over others at once, and nothing new goes over them until they are heard again. One lane always lives.
    fn mind_dark(&mut self, now: Timestamp) {
        if self.lanes.len() == 1 {
            let lane = &mut self.lanes[0];
            (lane.owes, lane.missed, lane.is_dark) = (None, None, false);
            return;
        }
        for at in 0..self.lanes.len() {
            let lane = &self.lanes[at];
            let owes = lane.owes.or_else(|| Some(self.waits_on(lane)?.max(lane.heard.unwrap_or_default())));
            self.lanes[at].owes = owes.filter(|_| !self.stands_by(&self.lanes[at]));
            self.lanes[at].missed = self.lanes[at].missed.filter(|_| self.lanes[at].owes.is_some());
        }
        for at in 0..self.lanes.len() {
            if self.dark_at(&self.lanes[at]).is_some_and(|dark_at| dark_at <= now) {
                self.darken(at);
            }
        }
        let lives = |lane: &Lane| !lane.is_dark && lane.stage == Stage::Up && !self.stands_by(lane);
        if !self.lanes.iter().any(lives) {
            self.lanes.iter_mut().for_each(|lane| lane.is_dark = false);
        }
    }

    fn darken(&mut self, at: usize) {
        let acked = self.outgoing.acked();
        let lane = &mut self.lanes[at];
        lane.is_dark = true;
        let sent = core::mem::take(&mut lane.sent);
        let before = if lane.left.end > acked { lane.left.pieces } else { 0 };
        let end = sent.iter().map(|sent| sent.range.end).max().unwrap_or_default();
        lane.left = Left { pieces: before + sent.len(), end: end.max(lane.left.end) };
        self.lose(&sent);
    }

    /// When a lane will count as dark, if nothing else happens.
    fn dark_at(&self, lane: &Lane) -> Option<Timestamp> {
        let owes = lane.owes.filter(|_| !lane.is_dark)?;
        let others = self.lanes.iter().filter(|other| {
            other.id != lane.id && other.stage == Stage::Up && !other.is_dark && !self.stands_by(other)
        });
        // What is acknowledged over others is owed no longer.
        let waits = self.waits_on(lane).map(|waits| waits.max(lane.heard.unwrap_or_default()));
        let missed = lane.missed.zip(waits);
        let missed = missed.map(|(missed, waits)| missed.max(waits) + lane.rtt * DARK_AFTER + DARK_MIN);
        let times = others.filter_map(|other| {
            // Of two that both owe one nobody knows which is dark.
            let alone = other.owes.is_none().then(|| owes + other.rtt.max(lane.rtt) * DARK_AFTER + DARK_ALONE_MIN);
            missed.into_iter().chain(alone).min()
        });
        times.min()
    }

    fn next_dark_at(&self) -> Option<Timestamp> {
        self.lanes.iter().filter_map(|lane| self.dark_at(lane)).min()
    }

    /// Whether others carry what there is: bytes and their acknowledgements.
    fn stands_by(&self, lane: &Lane) -> bool {
        let normal = |lane: &Lane| lane.lane_use == Use::Normal && lane.stage == Stage::Up;
        lane.lane_use == Use::Backup && self.lanes.iter().any(normal)
    }

    /// Whether there are bytes to send over this lane that are on none. When what is under way is scattered, new ones go on where the last went, and make no more gaps.
    fn has_next(&self, lane: &Lane) -> bool {
        let goes_on = || lane.sent.back().is_some_and(|last| last.range.end == self.outgoing.sent());
        let may_go = || self.lanes.len() == 1 || !self.is_scattered() || goes_on();
        self.outgoing.has_next() && !self.yields(lane) && (self.outgoing.has_lost() || may_go())
    }

    /// Whether this lane leaves new bytes to faster lanes: where there are few and a faster lane has nothing under way, or where the faster lanes would soon have no more to send and would wait
    /// for this one. They have no more to send once all credit is used up (BLEST: Ferlin et al., IFIP Networking 2016), or once all of a finished stream is sent.
    fn yields(&self, lane: &Lane) -> bool {
        let faster = |other: &&Lane| other.id != lane.id && self.carries_data(other) && other.rtt * 5 / 4 < lane.rtt;
        let mut faster = self.lanes.iter().filter(faster).peekable();
        if faster.peek().is_none() {
            return false;
        }
        let is_little = self.outgoing.is_little_left(LITTLE);
        let (credit, end) = (self.outgoing.credit(), self.outgoing.end());
        let is_ending = self.outgoing.is_finished() && end <= credit;
        let left = if is_ending { end } else { credit }.saturating_sub(self.outgoing.sent());
        let (mut rate, mut rests) = (0_u64, false);
        for other in faster {
            rests |= self.waits_on(other).is_none();
            rate = rate.saturating_add(other.pace.at(self.now));
        }
        // Credit comes back with the ACK. At the end, what this lane's carrier has taken and not sent yet goes out first: half a round trip's worth.
        let until = if is_ending { lane.rtt * 3 / 2 } else { lane.rtt };
        let meanwhile = u128::from(rate) * until.as_micros() / 1_000_000;
        (is_little && rests) || meanwhile > u128::from(left)
    }

    /// Whether as many ranges are under way as may be.
    fn is_scattered(&self) -> bool {
        let acked = self.outgoing.acked();
        let left = |lane: &Lane| if lane.left.end > acked { lane.left.pieces } else { 0 };
        let pieces: usize = self.lanes.iter().map(|lane| lane.sent.len() + left(lane)).sum();
        pieces + self.outgoing.lost_spans() >= SCATTERED_MAX
    }

    /// Whether nothing else will be there to send soon: the stream ends, or its application waits for an answer.
    fn is_at_tail(&self) -> bool {
        self.outgoing.is_all_sent() || self.outgoing.is_little_left(LITTLE)
    }

    /// Whether another lane may take over from this range what it has not brought. Not at the tail only what all else waits for: it will have more to send, and what comes in time it
    /// would bring again.
    fn may_be_doubled(&self, sent: &Sent, all: bool) -> bool {
        let single = sent.single(self.outgoing.acked());
        !single.is_empty() && (all || single.start == self.outgoing.acked())
    }

    /// For how long a lane leaves to another what that was given: one that has nothing to send, or has new bytes.
    fn patience(&self, lane: &Lane, other: &Lane, is_at_tail: bool, has_new: bool) -> Duration {
        if is_at_tail {
            return lane.rtt * DOUBLE_AFTER;
        }
        let round_trips = lane.rtt.max(other.rtt) * DOUBLE_AFTER;
        let usual = other.usual.map_or(round_trips, |usual| usual * 3 / 2).max(LATE_MIN);
        if has_new { usual } else { usual.min(round_trips) }
    }

    /// When this lane may take over what others have not brought.
    fn late_at(&self, lane: &Lane) -> Option<Timestamp> {
        let is_at_tail = self.is_at_tail();
        let others = self.lanes.iter().filter(|other| other.id != lane.id);
        let late = others.filter_map(|other| {
            let single = other.sent.iter().filter(|sent| self.may_be_doubled(sent, is_at_tail));
            Some(single.map(|sent| sent.at).min()? + self.patience(lane, other, is_at_tail, false))
        });
        late.min()
    }

    fn next_data(&mut self, at: usize, room: usize, now: Timestamp) -> Option<ByteRange> {
        if !self.carries_data(&self.lanes[at]) {
            return None;
        }
        let max = room.min(DATA_MAX) as u64;
        if max == 0 {
            return None;
        }
        let is_scattered = self.is_scattered();
        // What another should have brought long ago all that follows waits for.
        let first = if self.lanes.len() > 1 { self.take_over(at, true, max, now) } else { None };
        let has_next = first.is_none() && self.has_next(&self.lanes[at]);
        let next = if has_next { self.outgoing.next(max) } else { None };
        let is_double = next.is_none();
        let range = first.or(next).or_else(|| self.take_over(at, false, max, now))?;
        // What was taken over is on two lanes now: the other does not take it back, and so on for ever.
        let doubled = if is_double { range.end } else { 0 };
        let lane = &mut self.lanes[at];
        lane.pace.take(range.len(), now);
        let is_like = |last: &Sent| last.range.end == range.start && (!is_double || last.doubled == range.start);
        let is_near = |last: &Sent| last.range.len() < SENT_MAX && now.since(last.at) < lane.rtt;
        match lane.sent.back_mut() {
            Some(last) if is_like(last) && (is_scattered || is_near(last)) => {
                last.range.end = range.end;
                last.doubled = last.doubled.max(doubled);
            }
            _ => lane.sent.push_back(Sent { range, at: now, doubled }),
        }
        Some(range)
    }

    /// Nothing else is to be sent: what a slower lane should have brought by now holds up what lies behind it.
    fn take_over(&mut self, at: usize, has_new: bool, max: u64, now: Timestamp) -> Option<ByteRange> {
        let (single, other, sent) = self.first_late(at, has_new, now)?;
        let range = ByteRange::new(single.start, single.end.min(single.start + max));
        self.lanes[other].sent[sent].doubled = range.end;
        Some(range)
    }

    /// The first bytes that a lane may take over now, and where they were sent: on which lane, as which of its ranges.
    fn first_late(&self, at: usize, has_new: bool, now: Timestamp) -> Option<(ByteRange, usize, usize)> {
        let (acked, is_at_tail) = (self.outgoing.acked(), self.is_at_tail());
        let mut first: Option<(ByteRange, usize, usize)> = None;
        for (place, other) in self.lanes.iter().enumerate().filter(|(place, _)| *place != at) {
            let patience = self.patience(&self.lanes[at], other, is_at_tail, has_new);
            for (which, sent) in other.sent.iter().enumerate() {
                let single = sent.single(acked);
                let is_late = self.may_be_doubled(sent, is_at_tail) && now.since(sent.at) >= patience;
                if is_late && first.is_none_or(|(first, ..)| single.start < first.start) {
                    first = Some((single, place, which));
                }
            }
        }
        first
    }

    /// When [`Flow::poll_transmit`] may have something to say that it has not now. A time that has passed: as soon as a lane has room.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.ended.is_some() || !self.is_attached() {
            return None;
        }
        let mut at = self.ack_at.into_iter().chain(self.lanes.iter().filter_map(Lane::held)).min();
        if self.lanes.len() > 1 {
            let may_take = |lane: &&Lane| lane.stage == Stage::Up && self.carries_data(lane) && !self.has_next(lane);
            for lane in self.lanes.iter().filter(may_take) {
                at = at.into_iter().chain(self.late_at(lane)).min();
            }
            at = at.into_iter().chain(self.next_dark_at()).min();
        }
        at
    }
}
