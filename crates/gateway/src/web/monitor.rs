//! What people and programs see of a gateway: `/monitor?ID=…`, one upload, and `/`, the whole. Each is HTML, JSON, or a stream
//! of events (`docs/protocol.md` §6, "Events").
//!
//! The HTML is whole without a script. The script that goes with it (`web/src/monitor.ts`) asks for events named `page`,
//! which bring the part of the page that changes, made here: no text and no rule is written twice.

mod html;
mod overview;
mod upload;

pub use html::{POLICY, Place, script, style};

use super::state::Web;
use super::status::{Status, write_wait};
use crate::access::cors::Page;
use crate::access::receipts::write_headers;
use crate::access::representation::Representation;
use crate::core::problems::{store_problem, tell};
use hoop_http::{Body, Code, Events, Problem, Shutdown, events, json};
use hoop_pages::words::MonitorWords;
use hoop_pages::{Language, shown};
use hoop_spool::{State, StoreError, Upload};
use hoop_units::{Timestamp, UploadId};
use html::Live;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use maud::{Markup, html};
use overview::Overview;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// The least time between two events of a stream.
const PACE: Duration = Duration::from_secs(1);

/// The spool is read after so long although nothing was recorded: a transfer may have stalled, and others may have filled the disk.
const STALE: Duration = Duration::from_secs(10);

/// Who asks, and how.
pub struct Visit<'a> {
    pub web: &'a Arc<Web>,
    pub shutdown: &'a Shutdown,
    /// A page of another origin, to which HTML is not given.
    pub page: Option<&'a Page>,
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
    pub place: Place,
}

impl Visit<'_> {
    fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.query.unwrap_or_default().as_bytes());
        pairs.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.into_owned())
    }

    fn stream(&self, topic: Topic) -> Response<Body> {
        let counted = self.web.streams.clone();
        let page = self.parameter("page").map(|_| Language::of(self.headers));
        let watch = Watch { web: self.web.clone(), topic, page, seen: None };
        events(self.shutdown.clone(), move |events| async move {
            let _counted = counted;
            watch.run(events).await;
        })
    }
}

/// `GET /monitor?ID=…`
pub async fn show_upload(visit: &Visit<'_>) -> Result<Response<Body>, Problem> {
    let wanted = Representation::of(visit.headers);
    let lang = Language::of(visit.headers);
    let upload = match known(visit).await {
        Ok(upload) => upload,
        Err(problem) if wanted == Representation::Html => return Ok(refusal(&problem, lang)),
        Err(problem) => return Err(problem),
    };
    let status = Status::of(&upload, visit.web);
    let mut response = match wanted {
        Representation::Json => json(StatusCode::OK, &status),
        Representation::Html => {
            let live = upload::live(&status, lang, visit.web.core.clock.unix());
            let path = format!("/monitor?ID={}", upload.id);
            let events = (!upload.state.is_final()).then(|| format!("{path}&page"));
            let share = html::share(lang, &visit.place, &path);
            html::answer(StatusCode::OK, html::page(lang, &live, events.as_deref(), &share))
        }
        Representation::Events => visit.stream(Topic::Upload(upload.id)),
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Language"));
    write_headers(headers, upload.id, upload.state, upload.total, &upload.stored);
    write_wait(headers, &upload, visit.web);
    Ok(response)
}

async fn known(visit: &Visit<'_>) -> Result<Upload, Problem> {
    let missing = || Problem::new(Code::RequestInvalid, "add ?ID= and the upload's id").field("ID");
    let id = visit.parameter("ID").ok_or_else(missing)?;
    crate::web::lookup::known(&visit.web.core, visit.page, &id, "ID").await
}

/// `GET /`
pub async fn overview(visit: &Visit<'_>) -> Result<Response<Body>, Problem> {
    let wanted = Representation::of(visit.headers);
    if wanted == Representation::Events {
        return Ok(visit.stream(Topic::Overview));
    }
    let overview = visit.web.core.looks.blocking(visit.web, Overview::of).await;
    let overview = overview.map_err(|error| store_problem(&error))?;
    let mut response = match wanted {
        Representation::Json | Representation::Events => json(StatusCode::OK, &overview),
        Representation::Html => {
            let lang = Language::of(visit.headers);
            let live = overview.live(lang, visit.web.core.clock.unix());
            html::answer(StatusCode::OK, html::page(lang, &live, Some("/?page"), &programs(lang, &visit.place)))
        }
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept, Accept-Language"));
    Ok(response)
}

/// What programs find here.
fn programs(lang: Language, place: &Place) -> Markup {
    let words = MonitorWords::of(lang);
    let base = shown(&place.base);
    html! {
        details.programs {
            summary { (words.for_programs) }
            p {
                (words.offered_at) " " code { (base) "/offload" } " "
                (words.followed_at) " "
                code { "hoop push --gateway " (base) }
            }
        }
    }
}

/// The page of a refusal.
fn refusal(problem: &Problem, lang: Language) -> Response<Body> {
    let words = MonitorWords::of(lang);
    let (title, more) = match problem.code {
        Code::UploadUnknown => (words.unknown_upload.label, words.unknown_upload.meaning),
        Code::RequestInvalid => (words.incomplete.label, words.incomplete.meaning),
        _ => (words.problem.label, words.problem.meaning),
    };
    let html = html! {
        section.card.hero.bad {
            (html::ring(None, &html! { "?" }, ""))
            h1 { (title) }
            p { (more) }
            p.movement { code { (problem.code) } " " (shown(&problem.detail)) }
        }
    };
    let live = Live { title: format!("{title} · Hoop"), said: String::new(), html: html.into_string() };
    html::answer(problem.code.status(), html::page(lang, &live, None, &html! {}))
}

/// What a stream is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Topic {
    Upload(UploadId),
    Overview,
}

impl Topic {
    /// What is known of it; `None` if it is gone.
    fn look(self, web: &Web) -> Result<Option<Known>, StoreError> {
        match self {
            Self::Upload(id) => {
                let upload = web.core.spool.get(id)?;
                Ok(upload.map(|upload| Known::Upload(Box::new(Status::of(&upload, web)))))
            }
            Self::Overview => Ok(Some(Known::Overview(Box::new(Overview::of(web)?)))),
        }
    }
}

/// What is known of a topic.
enum Known {
    Upload(Box<Status>),
    Overview(Box<Overview>),
}

/// One reader of a stream.
struct Watch {
    web: Arc<Web>,
    topic: Topic,
    /// Of a page's script: which language it is in.
    page: Option<Language>,
    /// What was seen last, as of which revision and when.
    seen: Option<(u64, Timestamp, Known)>,
}

impl Watch {
    /// Writes events until nothing more can change, or the spool fails: then the reader comes back.
    async fn run(mut self, events: Events) {
        let mut pace = tokio::time::interval(PACE);
        // A slow reader gets the next event a whole second after the last, and not those that it missed.
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sent = Value::Null;
        loop {
            pace.tick().await;
            if let Err(error) = self.look().await {
                tell(&error);
                return;
            }
            let Some((_, _, known)) = &self.seen else { return events.end().await };
            let (name, value, over) = self.event(known);
            if value != sent {
                events.send(name, &value).await;
                sent = value;
            }
            if over {
                return events.end().await;
            }
        }
    }

    /// Reads what is known, if anything was recorded or sent since the last time, or if that is long ago. What is gone is forgotten.
    async fn look(&mut self) -> Result<(), StoreError> {
        let (revision, now) = (self.web.core.revision(), self.web.core.clock.now());
        if self.seen.as_ref().is_some_and(|(seen, at, _)| *seen == revision && now.since(*at) < STALE) {
            return Ok(());
        }
        let topic = self.topic;
        let known = self.web.core.looks.blocking(&self.web, move |web| topic.look(web));
        self.seen = known.await?.map(|known| (revision, now, known));
        Ok(())
    }

    /// An event's name, its value, and whether it is the last.
    fn event(&self, known: &Known) -> (&'static str, Value, bool) {
        let now = self.web.core.clock.unix();
        let over = match known {
            Known::Upload(status) => State::by_name(status.state).is_some_and(State::is_final),
            Known::Overview(_) => false,
        };
        let live = |lang| match known {
            Known::Upload(status) => upload::live(status, lang, now),
            Known::Overview(overview) => overview.live(lang, now),
        };
        let value = |result: Result<Value, _>| result.expect("our own statuses have a JSON form");
        match (self.page, known) {
            (Some(lang), _) => ("page", value(serde_json::to_value(live(lang))), over),
            (None, Known::Upload(status)) => ("status", value(serde_json::to_value(status)), over),
            (None, Known::Overview(overview)) => ("overview", value(serde_json::to_value(overview)), over),
        }
    }
}
