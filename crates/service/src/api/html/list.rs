//! My uploads: [`list`].

use super::frame::{Asker, Frame, shell, sign_in};
use super::markup::{due, moment, name, shortened};
use hoop_http::Code;
use hoop_pages::shown;
use hoop_pages::words::{ServiceWords, Told};
use hoop_units::UnixTime;
use maud::{Markup, Render, html};
use serde::Deserialize;
use serde_json::Value;

/// What ends within so long is said to: a day, since people look at such a page once a day.
const SOON_SECS: u32 = 24 * 3600;

/// What has ended so long ago is folded away: a day, so that what went overnight is still seen in the morning.
const RECENT_SECS: u32 = 24 * 3600;

/// Of what has ended, so many stand unfolded: a phone's screen or two.
const QUIET_SHOWN: usize = 10;

/// What the page is made from.
pub struct ListView<'a> {
    /// Statuses as in `GET /hoop/uploads`, newest first.
    pub uploads: &'a [Value],
    /// Whether there are older ones that the list leaves out.
    pub capped: bool,
    /// Now.
    pub now: UnixTime,
}

/// The page at `/hoop/uploads`.
pub fn list(frame: &Frame<'_>, view: &ListView<'_>) -> Markup {
    let words = ServiceWords::of(frame.language);
    let entries: Vec<Entry> = view.uploads.iter().filter_map(|status| Entry::deserialize(status).ok()).collect();
    let main = html! {
        h1 { (words.uploads) }
        p.intro { (words.intro) }
        @if frame.asker == Asker::Nobody { (sign_in(frame)) }
        p.offline role="status" data-live data-offline=(words.offline) data-back=(words.live) {}
        p.sr aria-live="polite" data-say {}
        noscript { p.hint { (words.by_hand) " " a href="/hoop/uploads" { (words.look_again) } } }
        (uploads(frame, view, &entries))
    };
    shell(frame, words.uploads, "/hoop/uploads", &main)
}

/// The part that the script replaces as a whole if it must.
fn uploads(frame: &Frame<'_>, view: &ListView<'_>, entries: &[Entry]) -> Markup {
    let words = ServiceWords::of(frame.language);
    let mut quiet = 0;
    let (folded, open): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| {
        let ended = entry.state.has_ended();
        quiet += usize::from(ended);
        ended && (quiet > QUIET_SHOWN || view.now.since(UnixTime(entry.updated)) > RECENT_SECS)
    });
    let rows = |entries: &[&Entry]| {
        html! { ol.uploads { @for entry in entries { (row(frame, entry, view.now)) } } }
    };
    html! {
        div data-uploads data-working=(words.working) data-failed=(words.failed) data-units=(words.language.size_units().join(" "))
            data-decimal=(words.language.decimal()) data-progress=((words.progress)("{0}", "{1}")) {
            @if !entries.is_empty() {
                (summary(words, entries))
                (rows(&open))
            } @else if frame.asker != Asker::Nobody {
                section.card.empty { (BOX) h2 { (words.empty) } p { (words.empty_how) } }
            }
            @if !folded.is_empty() {
                details.earlier { summary { ((words.earlier)(folded.len())) } (rows(&folded)) }
            }
            @if view.capped && !entries.is_empty() { p.hint { ((words.capped)(entries.len())) } }
        }
    }
}

fn summary(words: &ServiceWords, entries: &[Entry]) -> Markup {
    let held = entries.iter().filter(|entry| entry.state == State::Held);
    let moving = entries.iter().filter(|entry| !entry.state.has_ended() && entry.state != State::Held).count();
    let mut parts = Vec::new();
    if let Some(first) = held.clone().next() {
        parts.push(html! { a href={ "#u-" (shown(&first.id)) } { ((words.summary_held)(held.count())) } });
    }
    if moving > 0 {
        parts.push(html! { ((words.summary_moving)(moving)) });
    }
    if parts.is_empty() {
        parts.push(html! { (words.summary_quiet) });
    }
    html! { p.summary { (joined(&parts, " · ")) } }
}

/// Parts of a line, and what stands between them.
fn joined(parts: &[Markup], between: &str) -> Markup {
    html! {
        @for (at, part) in parts.iter().enumerate() {
            @if at > 0 { (between) }
            (part)
        }
    }
}

/// A status of the list (`docs/protocol.md` §7, §8), as far as people care.
#[derive(Deserialize)]
struct Entry {
    id: String,
    state: State,
    total: u64,
    received: u64,
    updated: u32,
    expires: u32,
    #[serde(default)]
    attempts: u32,
    next_attempt: Option<u32>,
    reason: Option<Reason>,
    created: Option<u32>,
    path: Option<String>,
    #[serde(default)]
    paused: bool,
    files: Option<Vec<File>>,
    file_count: Option<usize>,
    caption: Option<String>,
    monitor: Option<String>,
    receipt: Option<String>,
    kept_until: Option<u32>,
}

#[derive(Deserialize)]
struct Reason {
    code: String,
    detail: String,
}

#[derive(Deserialize)]
struct File {
    name: String,
    size: Option<u64>,
}

/// The states that a list shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Announced,
    Receiving,
    Received,
    Accepted,
    Rejected,
    Held,
    Unknown,
    Stopped,
    Expired,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Announced => "announced",
            Self::Receiving => "receiving",
            Self::Received => "received",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Held => "held",
            Self::Unknown => "unknown",
            Self::Stopped => "stopped",
            Self::Expired => "expired",
        }
    }

    const fn has_ended(self) -> bool {
        match self {
            Self::Accepted | Self::Rejected | Self::Unknown | Self::Stopped | Self::Expired => true,
            Self::Announced | Self::Receiving | Self::Received | Self::Held => false,
        }
    }

    const fn words(self, words: &ServiceWords) -> &Told {
        match self {
            Self::Announced => &words.announced,
            Self::Receiving => &words.receiving,
            Self::Received => &words.received,
            Self::Accepted => &words.accepted,
            Self::Rejected => &words.rejected,
            Self::Held => &words.held,
            Self::Unknown => &words.unknown,
            Self::Stopped => &words.stopped,
            Self::Expired => &words.expired,
        }
    }

    const fn icon(self) -> Icon {
        match self {
            Self::Announced | Self::Receiving => WAY,
            Self::Received => INBOX,
            Self::Accepted => TICK,
            Self::Held => HAND,
            Self::Unknown => QUESTION,
            Self::Rejected | Self::Stopped | Self::Expired => CROSS,
        }
    }
}

impl Entry {
    /// Whether its owner has paused it, and that still means something.
    const fn is_paused(&self) -> bool {
        self.paused && matches!(self.state, State::Announced | State::Receiving | State::Received)
    }

    /// What a person calls it: caption, else files, else where it goes.
    fn title(&self, words: &ServiceWords) -> Markup {
        if let Some(caption) = self.caption.as_deref().filter(|caption| !caption.trim().is_empty()) {
            return name(caption);
        }
        let others = self.file_count().saturating_sub(1);
        html! {
            @match (self.files(), self.path.as_deref()) {
                ([], Some(path)) => { (words.unnamed) " " (name(&(words.sent_to)(path))) },
                ([], None) => (words.unnamed),
                ([file, ..], _) => {
                    (name(&file.name))
                    @if others > 0 { " " ((words.and_others)(others)) }
                },
            }
        }
    }

    fn files(&self) -> &[File] {
        self.files.as_deref().unwrap_or_default()
    }

    /// How many files there are; some may not be named.
    fn file_count(&self) -> usize {
        self.file_count.unwrap_or_default().max(self.files().len())
    }

    /// Of the files, if all are known; else sealed, which is a little more.
    fn size(&self) -> u64 {
        let sizes = self.files().iter().try_fold(0_u64, |sum, file| sum.checked_add(file.size?));
        let all = self.file_count() == self.files().len();
        sizes.filter(|size| all && *size > 0).unwrap_or(self.total)
    }

    /// Changes when the row must be drawn anew; the script makes the same from events (`web/src/pages.ts`).
    fn key(&self) -> String {
        let code = self.reason.as_ref().map_or("", |reason| &reason.code);
        let next = self.next_attempt.map_or(String::new(), |at| at.to_string());
        let noted = [self.caption.is_some(), self.path.is_some(), self.monitor.is_some()].map(u8::from);
        format!(
            "{}|{}|{code}|{next}|{}|{}{}{}|{}",
            self.state.name(),
            u8::from(self.is_paused()),
            self.files().len(),
            noted[0],
            noted[1],
            noted[2],
            u8::from(self.kept_until.is_some()),
        )
    }
}

fn row(frame: &Frame<'_>, entry: &Entry, now: UnixTime) -> Markup {
    let words = ServiceWords::of(frame.language);
    let (id, paused) = (shown(&entry.id), entry.is_paused());
    let (look, icon, standing) = match paused {
        true => ("paused", BARS, &words.paused),
        false => (entry.state.name(), entry.state.icon(), entry.state.words(words)),
    };
    // Of what is on its way, what is in the way says more than where it stands.
    let (why, why_replaces) = why(entry, words, now);
    html! {
        li #{ "u-" (id) }.upload.card.(look) data-id=(id) data-key=(shown(&entry.key())) {
            div.head {
                h2 #{ "n-" (id) } tabindex="-1" { (entry.title(words)) }
                p.state { (icon) span { (standing.label) } }
            }
            (progress(entry, words))
            @if !standing.meaning.is_empty() && (paused || !why_replaces) { p.meaning { (standing.meaning) } }
            @if let Some(at) = entry.ends_soon(now) { p.meaning { (words.ends_soon) " " (due(at, now, words)) "." } }
            @if entry.state == State::Held { p.meaning { (words.kept_until) " " (moment(entry.ends(), now, words)) "." } }
            @if let Some(at) = entry.kept_until { p.meaning { (words.kept_again) " " (moment(UnixTime(at), now, words)) "." } }
            (why)
            (facts(entry, words, now))
            (actions(frame, entry))
        }
    }
}

fn progress(entry: &Entry, words: &ServiceWords) -> Markup {
    let (done, total) = (entry.received.min(entry.total), entry.total.max(1));
    html! {
        @if entry.state == State::Receiving {
            div.progress {
                progress max=(total) value=(done) aria-labelledby={ "n-" (shown(&entry.id)) } {
                    (u128::from(done) * 100 / u128::from(total)) " %"
                }
                p.amount { ((words.progress)(&words.language.size(done), &words.language.size(entry.total))) }
            }
        }
    }
}

/// What is in the way, and whether that stands for the state's own sentence.
fn why(entry: &Entry, words: &ServiceWords, now: UnixTime) -> (Markup, bool) {
    let mut lines = Vec::new();
    let mut replaces = false;
    if let Some(reason) = &entry.reason {
        let said = |lead: &str| html! { (lead) " " q lang="en" { (shown(&shortened(&reason.detail))) } };
        match (entry.state, Code::by_name(&reason.code)) {
            (State::Accepted | State::Stopped | State::Expired | State::Unknown, _) => {}
            (State::Held, code) => lines.push(html! { (held_for(code, words)) }),
            // Whoever paused it knows; and once resumed, it is only not back yet.
            (_, Some(Code::UploadPaused)) => {}
            (State::Rejected, _) if reason.detail.is_empty() => {}
            (State::Rejected, _) => lines.push(said(words.answer_said)),
            (State::Announced | State::Receiving | State::Received, code) => {
                replaces = true;
                lines.push(match code {
                    Some(Code::UpstreamUnreachable) => html! { (words.unreachable) },
                    Some(Code::UpstreamBusy) => html! { (words.busy) },
                    Some(Code::UpstreamBroken) => html! { (words.broken) },
                    _ if reason.detail.is_empty() => html! { (words.other_reason) " " (shown(&reason.code)) },
                    _ => said(words.other_reason),
                });
            }
        }
    }
    let due_again = entry.next_attempt.filter(|_| !entry.state.has_ended() && !entry.is_paused());
    if let Some(at) = due_again {
        lines.push(html! {
            (words.tried_again) " " (due(UnixTime(at), now, words))
            @if entry.attempts > 0 { " (" ((words.attempt)(entry.attempts)) ")" }
            "."
        });
    }
    (html! { @if !lines.is_empty() { p.why { (joined(&lines, " ")) } } }, replaces)
}

/// What a held upload waits for.
const fn held_for(code: Option<Code>, words: &ServiceWords) -> &'static str {
    match code {
        Some(Code::FormTokenRefused) => words.held_token,
        Some(Code::NotPermitted) => words.held_permission,
        Some(Code::UpstreamFailed) => words.held_failed,
        _ => words.held_session,
    }
}

impl Entry {
    /// When it is given up and forgotten.
    const fn ends(&self) -> UnixTime {
        UnixTime(self.expires).plus_secs(crate::model::LINGER_SECS)
    }

    /// When it is given up, if that is soon: what has not begun to come with its ticket, all else later. Of what is held another line says so.
    fn ends_soon(&self, now: UnixTime) -> Option<UnixTime> {
        let at = match self.state {
            State::Announced => UnixTime(self.expires),
            State::Receiving | State::Received => self.ends(),
            _ => return None,
        };
        (at.since(now) < SOON_SECS).then_some(at)
    }
}

/// How much it is, from when, and its files.
fn facts(entry: &Entry, words: &ServiceWords, now: UnixTime) -> Markup {
    let files = entry.files();
    let mut parts = Vec::new();
    // Beside the progress, which says how much it is sealed, another size would only puzzle.
    if entry.state != State::Receiving {
        parts.push(html! { (words.language.size(entry.size())) });
    }
    let at = if entry.state.has_ended() { entry.updated } else { entry.created.unwrap_or(entry.updated) };
    parts.push(moment(UnixTime(at), now, words));
    if entry.receipt.is_some() {
        let id = shown(&entry.id);
        parts.push(html! {
            a href={ "/hoop/uploads/" (id) "?receipt" } download={ "receipt-" (id) ".json" } { (words.receipt) }
        });
    }
    parts.extend(monitor(entry, words).filter(|_| matches!(entry.state, State::Announced | State::Receiving)));
    let captioned = entry.caption.as_deref().is_some_and(|caption| !caption.trim().is_empty());
    let more = entry.file_count() - files.len();
    html! {
        p.facts { (joined(&parts, " · ")) }
        @if files.len() > 1 || captioned && !files.is_empty() {
            details.files {
                summary { ((words.files)(entry.file_count())) }
                ul {
                    @for file in files {
                        li { (name(&file.name)) @if let Some(bytes) = file.size { " " span { (words.language.size(bytes)) } } }
                    }
                    @if more > 0 { li { ((words.more_files)(more)) } }
                }
            }
        }
    }
}

/// A link to the gateway's page. Its URL is what a device wrote.
fn monitor(entry: &Entry, words: &ServiceWords) -> Option<Markup> {
    let url = url::Url::parse(entry.monitor.as_deref()?).ok()?;
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
        return None;
    }
    let near = match url.host()? {
        url::Host::Domain(host) => host.ends_with(".local") || !host.contains('.'),
        url::Host::Ipv4(_) | url::Host::Ipv6(_) => true,
    };
    Some(html! {
        a href=(shown(url.as_str())) target="_blank" rel="noreferrer" {
            (words.monitor) span aria-hidden="true" { "\u{a0}↗" }
        }
        @if near { " " small { "(" (words.monitor_local) ")" } }
    })
}

/// What its owner can do: a form that works as it stands, and that the script sends without leaving.
fn actions(frame: &Frame<'_>, entry: &Entry) -> Markup {
    let words = ServiceWords::of(frame.language);
    let id = shown(&entry.id);
    let ended = entry.state.has_ended();
    let described = format!("n-{id}");
    let button = |action: &str, class: &str, label: &str| {
        html! { button name="action" value=(action) class=(class) aria-describedby=(described) { (label) } }
    };
    let (stop, stop_ask, stop_sure) = match ended {
        true => (words.delete, words.delete_ask, words.delete_sure),
        false => (words.stop, words.stop_ask, words.stop_sure),
    };
    html! {
        @if !ended || entry.kept_until.is_some() {
            form.actions method="post" action={ "/hoop/uploads/" (id) } {
                @match (entry.state, frame.asker, entry.is_paused()) {
                    (State::Held | State::Rejected | State::Unknown, Asker::Nobody, _) => p.hint { (words.finish_signed_out) },
                    (State::Held, Asker::User | Asker::Credentials, _) => (button("release", "primary", words.finish)),
                    (State::Rejected, Asker::User | Asker::Credentials, _) => (button("release", "", words.again)),
                    // Whoever does that has read what may come of it.
                    (State::Unknown, Asker::User | Asker::Credentials, _) => details.stop {
                        summary aria-describedby=(described) { (words.again) }
                        p { (words.twice_ask) }
                        input type="hidden" name="risk" value="twice";
                        (button("release", "danger", words.twice_sure))
                    },
                    (_, _, true) => (button("resume", "primary", words.resume)),
                    (_, _, false) => (button("pause", "", words.pause)),
                }
                details.stop {
                    summary aria-describedby=(described) { (stop) }
                    p { (stop_ask) }
                    (button("stop", "danger", stop_sure))
                }
                p.failure role="alert" {}
            }
        }
    }
}

/// An icon: strokes on a grid of 24.
#[derive(Clone, Copy)]
struct Icon(&'static str);

impl Render for Icon {
    fn render(&self) -> Markup {
        html! { svg.icon viewBox="0 0 24 24" aria-hidden="true" focusable="false" { path d=(self.0) {} } }
    }
}

const WAY: Icon = Icon("M12 20V5m-6 6 6-6 6 6");
const INBOX: Icon = Icon("M12 4v10m-5-5 5 5 5-5M5 20h14");
const TICK: Icon = Icon("m5 12.5 4.5 4.5L19 7.5");
const HAND: Icon = Icon("M12 4a4 4 0 1 1 0 8 4 4 0 0 1 0-8M4.5 20.5c1-4 4-6 7.5-6s6.5 2 7.5 6");
const QUESTION: Icon = Icon("M8.5 8.5a3.5 3.5 0 1 1 5 3.200c-1 .5-1.5 1.200-1.5 2.300M12 18v.1");
const CROSS: Icon = Icon("m7 7 10 10M17 7 7 17");
const BARS: Icon = Icon("M9 6v12M15 6v12");
const BOX: Icon = Icon("m4 8 8-4 8 4v8l-8 4-8-4zm0 0 8 4m0 0 8-4m-8 4v8");

#[cfg(test)]
mod tests;
