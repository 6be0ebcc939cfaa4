//! Decides which upload is replayed when: [`Worker`].
//!
//! Promises: one attempt at a time replays an upload, since the index lets one claim it. Interrupted replays, of this
//! process or the one before, are taken up again, or become unknown where the application may have the upload. A broken
//! row or body blocks no other upload.
//!
//! Bounds: `replays` attempts at once, and half of them for one payer while another has something due. [`ROUND_MAX`]
//! rows at a time.

use super::Replay;
use crate::context::{ATTEMPT_LINES, STOP_TIMEOUT};
use crate::model::{Change, Payer, Reason, State, Upload};
use crate::receive::Receive;
use crate::receive::gc;
use crate::replay::attempt::{self, Attempted};
use crate::replay::outcome::{again, judged, lost, may_have_it_twice};
use crate::store::{Changed, News, Store, StoreError};
use hoop_http::{Code, Lines, Shutdown};
use hoop_units::UploadId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Rows that are asked for at a time.
const ROUND_MAX: usize = 256;

/// How often the worker looks for work without being told.
const ROUND: Duration = Duration::from_secs(60);

/// How often the outcome of an attempt is tried to be noted: five minutes in all. After that the next round takes the
/// upload up.
const NOTE_TRIES: u32 = 60;

/// See [`NOTE_TRIES`].
const NOTE_WAIT: Duration = Duration::from_secs(5);

/// How often a state is tried to be opened for which there was no room.
const OPEN_WAIT: Duration = Duration::from_secs(5);

/// Replays and cleans until it is told to stop.
pub struct Worker {
    replay: Arc<Replay>,
    receive: Arc<Receive>,
    shutdown: Shutdown,
    attempts: Attempts,
    /// Who had the last turn.
    last: Option<Payer>,
}

impl Worker {
    /// A worker for this service.
    pub fn new(replay: Arc<Replay>, receive: Arc<Receive>, shutdown: Shutdown) -> Self {
        Self { replay, receive, shutdown, attempts: Attempts::default(), last: None }
    }

    /// Takes up what was interrupted and replays what is due, until `shutdown`.
    pub async fn run(mut self) {
        while !self.replay.context.store.opened().await && !self.shutdown.is_requested() {
            let mut shutdown = self.shutdown.clone();
            tokio::select! {
                () = shutdown.requested() => {}
                () = tokio::time::sleep(OPEN_WAIT) => {}
            }
        }
        let started = Instant::now();
        let mut next_round = started;
        let mut cleaning = JoinSet::new();
        let mut checking = JoinSet::new();
        checking.spawn(attempt::check_lengths(self.replay.clone()));
        while !self.shutdown.is_requested() {
            if Instant::now() >= next_round {
                self.take_up(next_round == started).await;
                next_round = Instant::now() + ROUND;
                if cleaning.try_join_next().is_some() {
                    tracing::error!("cleaning broke off");
                }
                if cleaning.is_empty() {
                    cleaning.spawn(gc::run(self.receive.clone(), self.shutdown.clone()));
                }
            }
            let wait = self.start_due().await.unwrap_or_else(|error| {
                tracing::error!(%error, "the index could not be asked for work");
                Duration::from_secs(5)
            });
            let mut shutdown = self.shutdown.clone();
            tokio::select! {
                () = shutdown.requested() => {}
                Some(whole) = self.attempts.ended() => if !whole {
                    tracing::error!("an attempt broke off");
                    next_round = Instant::now();
                },
                () = self.replay.context.work.notified() => {}
                () = tokio::time::sleep(wait.min(next_round.saturating_duration_since(Instant::now()))) => {}
            }
        }
        let finished = async {
            while self.attempts.ended().await.is_some() {}
            while cleaning.join_next().await.is_some() {}
        };
        if tokio::time::timeout(STOP_TIMEOUT, finished).await.is_err() {
            tracing::warn!("stopping while the application has not answered a replay");
        }
    }

    /// Starts what is due and there is room for; returns how long until more is due.
    async fn start_due(&mut self) -> Result<Duration, StoreError> {
        let now = self.replay.context.clock.unix();
        if self.attempts.len() >= self.replay.at_once {
            return Ok(ROUND);
        }
        let last = self.last;
        let mut waiting = Waiting::new(self.replay.context.store.with(move |index| index.due(last, now)).await?);
        while let Some((payer, id)) = waiting.next(|payer| self.attempts.of(payer), self.replay.at_once) {
            // The claim is made here, so that no second look finds the same upload.
            match self.replay.context.store.apply(id, Change::Claim, now).await {
                Ok(Changed::Done(upload)) => {
                    let (replay, shutdown) = (self.replay.clone(), self.shutdown.clone());
                    self.attempts.start(id, payer, async move { replay_one(&replay, upload, shutdown).await });
                    self.last = payer;
                }
                Ok(Changed::Refused(_) | Changed::Unknown) => {}
                // It holds up no other.
                Err(error) => tracing::error!(%id, %error, "an upload could not be claimed"),
            }
            if self.attempts.len() >= self.replay.at_once {
                return Ok(ROUND);
            }
        }
        let next = self.replay.context.store.with(move |index| index.next_due(now)).await?;
        Ok(next.map_or(ROUND, |next| Duration::from_secs(next.since(now).into())))
    }

    /// Takes up uploads in the middle of a replay that have no attempt here. The process before has ended (`at_start`),
    /// or an attempt broke off, or could not note its outcome.
    async fn take_up(&self, at_start: bool) {
        let mut after = None;
        loop {
            let ids = match self.replay.context.store.with(move |index| index.interrupted(after, ROUND_MAX)).await {
                Ok(ids) => ids,
                Err(error) => return tracing::error!(%error, "the index could not be asked for what was interrupted"),
            };
            for id in ids.iter().filter(|id| !self.attempts.has(**id)) {
                if let Err(error) = self.take_up_one(*id, at_start).await {
                    tracing::error!(%id, %error, "an interrupted upload could not be taken up");
                }
            }
            if ids.len() < ROUND_MAX {
                return;
            }
            after = ids.last().copied();
        }
    }

    async fn take_up_one(&self, id: UploadId, at_start: bool) -> Result<(), StoreError> {
        let Some(upload) = self.replay.context.store.load(id).await? else { return Ok(()) };
        let detail = || "the replay was interrupted".to_owned();
        let change = match upload.state {
            State::Committing if !(at_start && may_have_it_twice(&self.replay, &upload)) => {
                lost(&self.replay, &upload, Code::AnswerLost, detail())
            }
            _ if at_start => Change::Recover,
            // What broke one attempt may break the next, so it waits.
            _ => again(&self.replay, &upload, Reason::new(Code::Internal, detail()), None),
        };
        self.replay.context.note(id, change).await
    }
}

/// What is due, by payer. The first payer has the next turn.
struct Waiting(VecDeque<(Option<Payer>, VecDeque<UploadId>)>);

impl Waiting {
    fn new(due: Vec<(Option<Payer>, UploadId)>) -> Self {
        let payers = due.chunk_by(|one, other| one.0 == other.0);
        Self(payers.map(|of| (of[0].0, of.iter().map(|(_, id)| *id).collect())).collect())
    }

    /// The next upload to replay. A payer that has half of the replays or more is passed over while another has
    /// something due.
    fn next(&mut self, has: impl Fn(Option<Payer>) -> usize, replays: usize) -> Option<(Option<Payer>, UploadId)> {
        let alone = self.0.len() == 1;
        let at = self.0.iter().position(|(payer, _)| alone || has(*payer) < replays.div_ceil(2))?;
        let (payer, mut ids) = self.0.remove(at)?;
        let id = ids.pop_front()?;
        if !ids.is_empty() {
            self.0.push_back((payer, ids));
        }
        Some((payer, id))
    }
}

/// Attempts that are under way.
#[derive(Default)]
struct Attempts {
    tasks: JoinSet<()>,
    ids: BTreeMap<tokio::task::Id, (UploadId, Option<Payer>)>,
}

impl Attempts {
    fn start(&mut self, id: UploadId, payer: Option<Payer>, attempt: impl Future<Output = ()> + Send + 'static) {
        self.ids.insert(self.tasks.spawn(attempt).id(), (id, payer));
    }

    /// Waits for one to end. Returns whether it ended by itself; none: there is none.
    async fn ended(&mut self) -> Option<bool> {
        let ended = self.tasks.join_next_with_id().await?;
        let (task, whole) = match ended {
            Ok((task, ())) => (task, true),
            Err(error) => (error.id(), false),
        };
        self.ids.remove(&task);
        Some(whole)
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn has(&self, id: UploadId) -> bool {
        self.ids.values().any(|(other, _)| *other == id)
    }

    /// How many a payer has.
    fn of(&self, payer: Option<Payer>) -> usize {
        self.ids.values().filter(|(_, other)| *other == payer).count()
    }
}

/// One attempt, from claim to note.
async fn replay_one(replay: &Replay, upload: Upload, mut shutdown: Shutdown) {
    let (id, context) = (upload.id, &replay.context);
    replay.attempts.fetch_add(1, Ordering::Relaxed);
    static LINES: Lines = Lines::at_most(ATTEMPT_LINES);
    let more = || tracing::info!("more attempts begin than are written down in this minute");
    if LINES.have_room(std::time::Instant::now(), more) {
        tracing::info!(%id, attempt = upload.attempts, "replaying");
    }
    let stop = shutdown.clone();
    let mut news = context.store.news();
    let outcome = {
        let mut attempt = std::pin::pin!(attempt::attempt(replay, &upload, &stop));
        tokio::select! {
            outcome = &mut attempt => outcome,
            () = called_back(&context.store, id, &mut news) => {
                match context.store.apply(id, Change::CallBack, context.clock.unix()).await {
                    // It has passed the gate meanwhile.
                    Ok(Changed::Refused(Upload { state: State::Committing, .. })) => attempt.await,
                    Ok(_) => return,
                    Err(_) => Attempted::Abandoned,
                }
            }
            // Before the gate, dropping the attempt loses nothing. After it, the answer is worth waiting for.
            () = shutdown.requested() => match may_let_go(&context.store.load(id).await) {
                true => Attempted::Abandoned,
                false => attempt.await,
            },
        }
    };
    let change = match outcome {
        Attempted::Answered { answer, passed, digest, not_renewed } => {
            let digest = digest.finish().await;
            judged(replay, &upload, &answer, passed, digest, not_renewed)
        }
        Attempted::Held(reason) => Change::Hold(reason),
        Attempted::Damaged(left) => Change::Damaged(left),
        Attempted::Failed(code, detail) => again(replay, &upload, Reason::new(code, detail), None),
        Attempted::Lost(code, detail) => lost(replay, &upload, code, detail),
        Attempted::Abandoned if shutdown.is_requested() => Change::Recover,
        Attempted::Abandoned => Change::CallBack,
    };
    // An answer is worth waiting for a full disk. Without it the upload would be unknown after the next start.
    for _ in 0..NOTE_TRIES {
        match context.note(id, change.clone()).await {
            Ok(()) => return,
            Err(error) => tracing::error!(%id, %error, "a change could not be noted"),
        }
        tokio::time::sleep(NOTE_WAIT).await;
    }
}

/// Whether it is certain that an upload has not passed the gate. If the index cannot be asked, it may have.
const fn may_let_go(known: &Result<Option<Upload>, StoreError>) -> bool {
    matches!(known, Ok(Some(Upload { state: State::Replaying | State::Stopped, .. })))
}

/// Returns once the upload's owner has stopped it, or has paused it before the gate.
async fn called_back(store: &Store, id: UploadId, news: &mut broadcast::Receiver<News>) {
    loop {
        match store.load(id).await {
            Ok(Some(upload)) if upload.state == State::Stopped => return,
            Ok(Some(upload)) if upload.state == State::Replaying && upload.paused => return,
            _ => while news.recv().await.is_ok_and(|changed| changed.id != id) {},
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::application::Application;
    use super::*;
    use crate::config::Config;
    use crate::context::Context;
    use hoop_http::Connector;
    use hoop_seal::{Keyring, KwsId, ServiceKey};
    use hoop_units::{ByteRange, UnixTime};

    #[test]
    fn at_shutdown_only_an_attempt_known_to_be_before_its_gate_is_dropped() {
        let begun = || Upload::begun(UploadId([1; 16]), Vec::new(), 1, UnixTime(1), UnixTime(1));
        let upload = |state| Upload { state, attempts: 1, ..begun() };
        for state in State::ALL {
            let before = matches!(state, State::Replaying | State::Stopped);
            assert_eq!(may_let_go(&Ok(Some(upload(state)))), before, "{state:?}");
        }
        assert!(!may_let_go(&Ok(None)));
        assert!(!may_let_go(&Err(StoreError::Damaged("for once"))), "the gate may have been passed");
    }

    #[test]
    fn one_payer_gets_half_of_the_replays_while_another_waits() {
        let [one, two] = [1, 2].map(|n| Some(Payer::Owner([n; 16])));
        let started = |due: &[Option<Payer>], before: &[Option<Payer>], replays: usize| {
            let due = due.iter().enumerate().map(|(n, payer)| (*payer, UploadId([n as u8; 16]))).collect();
            let (mut waiting, mut under_way) = (Waiting::new(due), before.to_vec());
            while under_way.len() < replays {
                let has = |payer| under_way.iter().filter(|other| **other == payer).count();
                let Some((payer, _)) = waiting.next(has, replays) else { break };
                under_way.push(payer);
            }
            under_way.split_off(before.len())
        };
        assert_eq!(started(&[one, one, one, one, one, two, two, two], &[], 4), [one, two, one, two]);
        assert_eq!(started(&[one, one, one, two], &[], 4), [one, two, one, one], "the other has no more");
        assert_eq!(started(&[one, one, two], &[one, one, one], 4), [two]);
        assert_eq!(started(&[one, one], &[one, one], 4), [one, one]);
        assert_eq!(started(&[one, two], &[], 1), [one]);
        assert_eq!(started(&[None, one, two], &[one, two], 3), [None]);
    }

    /// What is over may be thousands of uploads, each with its sync.
    #[tokio::test(flavor = "multi_thread")]
    async fn replays_begin_while_old_uploads_are_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        let (upstream, origin) = ("http://127.0.0.1:9".parse().unwrap(), "https://photos.example".parse().unwrap());
        let keys = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
        let config = Config::new(upstream, origin, keys, dir.path().to_owned());
        let store = Store::open(dir.path(), config.max_ended_bytes).unwrap();
        let connector = Connector::new(hoop_http::tls::client_config(&[]).unwrap());
        let application = Arc::new(Application::new(&config, connector));
        let context = Arc::new(Context::new(&config, store));
        let receive = Arc::new(Receive::new(&config, context.clone()));
        let replay = Arc::new(Replay::new(&config, context.clone(), application));
        let (over, due) = (UploadId([1; 16]), UploadId([2; 16]));
        for (id, come) in [(over, 64), (due, 100)] {
            let received = [ByteRange::new(0, come)].into_iter().collect();
            let begun = Upload::begun(id, vec![1; 32], 100, UnixTime(u32::MAX - 9), UnixTime(1));
            let upload = Upload { received, payer: Some(Payer::Address([1; 16])), ..begun };
            context.store.with(move |index| index.receive(&upload, true)).await.unwrap();
        }
        // Whoever forgets the one that is over waits for this.
        let held = receive.in_flight.part(over).lock().await;
        let (stop, stopped) = hoop_http::shutdown();
        let working = tokio::spawn(Worker::new(replay, receive.clone(), stopped).run());
        let begun = async {
            while context.store.load(due).await.unwrap().unwrap().attempts == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let begun = tokio::time::timeout(Duration::from_secs(20), begun).await;
        drop(held);
        begun.expect("it is due, and waits for nobody");
        stop.trigger();
        working.await.unwrap();
        assert!(context.store.load(over).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn an_attempt_that_panics_is_no_longer_under_way() {
        let mut attempts = Attempts::default();
        attempts.start(UploadId([1; 16]), None, async { panic!("meant to") });
        assert!(attempts.has(UploadId([1; 16])));
        assert_eq!(attempts.ended().await, Some(false));
        assert!(!attempts.has(UploadId([1; 16])) && attempts.len() == 0);
        attempts.start(UploadId([2; 16]), None, async {});
        assert_eq!((attempts.ended().await, attempts.ended().await), (Some(true), None));
    }
}
