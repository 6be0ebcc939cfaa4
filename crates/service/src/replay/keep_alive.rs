//! Sessions are kept alive while their uploads are under way, if the operator says how: [`run`], by [`KeepAlive`].
//!
//! An upload over a slow line may take longer than a session lasts without a click. The application is asked in an
//! owner's name while an upload of theirs comes in or waits for the application, and is not paused. Once it says that
//! they are signed out, it is asked no more. Neither path nor credentials are logged.
//!
//! Bounds: [`SESSIONS_MAX`] sessions; [`OF_PAYER`] of one address among those that the application does not name;
//! [`PINGS_MAX`] questions at once, each of [`PING_TIMEOUT`]. If there are more sessions, each gets its turn: anybody
//! can make sessions up, and that must cost nobody theirs.

use super::Replay;
use crate::model::Tag;
use crate::policy::session::KeepAlive;
use crate::replay::attempt;
use crate::store::UnderWay;
use hoop_http::{Shutdown, is_sign_in, read_limited};
use hoop_units::{UnixTime, UploadId};
use http::{Response, StatusCode, header};
use hyper::body::Incoming;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Sessions that are kept alive at a time; those of named users come first. An application with more users at once
/// needs a way of its own.
const SESSIONS_MAX: usize = 1_024;

/// Sessions of one address among those that the application does not name: a household.
const OF_PAYER: usize = 16;

/// Questions at once: the application's workers are for its users.
const PINGS_MAX: usize = 4;

/// How long the application may take for one.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// What is read of an answer, so that the application is not cut off in the middle of it.
const ANSWER_MAX: usize = 64 * 1024;

/// What is known of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Session {
    /// It was asked then.
    Asked(UnixTime),
    /// The application says that they are signed out.
    Gone,
}

/// Keeps sessions alive until `shutdown`, if the operator says how.
pub async fn run(replay: Arc<Replay>, mut shutdown: Shutdown) {
    let Some(rule) = replay.context.policy().routes.keep_alive.clone() else { return };
    let mut sessions = BTreeMap::new();
    while !shutdown.is_requested() {
        tokio::select! {
            () = shutdown.requested() => return,
            () = round(&replay, &rule, &mut sessions) => {}
        }
        tokio::select! {
            () = shutdown.requested() => return,
            () = tokio::time::sleep(replay.keep_alive_round) => {}
        }
    }
}

/// Asks for each session that is due.
async fn round(replay: &Arc<Replay>, rule: &KeepAlive, sessions: &mut BTreeMap<Tag, Session>) {
    let now = replay.context.clock.unix();
    let turn = turn(now, rule.every_secs);
    let under_way = match replay.context.store.with(move |index| index.under_way(turn, OF_PAYER, SESSIONS_MAX)).await {
        Ok(under_way) => under_way,
        Err(error) => return tracing::error!(%error, "the index could not be asked whose uploads are under way"),
    };
    let mut asking = JoinSet::new();
    for (tag, id) in due(sessions, &under_way, rule.every_secs, now) {
        if asking.len() >= PINGS_MAX {
            take(sessions, asking.join_next().await, now);
        }
        let (replay, path) = (replay.clone(), rule.path.clone());
        asking.spawn(async move { (tag, ask(&replay, &path, id).await) });
    }
    while let Some(asked) = asking.join_next().await {
        take(sessions, Some(asked), now);
    }
}

/// Where the circle of owners begins in this period. Each period begins elsewhere, so that each owner comes to be among
/// the first.
fn turn(now: UnixTime, every_secs: u32) -> Tag {
    // Steps of the golden ratio leave no wide gap.
    let place = u64::from(now.0 / every_secs).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut turn = [0; 16];
    turn[..8].copy_from_slice(&place.to_be_bytes());
    turn
}

/// Which sessions to ask for, with an upload of each. A session without an upload under way is forgotten; a new one
/// counts as alive.
fn due(
    sessions: &mut BTreeMap<Tag, Session>,
    under_way: &[UnderWay],
    every_secs: u32,
    now: UnixTime,
) -> Vec<(Tag, UploadId)> {
    let known = |of: &UnderWay| *sessions.get(&of.owner).unwrap_or(&Session::Asked(of.began));
    *sessions = under_way.iter().map(|of| (of.owner, known(of))).collect();
    let is_due = |tag: &Tag| matches!(sessions[tag], Session::Asked(at) if now < at || now.since(at) >= every_secs);
    under_way.iter().filter(|of| is_due(&of.owner)).map(|of| (of.owner, of.id)).collect()
}

fn take(
    sessions: &mut BTreeMap<Tag, Session>,
    asked: Option<Result<(Tag, Option<bool>), tokio::task::JoinError>>,
    now: UnixTime,
) {
    // Any other answer, or none, is asked for again at the next time.
    if let Some(Ok((tag, signed_in))) = asked {
        let gone = signed_in == Some(false);
        sessions.insert(tag, if gone { Session::Gone } else { Session::Asked(now) });
    }
}

/// Asks the application as the user of an upload. Returns whether they are signed in, if it says.
async fn ask(replay: &Replay, path: &str, id: UploadId) -> Option<bool> {
    let upload = replay.context.store.load(id).await.ok()??;
    let credentials =
        attempt::credentials(&replay.context, &upload).await.ok().filter(|credentials| !credentials.is_empty())?;
    let asking = async {
        let response = replay.application.get(path, "*/*", &credentials).await.ok()?;
        let signed_in = !is_signed_out(&response);
        let _ = read_limited(response.into_body(), ANSWER_MAX).await;
        Some(signed_in)
    };
    tokio::time::timeout(PING_TIMEOUT, asking).await.ok()?
}

fn is_signed_out(response: &Response<Incoming>) -> bool {
    let to_sign_in = || response.headers().get_all(header::LOCATION).iter().any(|value| is_sign_in(value.as_bytes()));
    match response.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => true,
        status => status.is_redirection() && to_sign_in(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_asked_for_on_time_until_it_has_gone() {
        let under_way = |n: u8| UnderWay { owner: [n; 16], id: UploadId([n; 16]), began: UnixTime(999 + u32::from(n)) };
        let (one, two) = (under_way(1), under_way(2));
        let mut sessions = BTreeMap::new();
        let due_at = |sessions: &mut _, under_way: &[_], now| -> Vec<u8> {
            due(sessions, under_way, 600, UnixTime(now)).iter().map(|(tag, _)| tag[0]).collect()
        };
        assert_eq!(due_at(&mut sessions, &[one], 1_000), [0; 0], "its browser has just asked for a ticket");
        assert_eq!(due_at(&mut sessions, &[one, two], 1_599), [0; 0]);
        assert_eq!(due_at(&mut sessions, &[one, two], 1_600), [1]);
        take(&mut sessions, Some(Ok((one.owner, Some(true)))), UnixTime(1_600));
        assert_eq!(due_at(&mut sessions, &[one, two], 2_199), [2]);
        take(&mut sessions, Some(Ok((two.owner, Some(false)))), UnixTime(2_199));
        assert_eq!(due_at(&mut sessions, &[one, two], 9_000), [1], "the other has gone");
        take(&mut sessions, Some(Ok((one.owner, None))), UnixTime(9_000));
        assert_eq!(due_at(&mut sessions, &[one], 9_600), [1], "no answer is no sign-out");
        due_at(&mut sessions, &[], 9_600);
        assert!(sessions.is_empty(), "nothing is kept of whoever has nothing under way");
        assert_eq!(due_at(&mut sessions, &[one], 9_600), [1], "one whose turn it is now has waited since it began");
    }

    #[test]
    fn each_owner_gets_a_turn() {
        // Of a circle of 64 places the first two are asked for: within a hundred periods each is.
        let mut asked = [false; 64];
        for period in 0..100 {
            let first = usize::from(turn(UnixTime(period * 600 + 7), 600)[0] / 4);
            (asked[(first + 1) % 64], asked[(first + 2) % 64]) = (true, true);
        }
        assert_eq!(asked, [true; 64]);
        assert_eq!(turn(UnixTime(600), 600), turn(UnixTime(1_199), 600), "it stays for a period");
    }
}
