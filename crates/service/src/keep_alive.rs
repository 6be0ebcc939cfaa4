//! Sessions are kept alive while their uploads are under way, if the operator says how: [`KeepAlive`], the table `[session]` of `routes.toml`.
//!
//! ```toml
//! [session]
//! keep_alive = "/me"       # asked with the user's own Cookie and Authorization …
//! every_minutes = 10       # … so often; default 10
//! ```
//!
//! An upload over a slow line takes longer than many sessions last without a click. Somebody's session is asked for as long as an upload of theirs
//! is coming in, or waits for the application, and is not paused; no longer once the application says that they are signed out. Neither path nor
//! credentials are logged.
//!
//! Bounds: [`SESSIONS_MAX`] sessions, [`PINGS_MAX`] questions at once, each of [`PING_TIMEOUT`].

use crate::core::Core;
use crate::owner::{self, Tag};
use crate::replay;
use crate::rules::is_sign_in;
use hoop_http::{Shutdown, read_limited};
use hoop_units::{UnixTime, UploadId};
use http::{Response, StatusCode, header};
use hyper::body::Incoming;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Sessions that are kept alive; of more, those with the smallest tags. An application with more users at once has a way of its own.
const SESSIONS_MAX: usize = 1_024;

/// Questions at once: the application's workers are for its users.
const PINGS_MAX: usize = 4;

/// How long the application may take for one.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// What is read of an answer, so that the application is not cut off in the middle of it.
const ANSWER_MAX: usize = 64 * 1024;

/// The longest time between two questions: a day.
const EVERY_MAX_MINUTES: u32 = 24 * 60;

/// How sessions are kept alive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// What to get: a path of the application.
    pub path: String,
    /// How often.
    pub every_secs: u32,
}

/// The table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionEntry {
    keep_alive: String,
    #[serde(default = "ten")]
    every_minutes: u32,
}

const fn ten() -> u32 {
    10
}

impl SessionEntry {
    /// What it means.
    ///
    /// # Errors
    /// The field at fault, and what is wrong with it.
    pub fn check(self) -> Result<KeepAlive, (&'static str, String)> {
        let path = self.keep_alive;
        if !crate::paths::is_target(&path) || path.starts_with("//") {
            let wrong = format!("must be a path that begins with `/`, in visible ASCII, not `{path}`");
            return Err(("session.keep_alive", wrong));
        }
        match (1..=EVERY_MAX_MINUTES).contains(&self.every_minutes) {
            true => Ok(KeepAlive { path, every_secs: self.every_minutes * 60 }),
            false => {
                let wrong = format!("must be 1 to {EVERY_MAX_MINUTES}, not {}", self.every_minutes);
                Err(("session.every_minutes", wrong))
            }
        }
    }
}

/// What is known of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Session {
    /// It was asked then.
    Asked(UnixTime),
    /// The application says that they are signed out.
    Gone,
}

/// Keeps sessions alive until `shutdown`, if the operator says how.
pub async fn run(core: Arc<Core>, mut shutdown: Shutdown) {
    let Some(rule) = core.policy().routes.keep_alive.clone() else { return };
    let mut sessions = BTreeMap::new();
    while !shutdown.is_requested() {
        tokio::select! {
            () = shutdown.requested() => return,
            () = round(&core, &rule, &mut sessions) => {}
        }
        tokio::select! {
            () = shutdown.requested() => return,
            () = tokio::time::sleep(core.keep_alive_round) => {}
        }
    }
}

/// Asks for each session that is due.
async fn round(core: &Arc<Core>, rule: &KeepAlive, sessions: &mut BTreeMap<Tag, Session>) {
    let under_way = match core.store.with(|index| index.under_way(SESSIONS_MAX)).await {
        Ok(under_way) => under_way,
        Err(error) => return tracing::error!(%error, "the index could not be asked whose uploads are under way"),
    };
    let now = core.clock.unix();
    let mut asking = JoinSet::new();
    for (tag, id) in due(sessions, &under_way, rule.every_secs, now) {
        if asking.len() >= PINGS_MAX {
            take(sessions, asking.join_next().await, now);
        }
        let (core, path) = (core.clone(), rule.path.clone());
        asking.spawn(async move { (tag, ask(&core, &path, id).await) });
    }
    while let Some(asked) = asking.join_next().await {
        take(sessions, Some(asked), now);
    }
}

/// Which sessions to ask for, with an upload of each. What has no upload under way is forgotten; one that begins is alive.
fn due(
    sessions: &mut BTreeMap<Tag, Session>,
    under_way: &[(Tag, UploadId)],
    every_secs: u32,
    now: UnixTime,
) -> Vec<(Tag, UploadId)> {
    let known: BTreeMap<Tag, Session> =
        under_way.iter().map(|(tag, _)| (*tag, *sessions.get(tag).unwrap_or(&Session::Asked(now)))).collect();
    *sessions = known;
    let is_due = |tag: &Tag| matches!(sessions[tag], Session::Asked(at) if now < at || now.since(at) >= every_secs);
    under_way.iter().filter(|(tag, _)| is_due(tag)).copied().collect()
}

fn take(
    sessions: &mut BTreeMap<Tag, Session>,
    asked: Option<Result<(Tag, Option<bool>), tokio::task::JoinError>>,
    now: UnixTime,
) {
    // Whatever else it answered, or if it did not: the next time comes.
    if let Some(Ok((tag, signed_in))) = asked {
        let gone = signed_in == Some(false);
        sessions.insert(tag, if gone { Session::Gone } else { Session::Asked(now) });
    }
}

/// Asks the application as the user of an upload; whether they are signed in, if it says.
async fn ask(core: &Arc<Core>, path: &str, id: UploadId) -> Option<bool> {
    let upload = core.store.load(id).await.ok()??;
    let credentials =
        replay::credentials(core, &upload).await.ok().filter(|credentials| !credentials.is_anonymous())?;
    let asking = async {
        let mut connection = core.connector.connect(&core.upstream).await.ok()?;
        let request = owner::request(core, path, "*/*", &credentials).ok()?;
        let response = connection.send(request).await.ok()?;
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

    fn rule(text: &str) -> Result<KeepAlive, (&'static str, String)> {
        toml::from_str::<SessionEntry>(text).unwrap().check()
    }

    #[test]
    fn a_path_and_minutes_make_a_rule_and_nothing_else_does() {
        let expected = KeepAlive { path: "/me".into(), every_secs: 600 };
        assert_eq!(rule("keep_alive = \"/me\"").unwrap(), expected);
        for (text, field) in [
            ("keep_alive = \"me\"", "session.keep_alive"),
            ("keep_alive = \"//evil.example/\"", "session.keep_alive"),
            ("keep_alive = \"/me\"\nevery_minutes = 0", "session.every_minutes"),
            ("keep_alive = \"/me\"\nevery_minutes = 1441", "session.every_minutes"),
        ] {
            assert_eq!(rule(text).unwrap_err().0, field, "{text}");
        }
    }

    #[test]
    fn a_session_is_asked_for_in_its_time_while_an_upload_is_under_way_and_not_once_it_has_gone() {
        let (one, two) = (([1; 16], UploadId([1; 16])), ([2; 16], UploadId([2; 16])));
        let mut sessions = BTreeMap::new();
        let mut due_at = |under_way: &[_], now| due(&mut sessions, under_way, 600, UnixTime(now));
        assert_eq!(due_at(&[one], 1_000), [], "its browser has just asked for a ticket");
        assert_eq!(due_at(&[one, two], 1_599), []);
        assert_eq!(due_at(&[one, two], 1_600), [one]);
        take(&mut sessions, Some(Ok((one.0, Some(true)))), UnixTime(1_600));
        assert_eq!(due(&mut sessions, &[one, two], 600, UnixTime(2_199)), [two]);
        take(&mut sessions, Some(Ok((two.0, Some(false)))), UnixTime(2_199));
        assert_eq!(due(&mut sessions, &[one, two], 600, UnixTime(9_000)), [one], "the other has gone");
        take(&mut sessions, Some(Ok((one.0, None))), UnixTime(9_000));
        assert_eq!(due(&mut sessions, &[one], 600, UnixTime(9_600)), [one], "no answer is no sign-out");
        due(&mut sessions, &[], 600, UnixTime(9_600));
        assert!(sessions.is_empty(), "nothing is kept of whoever has nothing under way");
    }
}
