//! What becomes of an upload once an attempt has ended: the [`Change`] that an answer, or its absence, makes.
//!
//! Bounds: [`RETRY_AFTER_MAX`], [`FAILURES_MAX`], and [`ANSWER_BODY_MAX`] of the answer.

use crate::core::Core;
use crate::owner;
use crate::routes::{OnFailure, OnUnknown};
use crate::rules::{Hold, Seen, Verdict, judge, judge_head};
use crate::state::{Change, Reason, State, Upload};
use crate::wire::Answer;
use hoop_http::{Code, Rng, retry_after};
use hoop_seal::signing::{self, Receipt, RequestSalt};
use hoop_seal::{Prelude, UploadKey, answer};
use hoop_units::UnixTime;
use std::time::Duration;

/// The longest `Retry-After` that is honoured (`docs/protocol.md` §6 has the same for gateways).
const RETRY_AFTER_MAX: Duration = Duration::from_secs(6 * 3600);

/// How often an application may say that it failed, until an upload waits for its owner. One that is being restarted or has lost its database
/// is well again within a few minutes; and each further attempt may leave another half of an upload there.
const FAILURES_MAX: u32 = 4;

/// By so many steps of the back-off the first wait after a failure is longer than after a word that the application is busy: from 8 to 16 s
/// on, with the default back-off.
const FAILED_STEPS: u32 = 4;

/// The most of the application's answer that the device gets (`docs/protocol.md` §8).
const ANSWER_BODY_MAX: usize = 16 * 1024;

/// What an answer means. `digest` is that of the body that the application was sent, if it is known.
/// `not_renewed` says why the form's token that was sent is the one that came with it, of what was released.
pub fn judged(
    core: &Core,
    upload: &Upload,
    answer: &Answer,
    passed: bool,
    digest: Option<[u8; 32]>,
    not_renewed: Option<String>,
) -> Change {
    let rules = &route(core, upload).rules;
    let own = [core.origin.authority(), core.upstream.authority()];
    let seen = Seen { status: answer.status, fields: &answer.fields, body: &answer.body, own };
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
        Verdict::Held(hold) if !anonymous(core, upload) => (State::Held, Some(held(hold, said(), not_renewed))),
        Verdict::Failed if failed_enough(core, upload, passed) => {
            let times = upload.failures + 1;
            let detail =
                if times == 1 { said() } else { format!("{}, the last of {times} times that it failed", said()) };
            (State::Held, Some(Reason::new(Code::UpstreamFailed, detail)))
        }
        Verdict::Failed => {
            let at = next(core, upload, FAILED_STEPS, wanted_wait(core, answer));
            return Change::Failed { at, reason: Reason::new(Code::UpstreamFailed, said()) };
        }
        Verdict::Held(_) | Verdict::Rejected => (State::Rejected, Some(Reason::new(Code::Rejected, said()))),
        Verdict::Retry => {
            let reason = Reason::new(Code::UpstreamBusy, said());
            return again(core, upload, reason, wanted_wait(core, answer));
        }
        Verdict::Unknown if passed => return lost(core, upload, Code::UpstreamBroken, said()),
        Verdict::Unknown => {
            return again(core, upload, Reason::new(Code::UpstreamBroken, said()), wanted_wait(core, answer));
        }
    };
    let receipt = digest.and_then(|digest| receipt(core, upload, state, digest));
    Change::Answered { state, reason, answer: sealed(core, upload, answer, state), receipt }
}

/// Why an upload waits for its owner, as it is shown: a session that had gone is named only where it had.
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

/// Whether the application is asked no more, which has failed now. `passed`: it may have stored the upload all the same.
fn failed_enough(core: &Core, upload: &Upload, passed: bool) -> bool {
    let once = passed && route(core, upload).on_failure == OnFailure::Hold;
    once || upload.failures + 1 >= FAILURES_MAX
}

/// The service's signed word on what became of an upload, in both versions, one after the other; none of what may become something else.
fn receipt(core: &Core, upload: &Upload, state: State, digest: [u8; 32]) -> Option<Vec<u8>> {
    let outcome = match state {
        State::Accepted => signing::Outcome::Accepted,
        State::Rejected => signing::Outcome::Rejected,
        _ => return None,
    };
    let (facts, key) = (upload.facts.as_ref()?, content_key(core, upload)?);
    let request = RequestSalt::of(&key, upload.id).digest(&facts.method, &facts.path);
    let (time, total) = (core.clock.unix(), upload.total);
    let plain = Receipt { upload_id: upload.id, outcome, time, total, digest, request: None };
    // Version 1 for devices that know no other; the second for all that do.
    let both = [plain, Receipt { request: Some(request), ..plain }];
    Some(both.map(|receipt| core.policy().keys.sign_receipt(&core.policy().origin, &receipt)).concat())
}

/// K, from the upload's ticket, which the replay opened a moment ago.
fn content_key(core: &Core, upload: &Upload) -> Option<UploadKey> {
    let prelude = Prelude::parse(&upload.prelude).ok()?;
    let ticket = core.policy().keys.open_ticket(&core.policy().origin, prelude.key_id()).ok()?;
    Some(ticket.grant.key)
}

/// Whether the upload came with neither cookie nor authorization: then there is no session that could be renewed.
fn anonymous(core: &Core, upload: &Upload) -> bool {
    upload.facts.as_ref().is_some_and(|facts| owner::is_nobody(&core.policy(), facts.owner))
}

/// The wait that the application asks for.
fn wanted_wait(core: &Core, answer: &Answer) -> Option<Duration> {
    let value = http::HeaderValue::from_bytes(answer.field("retry-after")?).ok()?;
    let headers = [(http::header::RETRY_AFTER, value)].into_iter().collect();
    retry_after(&headers, core.clock.wall()).map(|wait| wait.min(RETRY_AFTER_MAX))
}

/// Another attempt, after the back-off and no sooner than `least`.
pub fn again(core: &Core, upload: &Upload, reason: Reason, least: Option<Duration>) -> Change {
    Change::Retry { at: next(core, upload, 0, least), reason }
}

/// When it is tried again: so many steps of the back-off later than after a first attempt, and no sooner than in `least`.
fn next(core: &Core, upload: &Upload, steps: u32, least: Option<Duration>) -> UnixTime {
    let attempt = upload.attempts.saturating_sub(1).saturating_add(steps);
    let wait = core.backoff.delay(attempt, Rng.roll()).max(least.unwrap_or_default());
    // Rounded up: the index keeps whole seconds.
    let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    core.clock.unix().plus_secs(u32::try_from(secs).unwrap_or(u32::MAX))
}

/// The application may have it: `unknown`, unless the route says that twice does no harm.
pub fn lost(core: &Core, upload: &Upload, code: Code, detail: String) -> Change {
    match may_have_it_twice(core, upload) {
        false => Change::Lost(Reason::new(Code::AnswerLost, detail)),
        true => again(core, upload, Reason::new(code, detail), None),
    }
}

/// Whether the upload's route says that the application may be asked again though it may have taken it.
pub fn may_have_it_twice(core: &Core, upload: &Upload) -> bool {
    route(core, upload).on_unknown == OnUnknown::Retry
}

fn route(core: &Core, upload: &Upload) -> crate::routes::Route {
    let facts = upload.facts.as_ref();
    let (method, path) = facts.map_or(("POST", "/"), |facts| (&facts.method, &facts.path));
    core.policy().routes.of(method, path).clone()
}

/// The answer for the device's eyes: status line, what it was taken to mean, `Content-Type`, `Location`, and the beginning of the body.
/// The meaning is inside the seal, so that a gateway that says `accepted` can be asked for the proof.
fn sealed(core: &Core, upload: &Upload, answer: &Answer, state: State) -> Vec<u8> {
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
    let key = content_key(core, upload);
    key.map(|key| answer::seal(&key, upload.id, &text, Rng.octets())).unwrap_or_default()
}
