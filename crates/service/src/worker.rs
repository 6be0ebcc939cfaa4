//! Who replays what when: [`Worker`]; and what is over is cleared away.
//!
//! Promises: an upload is replayed by one attempt at a time (the index lets one claim it); what this process or the one
//! before left in the middle is taken up again, or called unknown where the application may have it.
//!
//! Bounds: `replays` attempts at once; [`ROUND_MAX`] rows a round of cleaning.

use crate::core::{Core, STOP_TIMEOUT};
use crate::replay::{self, Outcome};
use crate::routes::OnUnknown;
use crate::rules::{Seen, Verdict, judge, judge_head};
use crate::state::{Change, Changed, Reason, State, StoreError, Upload};
use crate::wire::Answer;
use hoop_http::{Code, Dice, Shutdown, retry_after};
use hoop_seal::{Prelude, answer};
use hoop_units::UploadId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::task::JoinSet;

/// Rows that are looked at in one round of cleaning, and at a time when starting.
const ROUND_MAX: usize = 256;

/// How often to clean, and to look for work that nobody rang for: lifetimes are counted in days.
const ROUND: Duration = Duration::from_secs(60);

/// The longest `Retry-After` that is honoured (`docs/protocol.md` §6 has the same for gateways).
const RETRY_AFTER_MAX: Duration = Duration::from_secs(6 * 3600);

/// The most of the application's answer that the device gets (`docs/protocol.md` §8).
const ANSWER_BODY_MAX: usize = 16 * 1024;

/// A body without an upload is deleted when nobody has written to it for a day: a crash left it between two syncs.
const ORPHAN_SECS: u64 = 24 * 3600;

/// How often to look for such bodies: they are rare, and it takes a walk through the folder.
const SWEEP: Duration = Duration::from_secs(24 * 3600);

/// Bodies that one such walk looks at: a megabyte of ids.
const SWEEP_MAX: usize = 65_536;

/// How often, and how far apart, it is tried to note what came of an attempt: five minutes in all.
const NOTE_TRIES: u32 = 60;

/// See [`NOTE_TRIES`].
const NOTE_WAIT: Duration = Duration::from_secs(5);

/// Replays and cleans until it is told to stop.
pub struct Worker {
    core: Arc<Core>,
    shutdown: Shutdown,
}

impl Worker {
    /// A worker for this service.
    pub const fn new(core: Arc<Core>, shutdown: Shutdown) -> Self {
        Self { core, shutdown }
    }

    /// Takes up what was interrupted, then replays what is due, until `shutdown`.
    pub async fn run(mut self) {
        if let Err(error) = self.recover().await {
            tracing::error!(%error, "interrupted uploads could not be taken up");
        }
        let mut attempts = JoinSet::new();
        let (mut next_round, mut next_sweep) = (tokio::time::Instant::now(), tokio::time::Instant::now());
        while !self.shutdown.is_requested() {
            if tokio::time::Instant::now() >= next_round {
                self.clean().await.unwrap_or_else(|error| tracing::error!(%error, "cleaning failed"));
                next_round = tokio::time::Instant::now() + ROUND;
            }
            if tokio::time::Instant::now() >= next_sweep {
                self.sweep()
                    .await
                    .unwrap_or_else(|error| tracing::error!(%error, "the bodies could not be looked through"));
                next_sweep = tokio::time::Instant::now() + SWEEP;
            }
            let wait = self.start_due(&mut attempts).await.unwrap_or_else(|error| {
                tracing::error!(%error, "the index could not be asked for work");
                Duration::from_secs(5)
            });
            let mut shutdown = self.shutdown.clone();
            tokio::select! {
                () = shutdown.requested() => {}
                Some(_) = attempts.join_next() => {}
                () = self.core.work.notified() => {}
                () = tokio::time::sleep(wait.min(ROUND)) => {}
            }
        }
        let finished = async { while attempts.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, finished).await.is_err() {
            tracing::warn!("stopping while the application has not answered a replay");
        }
    }

    /// Starts what is due and there is room for; returns how long until more is due.
    async fn start_due(&mut self, attempts: &mut JoinSet<()>) -> Result<Duration, StoreError> {
        let room = self.core.replays.saturating_sub(attempts.len());
        if room == 0 {
            return Ok(ROUND);
        }
        let now = self.core.clock.unix();
        for id in self.core.store.with(move |index| index.due(now, room)).await? {
            // The claim is made here, so that no second look finds the same upload.
            if let Changed::Done(upload) = self.core.store.apply(id, Change::Claim, now).await? {
                let (core, shutdown) = (self.core.clone(), self.shutdown.clone());
                attempts.spawn(async move { replay_one(&core, upload, shutdown).await });
            }
        }
        let next = self.core.store.with(move |index| index.next_due(now)).await?;
        Ok(next.map_or(ROUND, |next| Duration::from_secs(next.since(now).into())))
    }

    /// What was in the middle of a replay when the process ended.
    async fn recover(&self) -> Result<(), StoreError> {
        loop {
            let interrupted = self.core.store.with(|index| index.interrupted(ROUND_MAX)).await?;
            if interrupted.is_empty() {
                return Ok(());
            }
            for upload in interrupted {
                let change = match upload.state {
                    State::Committing => {
                        lost(&self.core, &upload, Code::AnswerLost, "the service was restarted".into())
                    }
                    _ => Change::Recover,
                };
                note(&self.core, upload.id, change).await?;
            }
        }
    }

    /// One round: expires what is overdue, deletes bodies that are no longer needed, forgets what nobody asks for.
    async fn clean(&self) -> Result<(), StoreError> {
        let (core, now) = (&self.core, self.core.clock.unix());
        for id in core.store.with(move |index| index.overdue(now, ROUND_MAX)).await? {
            note(core, id, Change::Expire).await?;
        }
        for id in core.store.with(|index| index.disposable(ROUND_MAX)).await? {
            core.store.dispose(id).await?;
        }
        core.store.with(move |index| index.forget(now, ROUND_MAX)).await?;
        Ok(())
    }

    /// Deletes bodies that no upload has.
    async fn sweep(&self) -> Result<(), StoreError> {
        let core = &self.core;
        let bodies = core.store.bodies().clone();
        for id in crate::state::blocking(move || bodies.idle(ORPHAN_SECS, SWEEP_MAX)).await?? {
            if core.store.load(id).await?.is_none() && !core.live.holds(id).await {
                let bodies = core.store.bodies().clone();
                crate::state::blocking(move || bodies.remove(id)).await??;
            }
        }
        Ok(())
    }
}

/// One attempt, from claim to note.
async fn replay_one(core: &Arc<Core>, upload: Upload, mut shutdown: Shutdown) {
    let id = upload.id;
    tracing::info!(%id, attempt = upload.attempts, "replaying");
    let stop = shutdown.clone();
    let mut news = core.store.news();
    let outcome = {
        let mut attempt = std::pin::pin!(replay::attempt(core, &upload, &stop));
        tokio::select! {
            outcome = &mut attempt => outcome,
            () = stopped(core, id, &mut news) => Outcome::Abandoned,
            () = shutdown.requested() => match core.store.load(id).await {
                // Before the gate nothing is lost by letting go; after it, the answer is worth waiting for.
                Ok(Some(Upload { state: State::Committing, .. })) => attempt.await,
                _ => Outcome::Abandoned,
            },
        }
    };
    let change = match outcome {
        Outcome::Answered { answer, passed } => judged(core, &upload, &answer, passed),
        Outcome::Failed(code, detail) => again(core, &upload, Reason::new(code, detail), None),
        Outcome::Lost(code, detail) => lost(core, &upload, code, detail),
        Outcome::Abandoned => Change::Recover,
    };
    // The answer is worth some patience with a full disk; unnoted, it would be unknown after the next start.
    for _ in 0..NOTE_TRIES {
        match note(core, id, change.clone()).await {
            Ok(()) => return,
            Err(error) => tracing::error!(%id, %error, "a change could not be noted"),
        }
        tokio::time::sleep(NOTE_WAIT).await;
    }
}

/// Returns once the upload's owner has stopped it.
async fn stopped(core: &Core, id: UploadId, news: &mut broadcast::Receiver<UploadId>) {
    loop {
        match core.store.load(id).await {
            Ok(Some(upload)) if upload.state == State::Stopped => return,
            _ => while news.recv().await.is_ok_and(|changed| changed != id) {},
        }
    }
}

/// Notes a change, and deletes the body of an upload that is over.
async fn note(core: &Core, id: UploadId, change: Change) -> Result<(), StoreError> {
    match core.store.apply(id, change, core.clock.unix()).await? {
        Changed::Done(upload) => {
            let reason = upload.reason.as_ref().map(|reason| reason.code.name());
            tracing::info!(%id, state = upload.state.name(), reason, "changed");
            if upload.state.is_final()
                && let Err(error) = core.store.dispose(id).await
            {
                tracing::warn!(%id, %error, "a body could not be deleted yet");
            }
            core.work.notify_one();
        }
        // Its owner has stopped it, or its time ran out, in between.
        Changed::Refused(upload) => tracing::debug!(%id, state = upload.state.name(), "changed already"),
        Changed::Unknown => {}
    }
    Ok(())
}

/// What an answer means.
fn judged(core: &Core, upload: &Upload, answer: &Answer, passed: bool) -> Change {
    let rules = &route(core, upload).rules;
    let seen = Seen { status: answer.status, fields: &answer.fields, body: &answer.body };
    let verdict = match answer.complete {
        true => Some(judge(rules, seen)),
        false => judge_head(rules, seen),
    };
    let Some(verdict) = verdict else {
        let detail = format!("its answer, {}, was cut off before what the route's rules look at", answer.status);
        return match passed {
            true => lost(core, upload, Code::UpstreamBroken, detail),
            false => again(core, upload, Reason::new(Code::UpstreamBroken, detail), None),
        };
    };
    let said = || format!("it answered {}", answer.status);
    let (state, reason) = match verdict {
        Verdict::Accepted => (State::Accepted, None),
        Verdict::Held if !anonymous(core, upload) => (State::Held, Some(Reason::new(Code::SignInRequired, said()))),
        Verdict::Held | Verdict::Rejected => (State::Rejected, Some(Reason::new(Code::Rejected, said()))),
        Verdict::Retry => {
            let reason = Reason::new(Code::UpstreamBusy, said());
            return again(core, upload, reason, wanted_wait(core, answer));
        }
    };
    Change::Answered { state, reason, answer: sealed(core, upload, answer) }
}

/// Whether the upload came with neither cookie nor authorization: then there is no session that could be renewed.
fn anonymous(core: &Core, upload: &Upload) -> bool {
    let nobody = |owner| core.policy.keys.owner_tags(b"", b"").any(|tag| tag == owner);
    upload.facts.as_ref().is_some_and(|facts| nobody(facts.owner))
}

/// The wait that the application asks for.
fn wanted_wait(core: &Core, answer: &Answer) -> Option<Duration> {
    let value = http::HeaderValue::from_bytes(answer.field("retry-after")?).ok()?;
    let headers = [(http::header::RETRY_AFTER, value)].into_iter().collect();
    retry_after(&headers, core.clock.wall()).map(|wait| wait.min(RETRY_AFTER_MAX))
}

/// Another attempt, after the back-off and no sooner than `least`.
fn again(core: &Core, upload: &Upload, reason: Reason, least: Option<Duration>) -> Change {
    let wait = core.backoff.delay(upload.attempts.saturating_sub(1), Dice.roll()).max(least.unwrap_or_default());
    // Rounded up: the index keeps whole seconds.
    let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let at = core.clock.unix().plus_secs(u32::try_from(secs).unwrap_or(u32::MAX));
    Change::Retry { at, reason }
}

/// The application may have it: `unknown`, unless the route says that twice does no harm.
fn lost(core: &Core, upload: &Upload, code: Code, detail: String) -> Change {
    match route(core, upload).on_unknown {
        OnUnknown::Hold => Change::Lost(Reason::new(Code::AnswerLost, detail)),
        OnUnknown::Retry => again(core, upload, Reason::new(code, detail), None),
    }
}

fn route<'a>(core: &'a Core, upload: &Upload) -> &'a crate::routes::Route {
    let facts = upload.facts.as_ref();
    let (method, path) = facts.map_or(("POST", "/"), |facts| (&facts.method, &facts.path));
    core.policy.routes.of(method, path)
}

/// The answer for the device's eyes: status line, `Content-Type`, `Location`, and the beginning of the body.
fn sealed(core: &Core, upload: &Upload, answer: &Answer) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {} \r\n", answer.status).into_bytes();
    for name in ["Content-Type", "Location"] {
        if let Some(value) = answer.field(name) {
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value);
            text.extend_from_slice(b"\r\n");
        }
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(&answer.body[..answer.body.len().min(ANSWER_BODY_MAX)]);
    let ticket = Prelude::parse(&upload.prelude).ok();
    let ticket = ticket.and_then(|prelude| core.policy.keys.open_ticket(&core.policy.origin, prelude.key_id()).ok());
    // The replay opened the same ticket a moment ago.
    ticket.map(|ticket| answer::seal(&ticket.grant.key, upload.id, &text, Dice.octets())).unwrap_or_default()
}
