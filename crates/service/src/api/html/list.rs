//! My uploads: [`list`].

use super::frame::{Asker, Frame, shell, sign_in};
use super::markup::{due, moment, name, size};
use super::words::{Standing, Words};
use hoop_http::Code;
use hoop_http::page::text;
use hoop_units::UnixTime;
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
pub fn list(frame: &Frame<'_>, view: &ListView<'_>) -> String {
    let words = frame.language.words();
    let entries: Vec<Entry> = view.uploads.iter().filter_map(|status| Entry::deserialize(status).ok()).collect();
    let mut main = format!("<h1>{}</h1><p class=\"intro\">{}</p>", text(words.uploads), text(words.intro));
    if frame.asker == Asker::Nobody {
        main += &sign_in(frame);
    }
    main += &format!(
        "<p class=\"offline\" role=\"status\" data-live data-offline=\"{}\" data-back=\"{}\"></p>\
         <p class=\"sr\" aria-live=\"polite\" data-say></p>\
         <noscript><p class=\"hint\">{} <a href=\"/hoop/uploads\">{}</a></p></noscript>",
        text(words.offline),
        text(words.live),
        text(words.by_hand),
        text(words.look_again)
    );
    main += &uploads(frame, view, &entries);
    shell(frame, words.uploads, "/hoop/uploads", &main)
}

/// The part that the script replaces as a whole if it must.
fn uploads(frame: &Frame<'_>, view: &ListView<'_>, entries: &[Entry]) -> String {
    let words = frame.language.words();
    let of_script = format!(
        "data-uploads data-working=\"{}\" data-failed=\"{}\" data-units=\"{}\" data-decimal=\"{}\" data-progress=\"{}\"",
        text(words.working),
        text(words.failed),
        text(&words.size_units.join(" ")),
        text(words.decimal),
        text(&(words.progress)("{0}", "{1}"))
    );
    if entries.is_empty() {
        let empty = match frame.asker {
            Asker::Nobody => String::new(),
            Asker::User | Asker::Credentials => format!(
                "<section class=\"card empty\">{BOX}<h2>{}</h2><p>{}</p></section>",
                text(words.empty),
                text(words.empty_how)
            ),
        };
        return format!("<div {of_script}>{empty}</div>");
    }
    let mut shown = String::new();
    let mut folded = Vec::new();
    let mut quiet = 0;
    for entry in entries {
        let ended = entry.state.has_ended();
        quiet += usize::from(ended);
        if ended && (quiet > QUIET_SHOWN || view.now.since(UnixTime(entry.updated)) > RECENT_SECS) {
            folded.push(row(frame, entry, view.now));
        } else {
            shown += &row(frame, entry, view.now);
        }
    }
    let mut out = format!("<div {of_script}>{}<ol class=\"uploads\">{shown}</ol>", summary(words, entries));
    if !folded.is_empty() {
        out += &format!(
            "<details class=\"earlier\"><summary>{}</summary><ol class=\"uploads\">{}</ol></details>",
            text(&(words.earlier)(folded.len())),
            folded.concat()
        );
    }
    if view.capped {
        out += &format!("<p class=\"hint\">{}</p>", text(&(words.capped)(entries.len())));
    }
    out + "</div>"
}

fn summary(words: &Words, entries: &[Entry]) -> String {
    let held = entries.iter().filter(|entry| entry.state == State::Held);
    let moving = entries.iter().filter(|entry| !entry.state.has_ended() && entry.state != State::Held).count();
    let mut parts = Vec::new();
    if let Some(first) = held.clone().next() {
        let waits = text(&(words.summary_held)(held.count()));
        parts.push(format!("<a href=\"#u-{}\">{waits}</a>", text(&first.id)));
    }
    if moving > 0 {
        parts.push(text(&(words.summary_moving)(moving)));
    }
    if parts.is_empty() {
        parts.push(text(words.summary_quiet));
    }
    format!("<p class=\"summary\">{}</p>", parts.join(" · "))
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

    const fn words(self, words: &Words) -> &Standing {
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

    const fn icon(self) -> &'static str {
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
    fn title(&self, words: &Words) -> String {
        if let Some(caption) = self.caption.as_deref().filter(|caption| !caption.trim().is_empty()) {
            return name(caption);
        }
        match self.files() {
            [] => match self.path.as_deref() {
                Some(path) => format!("{} {}", text(words.unnamed), name(&(words.sent_to)(path))),
                None => text(words.unnamed),
            },
            [file] if self.file_count() == 1 => name(&file.name),
            [file, ..] => format!("{} {}", name(&file.name), text(&(words.and_others)(self.file_count() - 1))),
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

fn row(frame: &Frame<'_>, entry: &Entry, now: UnixTime) -> String {
    let words = frame.language.words();
    let (id, paused) = (text(&entry.id), entry.is_paused());
    let standing = if paused { &words.paused } else { entry.state.words(words) };
    let look = if paused { "paused" } else { entry.state.name() };
    let icon = if paused { BARS } else { entry.state.icon() };
    let mut out = format!(
        "<li class=\"upload card {look}\" id=\"u-{id}\" data-id=\"{id}\" data-key=\"{key}\">\
         <div class=\"head\"><h2 id=\"n-{id}\" tabindex=\"-1\">{title}</h2><p class=\"state\">{icon}<span>{label}</span></p></div>",
        key = text(&entry.key()),
        title = entry.title(words),
        label = text(standing.label),
    );
    out += &progress(entry, words);
    // Of what is on its way, what is in the way says more than where it stands.
    let (why, why_replaces) = why(entry, words, now);
    if !standing.meaning.is_empty() && (paused || !why_replaces) {
        out += &format!("<p class=\"meaning\">{}</p>", text(standing.meaning));
    }
    if let Some(at) = entry.ends_soon(now) {
        out += &format!("<p class=\"meaning\">{} {}.</p>", text(words.ends_soon), due(at, now, words));
    }
    if entry.state == State::Held {
        out += &format!("<p class=\"meaning\">{} {}.</p>", text(words.kept_until), moment(entry.ends(), now, words));
    }
    if let Some(at) = entry.kept_until {
        out += &format!("<p class=\"meaning\">{} {}.</p>", text(words.kept_again), moment(UnixTime(at), now, words));
    }
    out += &why;
    out += &facts(entry, words, now);
    out += &actions(frame, entry);
    out + "</li>"
}

fn progress(entry: &Entry, words: &Words) -> String {
    if entry.state != State::Receiving {
        return String::new();
    }
    let (done, total) = (entry.received.min(entry.total), entry.total.max(1));
    let amount = (words.progress)(&size(done, words), &size(entry.total, words));
    format!(
        "<div class=\"progress\"><progress max=\"{total}\" value=\"{done}\" aria-labelledby=\"n-{}\">{percent} %</progress>\
         <p class=\"amount\">{}</p></div>",
        text(&entry.id),
        text(&amount),
        percent = u128::from(done) * 100 / u128::from(total),
    )
}

/// What is in the way, and whether that stands for the state's own sentence.
fn why(entry: &Entry, words: &Words, now: UnixTime) -> (String, bool) {
    let mut lines = Vec::new();
    let mut replaces = false;
    if let Some(reason) = &entry.reason {
        let said = |lead: &str| {
            format!("{} <q lang=\"en\">{}</q>", text(lead), text(&super::markup::shortened(&reason.detail)))
        };
        match (entry.state, Code::by_name(&reason.code)) {
            (State::Accepted | State::Stopped | State::Expired | State::Unknown, _) => {}
            (State::Held, code) => lines.push(text(held_for(code, words))),
            // Whoever paused it knows; and once resumed, it is only not back yet.
            (_, Some(Code::UploadPaused)) => {}
            (State::Rejected, _) if reason.detail.is_empty() => {}
            (State::Rejected, _) => lines.push(said(words.answer_said)),
            (State::Announced | State::Receiving | State::Received, code) => {
                replaces = true;
                lines.push(match code {
                    Some(Code::UpstreamUnreachable) => text(words.unreachable),
                    Some(Code::UpstreamBusy) => text(words.busy),
                    Some(Code::UpstreamBroken) => text(words.broken),
                    _ if reason.detail.is_empty() => {
                        said(words.other_reason).replace("<q lang=\"en\"></q>", &text(&reason.code))
                    }
                    _ => said(words.other_reason),
                });
            }
        }
    }
    let due_again = entry.next_attempt.filter(|_| !entry.state.has_ended() && !entry.is_paused());
    if let Some(at) = due_again {
        let attempts = match entry.attempts {
            0 => String::new(),
            attempts => format!(" ({})", text(&(words.attempt)(attempts))),
        };
        lines.push(format!("{} {}{attempts}.", text(words.tried_again), due(UnixTime(at), now, words)));
    }
    let html = if lines.is_empty() { String::new() } else { format!("<p class=\"why\">{}</p>", lines.join(" ")) };
    (html, replaces)
}

/// What a held upload waits for.
const fn held_for(code: Option<Code>, words: &Words) -> &'static str {
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
fn facts(entry: &Entry, words: &Words, now: UnixTime) -> String {
    let files = entry.files();
    let mut parts = Vec::new();
    // Beside the progress, which says how much it is sealed, another size would only puzzle.
    if entry.state != State::Receiving {
        parts.push(text(&size(entry.size(), words)));
    }
    let at = if entry.state.has_ended() { entry.updated } else { entry.created.unwrap_or(entry.updated) };
    parts.push(moment(UnixTime(at), now, words));
    if entry.receipt.is_some() {
        let (id, label) = (text(&entry.id), text(words.receipt));
        parts.push(format!("<a href=\"/hoop/uploads/{id}?receipt\" download=\"receipt-{id}.json\">{label}</a>"));
    }
    if let Some(link) = monitor(entry, words).filter(|_| matches!(entry.state, State::Announced | State::Receiving)) {
        parts.push(link);
    }
    let mut out = format!("<p class=\"facts\">{}</p>", parts.join(" · "));
    let captioned = entry.caption.as_deref().is_some_and(|caption| !caption.trim().is_empty());
    if files.len() > 1 || captioned && !files.is_empty() {
        let named = files.iter().map(|file| {
            let size =
                file.size.map(|bytes| format!(" <span>{}</span>", text(&size(bytes, words)))).unwrap_or_default();
            format!("<li>{}{size}</li>", name(&file.name))
        });
        let named: String = named.collect();
        let more = match entry.file_count() - files.len() {
            0 => String::new(),
            more => format!("<li>{}</li>", text(&(words.more_files)(more))),
        };
        let count = text(&(words.files)(entry.file_count()));
        out += &format!("<details class=\"files\"><summary>{count}</summary><ul>{named}{more}</ul></details>");
    }
    out
}

/// A link to the gateway's page. Its URL is what a device wrote.
fn monitor(entry: &Entry, words: &Words) -> Option<String> {
    let url = url::Url::parse(entry.monitor.as_deref()?).ok()?;
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
        return None;
    }
    let near = match url.host()? {
        url::Host::Domain(host) => host.ends_with(".local") || !host.contains('.'),
        url::Host::Ipv4(_) | url::Host::Ipv6(_) => true,
    };
    let near = if near { format!(" <small>({})</small>", text(words.monitor_local)) } else { String::new() };
    let link = format!(
        "<a href=\"{}\" target=\"_blank\" rel=\"noreferrer\">{}<span aria-hidden=\"true\">\u{a0}↗</span></a>{near}",
        text(url.as_str()),
        text(words.monitor)
    );
    Some(link)
}

/// What its owner can do: a form that works as it stands, and that the script sends without leaving.
fn actions(frame: &Frame<'_>, entry: &Entry) -> String {
    let words = frame.language.words();
    let id = text(&entry.id);
    if entry.state.has_ended() && entry.kept_until.is_none() {
        return String::new();
    }
    let button = |action: &str, class: &str, label: &str| {
        format!(
            "<button name=\"action\" value=\"{action}\" class=\"{class}\" aria-describedby=\"n-{id}\">{}</button>",
            text(label)
        )
    };
    let first = match (entry.state, frame.asker, entry.is_paused()) {
        (State::Held | State::Rejected | State::Unknown, Asker::Nobody, _) => {
            format!("<p class=\"hint\">{}</p>", text(words.finish_signed_out))
        }
        (State::Held, Asker::User | Asker::Credentials, _) => button("release", "primary", words.finish),
        (State::Rejected, Asker::User | Asker::Credentials, _) => button("release", "", words.again),
        // Whoever does that has read what may come of it.
        (State::Unknown, Asker::User | Asker::Credentials, _) => format!(
            "<details class=\"stop\"><summary aria-describedby=\"n-{id}\">{}</summary><p>{}</p>\
             <input type=\"hidden\" name=\"risk\" value=\"twice\">{}</details>",
            text(words.again),
            text(words.twice_ask),
            button("release", "danger", words.twice_sure)
        ),
        (_, _, true) => button("resume", "primary", words.resume),
        (_, _, false) => button("pause", "", words.pause),
    };
    let (stop, stop_ask, stop_sure) = match entry.state.has_ended() {
        true => (words.delete, words.delete_ask, words.delete_sure),
        false => (words.stop, words.stop_ask, words.stop_sure),
    };
    format!(
        "<form class=\"actions\" method=\"post\" action=\"/hoop/uploads/{id}\">{first}\
         <details class=\"stop\"><summary aria-describedby=\"n-{id}\">{}</summary><p>{}</p>{}</details>\
         <p class=\"failure\" role=\"alert\"></p></form>",
        text(stop),
        text(stop_ask),
        button("stop", "danger", stop_sure)
    )
}

/// An icon: strokes on a grid of 24.
macro_rules! icon {
    ($paths:literal) => {
        concat!("<svg class=\"icon\" viewBox=\"0 0 24 24\" aria-hidden=\"true\" focusable=\"false\">", $paths, "</svg>")
    };
}

const WAY: &str = icon!("<path d=\"M12 20V5m-6 6 6-6 6 6\"/>");
const INBOX: &str = icon!("<path d=\"M12 4v10m-5-5 5 5 5-5M5 20h14\"/>");
const TICK: &str = icon!("<path d=\"m5 12.5 4.5 4.5L19 7.5\"/>");
const HAND: &str = icon!("<circle cx=\"12\" cy=\"8\" r=\"4\"/><path d=\"M4.5 20.5c1-4 4-6 7.5-6s6.5 2 7.5 6\"/>");
const QUESTION: &str = icon!("<path d=\"M8.5 8.5a3.5 3.5 0 1 1 5 3.200c-1 .5-1.5 1.200-1.5 2.300M12 18v.1\"/>");
const CROSS: &str = icon!("<path d=\"m7 7 10 10M17 7 7 17\"/>");
const BARS: &str = icon!("<path d=\"M9 6v12M15 6v12\"/>");
const BOX: &str = icon!("<path d=\"m4 8 8-4 8 4v8l-8 4-8-4zm0 0 8 4m0 0 8-4m-8 4v8\"/>");

#[cfg(test)]
mod tests;
