//! What becomes of an upload once an attempt has ended: the [`Change`] that an answer, or its absence, makes.
//!
//! Bounds: [`RETRY_AFTER_MAX`], [`FAILURES_MAX`], and [`ANSWER_BODY_MAX`] of the answer.

use super::Replay;
use crate::model::{Change, Reason, State, Upload};
use crate::policy::owner;
use crate::policy::rules::{Hold, Outcome, Seen, judge, judge_head};
use crate::policy::rules_file::{OnFailure, OnUnknown};
use crate::replay::http1_response::Answer;
use hoop_http::{Code, Rng, retry_after};
use hoop_seal::signing::{self, Receipt, RequestSalt};
use hoop_seal::{Prelude, UploadKey, answer};
use hoop_units::UnixTime;
use std::time::Duration;

/// The longest `Retry-After` that is honoured (`docs/protocol.md` §6 has the same for gateways).
const RETRY_AFTER_MAX: Duration = Duration::from_secs(6 * 3600);

/// How often an application may say that it failed before an upload waits for its owner. A restarted application, or
/// one that lost its database, is well again within minutes. Each further attempt may leave another half of an upload
/// there.
const FAILURES_MAX: u32 = 4;

/// The first wait after a failure is so many steps of the back-off longer than after a busy answer: 8 to 16 s by
/// default.
const FAILED_STEPS: u32 = 4;

/// The most of the application's answer that the device gets (`docs/protocol.md` §8).
const ANSWER_BODY_MAX: usize = 16 * 1024;

/// What an answer means for its upload. `digest` is that of the body that the application was sent, if known.
/// `not_renewed` says why a released upload was sent with its old form token.
pub fn judged(
    replay: &Replay,
    upload: &Upload,
    answer: &Answer,
    passed: bool,
    digest: Option<[u8; 32]>,
    not_renewed: Option<String>,
) -> Change {
    let rules = &route(replay, upload).rules;
    let own = replay.application.own();
    let seen = Seen { status: answer.status, fields: &answer.fields, body: &answer.body, own };
    let outcome = match answer.complete {
        true => Some(judge(rules, seen)),
        false => judge_head(rules, seen),
    };
    let Some(outcome) = outcome else {
        let detail = format!("its answer, {}, was cut off before what the route's rules look at", answer.status);
        return match passed {
            true => lost(replay, upload, Code::UpstreamBroken, detail),
            false => again(replay, upload, Reason::new(Code::UpstreamBroken, detail), None),
        };
    };
    let said = || format!("it answered {}", answer.status);
    let (state, reason) = match outcome {
        Outcome::Accepted => (State::Accepted, None),
        Outcome::Held(hold) if !has_no_credentials(replay, upload) => {
            (State::Held, Some(held(hold, said(), not_renewed)))
        }
        Outcome::Failed if failed_enough(replay, upload, passed) => {
            let times = upload.failures + 1;
            let detail =
                if times == 1 { said() } else { format!("{}, the last of {times} times that it failed", said()) };
            (State::Held, Some(Reason::new(Code::UpstreamFailed, detail)))
        }
        Outcome::Failed => {
            let at = next(replay, upload, FAILED_STEPS, wanted_wait(replay, answer));
            return Change::Failed { at, reason: Reason::new(Code::UpstreamFailed, said()) };
        }
        Outcome::Held(_) | Outcome::Rejected => (State::Rejected, Some(Reason::new(Code::Rejected, said()))),
        Outcome::Retry => {
            let reason = Reason::new(Code::UpstreamBusy, said());
            return again(replay, upload, reason, wanted_wait(replay, answer));
        }
        Outcome::Unknown if passed => return lost(replay, upload, Code::UpstreamBroken, said()),
        Outcome::Unknown => {
            return again(replay, upload, Reason::new(Code::UpstreamBroken, said()), wanted_wait(replay, answer));
        }
    };
    let receipt = digest.and_then(|digest| receipt(replay, upload, state, digest));
    Change::Answered { state, reason, answer: sealed(replay, upload, answer, state), receipt }
}

/// Why an upload waits for its owner, in words for people. It blames the session only where that had gone.
fn held(hold: Hold, said: String, not_renewed: Option<String>) -> Reason {
    let said = match not_renewed.filter(|_| hold == Hold::Token) {
        Some(why) => format!("{said}; {why}"),
        None => said,
    };
    let code = match hold {
        Hold::Session => Code::SignInRequired,
        Hold::Token => Code::FormTokenRefused,
        Hold::Permission => Code::NotPermitted,
    };
    Reason::new(code, said)
}

/// Whether a failed application is asked no more. `passed`: it may have stored the upload all the same.
fn failed_enough(replay: &Replay, upload: &Upload, passed: bool) -> bool {
    let once = passed && route(replay, upload).on_failure == OnFailure::Hold;
    once || upload.failures + 1 >= FAILURES_MAX
}

/// The signed receipt of an upload, in both versions, one after the other. None while its state may still change.
fn receipt(replay: &Replay, upload: &Upload, state: State, digest: [u8; 32]) -> Option<Vec<u8>> {
    let word = match state {
        State::Accepted => signing::Outcome::Accepted,
        State::Rejected => signing::Outcome::Rejected,
        _ => return None,
    };
    let (facts, key) = (upload.facts.as_ref()?, content_key(replay, upload)?);
    let request = RequestSalt::of(&key, upload.id).digest(&facts.method, &facts.path);
    let (time, total) = (replay.context.clock.unix(), upload.total);
    let plain = Receipt { upload_id: upload.id, outcome: word, time, total, digest, request: None };
    // Version 1 for devices that know no other; version 2 for the rest.
    let both = [plain, Receipt { request: Some(request), ..plain }];
    Some(
        both.map(|receipt| replay.context.policy().keys.sign_receipt(&replay.context.policy().origin, &receipt))
            .concat(),
    )
}

/// K, from the upload's ticket, which the replay opened a moment ago.
fn content_key(replay: &Replay, upload: &Upload) -> Option<UploadKey> {
    let prelude = Prelude::parse(&upload.prelude).ok()?;
    let ticket = replay.context.policy().keys.open_ticket(&replay.context.policy().origin, prelude.key_id()).ok()?;
    Some(ticket.grant.key)
}

/// Whether the upload came with neither cookie nor authorization: then there is no session that could be renewed.
fn has_no_credentials(replay: &Replay, upload: &Upload) -> bool {
    upload.facts.as_ref().is_some_and(|facts| owner::is_nobody(&replay.context.policy(), facts.owner))
}

/// The wait that the application asks for.
fn wanted_wait(replay: &Replay, answer: &Answer) -> Option<Duration> {
    let value = http::HeaderValue::from_bytes(answer.field("retry-after")?).ok()?;
    let headers = [(http::header::RETRY_AFTER, value)].into_iter().collect();
    retry_after(&headers, replay.context.clock.wall()).map(|wait| wait.min(RETRY_AFTER_MAX))
}

/// Another attempt, after the back-off and no sooner than `least`.
pub fn again(replay: &Replay, upload: &Upload, reason: Reason, least: Option<Duration>) -> Change {
    Change::Retry { at: next(replay, upload, 0, least), reason }
}

/// When the next attempt is due: `steps` of the back-off later than after a first attempt, and no sooner than in
/// `least`.
fn next(replay: &Replay, upload: &Upload, steps: u32, least: Option<Duration>) -> UnixTime {
    let attempt = upload.attempts.saturating_sub(1).saturating_add(steps);
    let wait = replay.backoff.delay(attempt, Rng.jitter()).max(least.unwrap_or_default());
    // Rounded up: the index keeps whole seconds.
    let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    replay.context.clock.unix().plus_secs(u32::try_from(secs).unwrap_or(u32::MAX))
}

/// The application may have it: `unknown`, unless the route says that twice does no harm.
pub fn lost(replay: &Replay, upload: &Upload, code: Code, detail: String) -> Change {
    match may_have_it_twice(replay, upload) {
        false => Change::Lost(Reason::new(Code::AnswerLost, detail)),
        true => again(replay, upload, Reason::new(code, detail), None),
    }
}

/// Whether the upload's route lets it be sent again although the application may have it.
pub fn may_have_it_twice(replay: &Replay, upload: &Upload) -> bool {
    route(replay, upload).on_unknown == OnUnknown::Retry
}

fn route(replay: &Replay, upload: &Upload) -> crate::policy::rules_file::Route {
    let facts = upload.facts.as_ref();
    let (method, path) = facts.map_or(("POST", "/"), |facts| (&facts.method, &facts.path));
    replay.context.policy().routes.of(method, path).clone()
}

/// The answer as only the device can read it: status line, state, `Content-Type`, `Location`, and the beginning of the
/// body. The state is inside the seal, so that a gateway that says `accepted` can be asked for the proof.
fn sealed(replay: &Replay, upload: &Upload, answer: &Answer, state: State) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {} \r\nHoop-State: {}\r\n", answer.status, state.shown()).into_bytes();
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
    let key = content_key(replay, upload);
    key.map(|key| answer::seal(&key, upload.id, &text, Rng.bytes())).unwrap_or_default()
}
