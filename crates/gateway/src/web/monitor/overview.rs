//! What a gateway does now, for its owner. Anyone on the LAN can look, so that nothing here names an upload, a destination or
//! anybody.

use super::html::Live;
use super::upload::{Tone, short};
use crate::core::progress::Progress;
use crate::web::state::Web;
use hoop_http::Code;
use hoop_pages::Language;
use hoop_pages::words::{MonitorWords, reason};
use hoop_spool::{State, StoreError, Upload};
use hoop_units::{Bitrate, UnixTime, UploadId};
use maud::{Markup, html};
use serde::Serialize;
use std::collections::BTreeMap;

/// Uploads that are listed besides those that are being delivered: a screen or three.
const RECENT: usize = 50;

/// `GET /` for programs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Overview {
    hoop: &'static str,
    version: &'static str,
    /// In whole minutes, so that nothing changes each second.
    uptime_secs: u64,
    free_bytes: u64,
    /// What the spool holds.
    kept_bytes: u64,
    /// What goes out now.
    rate_bps: Option<u64>,
    waiting: Waiting,
    /// How many uploads are in each state, states without any left out.
    states: BTreeMap<&'static str, u64>,
    recent: Vec<Row>,
}

/// What is to be delivered.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Waiting {
    uploads: u64,
    bytes: u64,
}

/// An upload of which nobody can tell whose it is.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    state: &'static str,
    total: u64,
    stored: u64,
    delivered: u64,
    rate_bps: Option<u64>,
    created: u32,
    updated: u32,
    attempts: u32,
    next_attempt: Option<u32>,
    /// The code alone, and only if it is one of ours: the sentence beside it may name a destination.
    reason: Option<&'static str>,
}

impl Row {
    fn of(upload: &Upload, progress: &Progress) -> Self {
        let (on_its_way, rate_bps) = progress.of(upload.id);
        let code = upload.reason.as_ref().and_then(|reason| Code::by_name(&reason.code));
        Self {
            state: upload.state.name(),
            total: upload.total,
            stored: upload.stored.len(),
            delivered: (upload.delivered.len() + on_its_way).min(upload.total),
            rate_bps,
            created: upload.created.0,
            updated: upload.updated.0,
            attempts: upload.attempts,
            next_attempt: upload.next_attempt.map(|at| at.0),
            reason: code.map(Code::name),
        }
    }
}

impl Overview {
    /// As it is now.
    pub fn of(web: &Web) -> Result<Self, StoreError> {
        let running = web.core.progress.running();
        let mut recent = Vec::new();
        for id in &running {
            recent.extend(web.core.spool.get(*id)?.map(|upload| Row::of(&upload, &web.core.progress)));
        }
        let tally = web.core.spool.tally()?;
        let to_deliver = [State::Stored, State::Delivering].map(|state| tally.get(&state).copied().unwrap_or_default());
        let delivered: u64 = recent.iter().map(|row| row.delivered).sum();
        let waiting = Waiting {
            uploads: to_deliver.iter().map(|sum| sum.uploads).sum(),
            bytes: to_deliver.iter().map(|sum| sum.bytes).sum::<u64>().saturating_sub(delivered),
        };
        let rates = recent.iter().filter_map(|row| row.rate_bps);
        let rate_bps = rates.reduce(u64::saturating_add);
        let is_running = |id: UploadId| running.contains(&id);
        let latest = web
            .core
            .spool
            .recent(RECENT, |upload| (!is_running(upload.id)).then(|| Row::of(upload, &web.core.progress)))?;
        recent.extend(latest.into_iter().flatten());
        let up = web.core.clock.now().since(web.started);
        Ok(Self {
            hoop: "gateway",
            version: env!("CARGO_PKG_VERSION"),
            uptime_secs: up.as_secs() / 60 * 60,
            free_bytes: web.core.spool.free_bytes()?,
            kept_bytes: web.core.spool.kept_bytes(),
            rate_bps,
            waiting,
            states: tally.into_iter().map(|(state, sum)| (state.name(), sum.uploads)).collect(),
            recent,
        })
    }

    /// What changes of the page.
    pub fn live(&self, lang: Language, now: UnixTime) -> Live {
        let words = MonitorWords::of(lang);
        let title = words.title;
        let what = words.what;
        let lost = words.lost;
        let html = html! {
            section.intro { h1 { (title) } p { (what) } p.lost { (lost) } }
            (self.tiles(lang))
            section.card {
                h2 { (words.latest) }
                @if self.recent.is_empty() {
                    p { (words.none_yet) }
                } @else {
                    ul.rows { @for row in &self.recent { (row.html(lang, now)) } }
                }
            }
        };
        let title = words.hoop_box.to_owned();
        Live { title, said: String::new(), html: html.into_string() }
    }

    fn tiles(&self, lang: Language) -> Markup {
        let words = MonitorWords::of(lang);
        let rate = self.rate_bps.filter(|rate| *rate > 0);
        let left = rate.map(|rate| lang.rough(Bitrate::bps(rate).time_for(self.waiting.bytes).as_secs()));
        let waits = match self.waiting.uploads {
            0 => words.nothing.to_owned(),
            _ => lang.size(self.waiting.bytes),
        };
        let out = match (rate, self.waiting.uploads) {
            (Some(rate), _) => lang.rate(rate),
            (None, 0) => words.idle.to_owned(),
            (None, _) => "–".to_owned(),
        };
        let left = left.map(|left| lang.left(&left));
        let holds = format!("{} {}", lang.size(self.kept_bytes), words.in_use);
        let tiles = [
            (words.waiting, waits, lang.uploads(self.waiting.uploads)),
            (words.going_out, out, left.unwrap_or_default()),
            (words.room_left, lang.size(self.free_bytes), holds),
            (words.running_for, lang.rough(self.uptime_secs), format!("Hoop {}", self.version)),
        ];
        html! {
            dl.tiles { @for (name, value, more) in tiles { div.card { dt { (name) } dd { (value) } dd { (more) } } } }
        }
    }
}

impl Row {
    fn html(&self, lang: Language, now: UnixTime) -> Markup {
        let words = MonitorWords::of(lang);
        let state = State::by_name(self.state).unwrap_or(State::Receiving);
        let waits = self.reason.is_some() && !state.is_final();
        let tone = Tone::of(state, waits).class();
        let age = u64::from(now.since(UnixTime(self.created)));
        // Coarse, so that fifty rows do not change each second.
        let age = if age < 60 { words.just_now.to_owned() } else { lang.ago(age / 60 * 60) };
        let mut more = vec![age];
        let (done, moves) = match state {
            State::Receiving => (self.stored, true),
            State::Stored | State::Delivering => (self.delivered, self.delivered > 0),
            _ => (0, false),
        };
        if moves {
            more.push(format!("{} {} {}", lang.size(done), words.of, lang.size(self.total)));
        }
        more.extend(self.rate_bps.filter(|rate| *rate > 0).map(|rate| lang.rate(rate)));
        let next = self.next_attempt.map(|at| UnixTime(at).since(now)).filter(|secs| waits && *secs >= 60);
        let next = next.map(|secs| lang.within(u64::from(secs) / 60 * 60));
        html! {
            li.(tone) {
                b { (short(lang, state)) }
                span { (lang.size(self.total)) }
                p { (more.join(" · ")) }
                @if moves { progress aria-label=(short(lang, state)) value=(done) max=(self.total.max(1)) {} }
                @if let Some(code) = self.reason {
                    p.why {
                        (reason(lang, code))
                        @if let Some(next) = next { " " (words.next_try) " " (next) "." }
                    }
                }
            }
        }
    }
}
