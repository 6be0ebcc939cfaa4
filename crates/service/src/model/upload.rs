//! An upload and the one place where its state changes: [`Upload::apply`]. Pure: the time comes in.
//!
//! ```text
//! receiving ─▶ received ─▶ replaying ─▶ committing ─▶ accepted │ rejected │ held │ unknown
//!                  ▲────────────┴────────────┘ try again        │        │       │
//!                  ▲────────── its owner releases it ───────────┴────────┴───────┘
//! ```
//!
//! Promises: only its owner can undo the receipt of a rejected upload, and nobody can undo that of an accepted one. Only
//! an upload past the gate (in `committing`) can become unknown. A paused upload is not claimed and does not pass the gate. A released upload has its bytes
//! ([`Upload::kept`]).

use crate::model::{Payer, Tag};
use hoop_http::Code;
use hoop_units::{RangeSet, UnixTime, UploadId};

/// How long after a ticket's end its upload may still end, and its answer is kept (`docs/protocol.md` §2, §8).
pub const LINGER_SECS: u32 = 7 * 24 * 3600;

/// How long the bytes of a rejected or unknown upload are kept for its owner, who may hand it over again: a week, in
/// which most people look at their uploads. No longer than [`LINGER_SECS`] after the ticket's end, when keys may go.
pub const KEPT_SECS: u32 = 7 * 24 * 3600;

/// What a file system gives a file at least, in bytes.
pub const BLOCK: u64 = 4096;

/// What a path may have before it counts: applications' own are shorter.
const PATH_FREE: usize = 512;

/// Where an upload stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Ranges are missing.
    Receiving,
    /// All is there; to be replayed now or at `next_attempt`.
    Received,
    /// Being replayed; the application cannot have all of it yet.
    Replaying,
    /// The last bytes may have been sent.
    Committing,
    /// The application has it.
    Accepted,
    /// The application does not want it.
    Rejected,
    /// Waits for its owner: the session has gone, or the application refused the form's token, or failed.
    Held,
    /// The application may have it; its answer was lost.
    Unknown,
    /// Its owner stopped it.
    Stopped,
    /// Its time ran out.
    Expired,
}

// Their names in the index.
hoop_units::names!(State:
    Receiving = "receiving", Received = "received", Replaying = "replaying", Committing = "committing",
    Accepted = "accepted", Rejected = "rejected", Held = "held", Unknown = "unknown", Stopped = "stopped",
    Expired = "expired"
);

impl State {
    /// The state of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The state's name on the wire. The inner states between receiving and the answer are not shown
    /// (`docs/protocol.md` §8).
    pub const fn shown(self) -> &'static str {
        match self {
            Self::Replaying | Self::Committing => Self::Received.name(),
            other => other.name(),
        }
    }

    /// Whether it stays so, unless its owner does something about it.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Accepted | Self::Rejected | Self::Unknown | Self::Stopped | Self::Expired => true,
            Self::Receiving | Self::Received | Self::Replaying | Self::Committing | Self::Held => false,
        }
    }

    /// Whether nothing more happens to it by itself: it is final, or waits for its owner.
    pub const fn is_settled(self) -> bool {
        self.is_final() || matches!(self, Self::Held)
    }

    /// Whether an upload may go from here to there.
    const fn may_become(self, next: Self) -> bool {
        use State::*;
        match self {
            Receiving => matches!(next, Receiving | Received | Stopped | Expired),
            Received => matches!(next, Replaying | Stopped | Expired),
            // An application may answer before it has read all. But before the gate it is certain that it has not all.
            Replaying => matches!(next, Received | Committing | Accepted | Rejected | Held | Stopped),
            Committing => matches!(next, Received | Accepted | Rejected | Held | Unknown),
            Held => matches!(next, Received | Stopped | Expired),
            // Only a release goes on from here, while the bytes are kept.
            Accepted | Rejected | Unknown | Stopped | Expired => false,
        }
    }
}

/// What is in the way of an upload, as it is shown to whoever asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// The code.
    pub code: Code,
    /// This occurrence, in words, without secrets.
    pub detail: String,
}

impl Reason {
    /// A reason with a sentence on this occurrence.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}

/// What is known of the request inside, once record 0 was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The method.
    pub method: String,
    /// The path, without the query, which may hold secrets.
    pub path: String,
    /// Whose it is.
    pub owner: Tag,
}

/// What is known of an upload.
#[derive(Clone, PartialEq, Eq)]
pub struct Upload {
    /// Its name.
    pub id: UploadId,
    /// Everything of Z before the records.
    pub prelude: Vec<u8>,
    /// The length of Z.
    pub total: u64,
    /// Bytes of Z that are here, opened and synced.
    pub received: RangeSet,
    /// Where it stands.
    pub state: State,
    /// Whether its owner has paused it. Never of what is final.
    pub paused: bool,
    /// Known once record 0 is here.
    pub facts: Option<Facts>,
    /// Who pays for its room. None: an older version has written it.
    pub payer: Option<Payer>,
    /// When its first bytes came.
    pub created: UnixTime,
    /// When anything last changed.
    pub updated: UnixTime,
    /// The ticket's end.
    pub expires: UnixTime,
    /// How often it was handed to the application, or was tried to.
    pub attempts: u32,
    /// When it is tried again. None: as soon as possible.
    pub next_attempt: Option<UnixTime>,
    /// What is in the way.
    pub reason: Option<Reason>,
    /// The application's answer, sealed for the device.
    pub answer: Option<Vec<u8>>,
    /// What became of it, signed: of what is accepted or rejected.
    pub receipt: Option<Vec<u8>>,
    /// A token with newer credentials than the one inside, sealed like that one.
    pub token: Option<Vec<u8>>,
    /// How often the application has said that it failed, since it was released last.
    pub failures: u32,
    /// Whether its bytes are kept for its owner although it has ended.
    pub kept: bool,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("id", &self.id).field("state", &self.state).finish_non_exhaustive()
    }
}

/// Something that happened to an upload.
#[derive(Clone, PartialEq, Eq)]
pub enum Change {
    /// A replay begins.
    Claim,
    /// The last bytes are about to be sent.
    Commit,
    /// The attempt came to nothing; another is due then.
    Retry {
        /// When.
        at: UnixTime,
        /// Why.
        reason: Reason,
    },
    /// The application said that it failed; another attempt is due then.
    Failed {
        /// When.
        at: UnixTime,
        /// Why.
        reason: Reason,
    },
    /// The application answered for good, or until its owner comes back.
    Answered {
        /// Accepted, rejected or held.
        state: State,
        /// Why, unless accepted.
        reason: Option<Reason>,
        /// Its answer, sealed.
        answer: Vec<u8>,
        /// The receipt, unless held.
        receipt: Option<Vec<u8>>,
    },
    /// It was not handed over, as it waits for its owner.
    Hold(Reason),
    /// The application may have it, and its answer was lost.
    Lost(Reason),
    /// This process has ended in the middle of a replay that the application cannot have taken, or may take twice. That
    /// is no failure of the application. The attempt does not count, and the next is due at once.
    Recover,
    /// Its owner has paused it, so that the attempt was dropped. It counts: the application may have been sent most of
    /// the upload.
    CallBack,
    /// Its body was damaged on the disk, and this is left of it. The rest has to be sent again.
    Damaged(RangeSet),
    /// Its owner hands it over again, with the credentials in this token.
    Release {
        /// The token, sealed.
        token: Vec<u8>,
        /// Whose it is from now on.
        owner: Tag,
        /// Whether the application may have it twice by that.
        twice: bool,
    },
    /// The bytes of what has ended are kept no longer.
    LetGo,
    /// Its owner pauses it, wherever it stands.
    Pause,
    /// It goes on.
    Resume,
    /// Its owner stops it.
    Stop,
    /// Its time ran out.
    Expire,
}

/// A change that the upload's state does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an upload that is {} cannot become {}", from.name(), to.name())]
pub struct Backwards {
    /// Where it stands.
    pub from: State,
    /// Where it was to go.
    pub to: State,
}

impl Upload {
    /// An upload that begins now, of which nothing is here. Its ticket ends at `expires`.
    pub const fn begun(id: UploadId, prelude: Vec<u8>, total: u64, expires: UnixTime, now: UnixTime) -> Self {
        Self {
            id,
            prelude,
            total,
            received: RangeSet::new(),
            state: State::Receiving,
            paused: false,
            facts: None,
            payer: None,
            created: now,
            updated: now,
            expires,
            attempts: 0,
            next_attempt: None,
            reason: None,
            answer: None,
            receipt: None,
            token: None,
            failures: 0,
            kept: false,
        }
    }

    /// Applies a change, or leaves all as it was.
    ///
    /// # Errors
    /// If the state does not allow it.
    pub fn apply(&mut self, change: Change, now: UnixTime) -> Result<(), Backwards> {
        let to = change.target(self.state);
        if !self.allows(&change, to) {
            return Err(Backwards { from: self.state, to });
        }
        self.state = to;
        if !matches!(change, Change::LetGo) {
            self.updated = now;
        }
        self.next_attempt = None;
        self.paused &= !to.is_final();
        self.kept &= to.is_final() && !matches!(change, Change::LetGo);
        match change {
            Change::Claim => self.attempts = self.attempts.saturating_add(1),
            Change::Commit => {}
            Change::Recover => self.attempts = self.attempts.saturating_sub(1),
            Change::Retry { at, reason } => (self.next_attempt, self.reason) = (Some(at), Some(reason)),
            Change::Failed { at, reason } => {
                (self.next_attempt, self.reason) = (Some(at), Some(reason));
                self.failures = self.failures.saturating_add(1);
            }
            Change::Answered { reason, answer, receipt, .. } => {
                (self.reason, self.answer, self.receipt) = (reason, Some(answer), receipt);
                self.kept = to == State::Rejected;
            }
            Change::Hold(reason) => (self.reason, self.answer) = (Some(reason), None),
            Change::Lost(reason) => (self.reason, self.kept) = (Some(reason), true),
            Change::LetGo => {}
            Change::CallBack => self.next_attempt = self.next_of_owner(now),
            Change::Damaged(left) => {
                let detail = "some of it was spoilt on the service's disk, and is missing again";
                (self.received, self.reason) = (left, Some(Reason::new(Code::Internal, detail)));
            }
            Change::Pause => self.paused = true,
            Change::Resume => (self.paused, self.next_attempt) = (false, self.next_of_owner(now)),
            Change::Release { token, owner, .. } => {
                self.next_attempt = self.next_of_owner(now);
                (self.paused, self.failures) = (false, 0);
                (self.reason, self.answer, self.receipt, self.token) = (None, None, None, Some(token));
                if let Some(facts) = &mut self.facts {
                    facts.owner = owner;
                }
            }
            Change::Stop => self.reason = Some(Reason::new(Code::UploadStopped, "")),
            Change::Expire => self.reason = Some(Reason::new(Code::UploadExpired, "")),
        }
        Ok(())
    }

    /// When an upload is due that its owner hands over again. None: at once.
    fn next_of_owner(&self, now: UnixTime) -> Option<UnixTime> {
        wait_of_owner(self.attempts).map(|wait| now.plus_secs(wait))
    }

    /// Whether a change may be made now.
    const fn allows(&self, change: &Change, to: State) -> bool {
        match change {
            Change::Pause | Change::Resume => !self.state.is_final(),
            Change::Claim | Change::Commit if self.paused => false,
            Change::LetGo => self.kept,
            // Past the gate its answer is waited for.
            Change::CallBack => matches!(self.state, State::Replaying),
            // Before the gate alone: later the application may have it.
            Change::Damaged(_) => matches!(self.state, State::Received | State::Replaying),
            Change::Release { twice, .. } => match self.state {
                State::Held => true,
                State::Rejected => self.kept,
                State::Unknown => self.kept && *twice,
                State::Receiving | State::Received | State::Replaying | State::Committing => false,
                State::Accepted | State::Stopped | State::Expired => false,
            },
            _ => self.state.may_become(to),
        }
    }

    /// Adds what was received; once nothing is missing, the state is `received`.
    ///
    /// # Errors
    /// If the upload takes nothing more.
    pub fn receive(&mut self, received: &RangeSet, facts: Option<&Facts>, now: UnixTime) -> Result<(), Backwards> {
        if self.state != State::Receiving {
            return Err(Backwards { from: self.state, to: State::Receiving });
        }
        received.iter().for_each(|range| self.received.insert(range));
        self.facts = self.facts.take().or_else(|| facts.cloned());
        self.updated = now;
        if self.received.missing(self.total).next().is_none() {
            self.state = State::Received;
        }
        Ok(())
    }

    /// Whether it comes in, and its record 0 is not here: nobody knows whose it is.
    pub fn is_headless(&self) -> bool {
        self.state == State::Receiving && self.facts.is_none()
    }

    /// The room that it takes on disk while its body is kept, in whole [`BLOCK`]s: those in which something has come, and what can be longer.
    /// That is a long path, the token of a release, and of what is held its path and answer as well. What has ended is counted apart.
    pub fn room(&self) -> u64 {
        let path = self.facts.as_ref().map_or(0, |facts| facts.path.len());
        let sealed = |stored: &Option<Vec<u8>>| stored.as_ref().map_or(0, Vec::len);
        let row = match self.state {
            State::Held => path + sealed(&self.answer) + sealed(&self.token),
            state if state.is_final() => 0,
            _ => path.saturating_sub(PATH_FREE) + sealed(&self.token),
        };
        let whole = |bytes: u64| bytes.div_ceil(BLOCK).saturating_mul(BLOCK);
        let mut end = 0;
        let body = self.received.iter().map(|range| {
            // Two spans may share a block.
            let start = (range.start - range.start % BLOCK).max(end);
            end = whole(range.end);
            end.saturating_sub(start)
        });
        body.fold(whole(row as u64), u64::saturating_add)
    }

    /// Until when the bytes of what has ended are kept for its owner; none: they are not.
    pub fn kept_until(&self) -> Option<UnixTime> {
        self.kept.then(|| self.updated.plus_secs(KEPT_SECS).min(self.ends()))
    }

    /// Until when it may end, and its answer is kept.
    pub const fn ends(&self) -> UnixTime {
        self.expires.plus_secs(LINGER_SECS)
    }
}

/// Attempts after which a release or a resume waits. Nobody who tries another password, or mends what the application refused,
/// needs as many at once.
const AT_ONCE: u32 = 8;

/// The longest that it waits.
const OWNER_WAIT_MAX_SECS: u32 = 15 * 60;

/// How long an upload waits that its owner releases or resumes, in seconds. Each attempt sends the whole upload to the
/// application, and costs its owner nothing.
fn wait_of_owner(attempts: u32) -> Option<u32> {
    let doublings = attempts.checked_sub(AT_ONCE)?;
    Some(1_u32.checked_shl(doublings).map_or(OWNER_WAIT_MAX_SECS, |wait| wait.min(OWNER_WAIT_MAX_SECS)))
}

impl Change {
    /// The state that it leads to from `state`.
    const fn target(&self, state: State) -> State {
        match self {
            Self::Pause | Self::Resume | Self::LetGo => state,
            Self::Claim => State::Replaying,
            Self::Commit => State::Committing,
            Self::Retry { .. } | Self::Failed { .. } | Self::Recover | Self::CallBack | Self::Release { .. } => {
                State::Received
            }
            Self::Answered { state, .. } => *state,
            Self::Damaged(_) => State::Receiving,
            Self::Hold(_) => State::Held,
            Self::Lost(_) => State::Unknown,
            Self::Stop => State::Stopped,
            Self::Expire => State::Expired,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_units::ByteRange;

    fn upload(state: State) -> Upload {
        Upload { state, ..Upload::begun(UploadId([1; 16]), vec![0; 128], 200, UnixTime(100), UnixTime(1)) }
    }

    fn release(twice: bool) -> Change {
        Change::Release { token: vec![1], owner: [1; 16], twice }
    }

    fn changes() -> Vec<Change> {
        let reason = || Reason::new(Code::Internal, "");
        let answered = |state| Change::Answered { state, reason: None, answer: vec![1], receipt: None };
        vec![
            Change::Claim,
            Change::Commit,
            Change::Retry { at: UnixTime(9), reason: reason() },
            answered(State::Accepted),
            answered(State::Rejected),
            answered(State::Held),
            Change::Lost(reason()),
            Change::Recover,
            Change::CallBack,
            Change::Damaged(RangeSet::new()),
            Change::Failed { at: UnixTime(9), reason: reason() },
            Change::Hold(reason()),
            release(false),
            release(true),
            Change::LetGo,
            Change::Pause,
            Change::Resume,
            Change::Stop,
            Change::Expire,
        ]
    }

    /// How far a receipt has come, as others see it.
    fn rank(state: State) -> u8 {
        match state {
            State::Receiving => 0,
            State::Received | State::Replaying | State::Committing | State::Held => 1,
            State::Accepted | State::Rejected | State::Unknown | State::Stopped | State::Expired => 2,
        }
    }

    #[test]
    fn only_a_damaged_body_takes_a_receipt_backwards_and_final_means_final() {
        for from in State::ALL {
            for change in changes() {
                let is_damaged = matches!(change, Change::Damaged(_));
                let mut upload = upload(from);
                let before = upload.clone();
                match upload.apply(change, UnixTime(5)) {
                    Ok(()) => {
                        assert!(!from.is_final(), "{from:?} became {:?} though nothing of it was kept", upload.state);
                        assert!(rank(upload.state) >= rank(from) || is_damaged, "{from:?} became {:?}", upload.state);
                    }
                    Err(error) => {
                        assert_eq!(error.from, from);
                        assert!(upload == before, "a refused change changes nothing");
                    }
                }
            }
        }
    }

    #[test]
    fn an_upload_past_the_gate_is_neither_stopped_nor_expired() {
        for change in [Change::Stop, Change::Expire] {
            assert!(upload(State::Committing).apply(change.clone(), UnixTime(5)).is_err());
            assert!(upload(State::Accepted).apply(change, UnixTime(5)).is_err());
        }
    }

    #[test]
    fn an_attempt_that_ended_with_the_process_does_not_lengthen_the_back_off() {
        let mut upload = upload(State::Received);
        for change in [Change::Claim, Change::Commit, Change::Recover, Change::Claim, Change::Recover] {
            upload.apply(change, UnixTime(5)).unwrap();
        }
        assert_eq!((upload.state, upload.attempts, upload.next_attempt), (State::Received, 0, None));
        let failed = Change::Retry { at: UnixTime(9), reason: Reason::new(Code::UpstreamBusy, "") };
        for change in [Change::Claim, failed, Change::Claim, Change::Recover] {
            upload.apply(change, UnixTime(5)).unwrap();
        }
        assert_eq!(upload.attempts, 1);
    }

    #[test]
    fn what_has_come_counts_the_blocks_that_it_lies_in() {
        let mut upload = upload(State::Receiving);
        let room = |upload: &Upload| upload.room() / BLOCK;
        for (ranges, blocks) in [
            (&[][..], 0),
            (&[(0, 1)], 1),
            (&[(4_000, 4_200)], 2),
            (&[(0, 10), (20, 30), (4_090, 4_100), (5_000, 5_001)], 2),
            (&[(0, 1), (8_192, 8_193)], 2),
            (&[(0, 8_192), (10_000, 20_000)], 5),
        ] {
            upload.received = ranges.iter().map(|(start, end)| ByteRange::new(*start, *end)).collect();
            assert_eq!(room(&upload), blocks, "{ranges:?}");
        }
    }

    #[test]
    fn a_long_path_counts_in_every_state_that_keeps_the_body() {
        for state in [State::Receiving, State::Received, State::Replaying, State::Committing, State::Held] {
            let mut upload = upload(state);
            let before = upload.room();
            let path = format!("/{}", "p".repeat(8_000));
            upload.facts = Some(Facts { method: "POST".to_owned(), path, owner: [1; 16] });
            assert_eq!(upload.room() - before, 8_192, "{}", state.name());
        }
    }

    #[test]
    fn the_token_of_a_release_counts_until_the_upload_has_ended() {
        let mut upload = upload(State::Held);
        let before = upload.room();
        let release = Change::Release { token: vec![1; 8_192], owner: [1; 16], twice: false };
        upload.apply(release, UnixTime(9)).unwrap();
        assert_eq!((upload.state, upload.room()), (State::Received, before + 8_192));
        upload.apply(Change::Stop, UnixTime(9)).unwrap();
        assert_eq!(upload.room(), before);
    }

    #[test]
    fn a_paused_upload_is_not_replayed_until_it_is_resumed_or_released() {
        for (state, change) in [(State::Received, Change::Claim), (State::Replaying, Change::Commit)] {
            let mut paused = upload(state);
            paused.apply(Change::Pause, UnixTime(5)).unwrap();
            assert_eq!((paused.state, paused.paused), (state, true));
            assert!(paused.apply(change.clone(), UnixTime(6)).is_err());
            paused.apply(Change::Resume, UnixTime(7)).unwrap();
            assert!(paused.apply(change, UnixTime(8)).is_ok());
        }
        let mut held = upload(State::Held);
        held.apply(Change::Pause, UnixTime(5)).unwrap();
        held.apply(release(false), UnixTime(6)).unwrap();
        assert_eq!((held.state, held.paused), (State::Received, false));
    }

    #[test]
    fn a_rejected_upload_is_kept_for_its_owner_until_it_is_let_go() {
        let answered = |state| Change::Answered { state, reason: None, answer: vec![1], receipt: Some(vec![2]) };
        let mut rejected = upload(State::Committing);
        rejected.apply(answered(State::Rejected), UnixTime(5)).unwrap();
        assert_eq!(rejected.kept_until(), Some(UnixTime(5 + KEPT_SECS)));
        let mut again = rejected.clone();
        again.apply(release(false), UnixTime(6)).unwrap();
        assert_eq!((again.state, again.kept, again.receipt.clone()), (State::Received, false, None));
        for change in [Change::Claim, Change::Commit, answered(State::Accepted)] {
            again.apply(change, UnixTime(7)).unwrap();
        }
        assert_eq!((again.state, again.kept_until()), (State::Accepted, None));
        rejected.apply(Change::LetGo, UnixTime(7)).unwrap();
        assert!(rejected.apply(release(true), UnixTime(8)).is_err(), "there is nothing to hand over");
        assert!(rejected.apply(Change::LetGo, UnixTime(8)).is_err());
    }

    #[test]
    fn each_further_release_of_an_upload_waits_longer() {
        let rejected = || Change::Answered { state: State::Rejected, reason: None, answer: vec![1], receipt: None };
        let mut upload = upload(State::Received);
        let mut now = UnixTime(1_000);
        let mut wait = || {
            for change in [Change::Claim, Change::Commit, rejected(), release(false)] {
                upload.apply(change, now).unwrap();
            }
            let wait = upload.next_attempt.map(|at| at.0 - now.0);
            now = upload.next_attempt.unwrap_or(now);
            wait
        };
        assert!((1..AT_ONCE).all(|_| wait().is_none()));
        let waits: Vec<_> = (0..40).map(|_| wait().unwrap()).collect();
        assert_eq!(waits[..11], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900]);
        assert!(waits[11..].iter().all(|wait| *wait == OWNER_WAIT_MAX_SECS));
    }

    #[test]
    fn each_further_pause_of_a_replay_has_it_wait_longer() {
        let mut upload = upload(State::Received);
        let mut now = UnixTime(1_000);
        let mut wait = |resumed: bool| {
            let (called, resume) = (Change::CallBack, Change::Resume);
            // The attempt may end before its owner resumes, or after.
            let ends = if resumed { [resume, called] } else { [called, resume] };
            for change in [Change::Claim, Change::Pause].into_iter().chain(ends) {
                upload.apply(change, now).unwrap();
            }
            let wait = upload.next_attempt.map(|at| at.0 - now.0);
            now = upload.next_attempt.unwrap_or(now);
            wait
        };
        assert!((1..AT_ONCE).all(|n| wait(n % 2 == 0).is_none()));
        let waits: Vec<_> = (0..12).map(|n| wait(n % 2 == 0).unwrap()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
    }

    #[test]
    fn a_kept_upload_goes_a_week_after_its_tickets_end() {
        let mut late = Upload { expires: UnixTime(100), ..upload(State::Committing) };
        late.apply(Change::Lost(Reason::new(Code::AnswerLost, "")), UnixTime(100 + LINGER_SECS - 9)).unwrap();
        assert_eq!(late.kept_until(), Some(UnixTime(100 + LINGER_SECS)));
    }

    #[test]
    fn an_unknown_upload_is_released_only_by_an_owner_who_takes_the_risk() {
        let mut unknown = upload(State::Committing);
        unknown.apply(Change::Lost(Reason::new(Code::AnswerLost, "")), UnixTime(5)).unwrap();
        assert!(unknown.apply(release(false), UnixTime(6)).is_err());
        unknown.apply(release(true), UnixTime(7)).unwrap();
        assert_eq!((unknown.state, unknown.kept), (State::Received, false));
    }

    #[test]
    fn failures_are_counted_anew_after_a_release() {
        let mut upload = upload(State::Received);
        let failed = || Change::Failed { at: UnixTime(9), reason: Reason::new(Code::UpstreamFailed, "") };
        let held = Change::Answered { state: State::Held, reason: None, answer: vec![1], receipt: None };
        for change in [Change::Claim, failed(), Change::Claim, failed(), Change::Claim, held] {
            upload.apply(change, UnixTime(5)).unwrap();
        }
        assert_eq!((upload.failures, upload.attempts), (2, 3));
        upload.apply(release(false), UnixTime(6)).unwrap();
        assert_eq!((upload.failures, upload.state), (0, State::Received));
    }

    #[test]
    fn a_pause_past_the_gate_keeps_no_answer_out() {
        let mut upload = upload(State::Committing);
        upload.apply(Change::Pause, UnixTime(5)).unwrap();
        let answered = Change::Answered { state: State::Accepted, reason: None, answer: vec![1], receipt: None };
        upload.apply(answered, UnixTime(6)).unwrap();
        assert_eq!((upload.state, upload.paused), (State::Accepted, false));
        assert!(upload.apply(Change::Pause, UnixTime(7)).is_err());
    }

    /// The pause may have been seen before the gate, and be over.
    #[test]
    fn only_before_the_gate_an_upload_is_called_back() {
        for state in State::ALL {
            let called_back = upload(state).apply(Change::CallBack, UnixTime(5)).is_ok();
            assert_eq!(called_back, state == State::Replaying, "{state:?}");
        }
    }

    #[test]
    fn only_the_gate_makes_an_upload_unknown() {
        let lost = Change::Lost(Reason::new(Code::AnswerLost, ""));
        for state in State::ALL {
            assert_eq!(upload(state).apply(lost.clone(), UnixTime(5)).is_ok(), state == State::Committing, "{state:?}");
        }
    }

    #[test]
    fn an_upload_is_received_when_nothing_is_missing_and_then_takes_no_more() {
        let mut upload = upload(State::Receiving);
        let ranges = |end| [ByteRange::new(0, end)].into_iter().collect::<RangeSet>();
        upload.receive(&ranges(199), None, UnixTime(2)).unwrap();
        assert_eq!(upload.state, State::Receiving);
        upload.receive(&ranges(200), None, UnixTime(3)).unwrap();
        assert_eq!(upload.state, State::Received);
        assert!(upload.receive(&ranges(200), None, UnixTime(4)).is_err());
    }

    #[test]
    fn every_state_survives_its_name_and_the_inner_ones_are_shown_as_received() {
        for state in State::ALL {
            assert_eq!(State::by_name(state.name()), Some(state));
        }
        assert_eq!((State::Replaying.shown(), State::Committing.shown()), ("received", "received"));
        assert_eq!(State::by_name("of-tomorrow"), None);
    }
}
