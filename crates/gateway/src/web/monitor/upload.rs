//! The page of an upload.

use super::html::{Live, ring, time};
use crate::web::status::Status;
use hoop_pages::words::{MonitorWords, reason};
use hoop_pages::{Language, shown};
use hoop_spool::{KEEP_SECS, State};
use hoop_units::{Bitrate, UnixTime};
use maud::{Markup, html};

/// The colour of things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// It moves, or will.
    Busy,
    /// It waits for something.
    Wait,
    Good,
    Bad,
}

impl Tone {
    /// Its class in the style sheet.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Wait => "wait",
            Self::Good => "good",
            Self::Bad => "bad",
        }
    }

    /// Of an upload in this state.
    pub const fn of(state: State, waits: bool) -> Self {
        match state {
            State::Held | State::Unknown => Self::Wait,
            State::Receiving | State::Stored | State::Delivering | State::Received if waits => Self::Wait,
            State::Receiving | State::Stored | State::Delivering | State::Received => Self::Busy,
            State::Accepted => Self::Good,
            State::Rejected | State::Stopped | State::Expired | State::Refused => Self::Bad,
        }
    }

    const fn sign(self) -> &'static str {
        match self {
            Self::Busy => "…",
            Self::Wait => "!",
            Self::Good => "✓",
            Self::Bad => "✕",
        }
    }
}

/// What changes of an upload's page.
pub fn live(status: &Status, lang: Language, now: UnixTime) -> Live {
    let words = MonitorWords::of(lang);
    let state = State::by_name(status.state).unwrap_or(State::Receiving);
    let (headline, more) = headline(lang, state);
    let waits = status.reason.is_some() && !state.is_final();
    let tone = Tone::of(state, waits);
    let percent = percent(status, state);
    let middle = match percent {
        Some(percent) => html! { (percent) small { "%" } },
        None => html! { (tone.sign()) },
    };
    let label = match state {
        State::Receiving => words.stored_here,
        _ => words.delivered,
    };
    let html = html! {
        section.card.hero.(tone.class()) {
            (ring(percent, &middle, label))
            h1 { (headline) }
            p { (more) }
            (movement(status, state, lang))
            (sign_in(status, state, lang))
            p.lost { (lost(lang, state)) }
        }
        (way(status, state, lang, now))
        section.card { ol.chain { (chain(status, state, lang, now)) } }
        (facts(status, state, lang, now))
    };
    let title = percent.map(|percent| format!("{percent} % · ")).unwrap_or_default();
    let said = match waits {
        true => format!("{headline}. {}", way_words(status, lang)),
        false => format!("{headline}. {more}"),
    };
    Live { title: format!("{title}{headline} · Hoop"), said, html: html.into_string() }
}

/// A few words for a state, for lists.
pub const fn short(lang: Language, state: State) -> &'static str {
    headline(lang, state).0
}

const fn headline(lang: Language, state: State) -> (&'static str, &'static str) {
    let words = MonitorWords::of(lang);
    let told = match state {
        State::Receiving => &words.receiving,
        State::Stored => &words.stored,
        State::Delivering => &words.delivering,
        State::Received => &words.received,
        State::Held => &words.held,
        State::Accepted => &words.accepted,
        State::Rejected => &words.rejected,
        State::Unknown => &words.unknown,
        State::Stopped => &words.stopped,
        State::Expired => &words.expired,
        State::Refused => &words.refused,
    };
    (told.label, told.meaning)
}

/// What a reader learns whose connection to the gateway has gone.
const fn lost(lang: Language, state: State) -> &'static str {
    let words = MonitorWords::of(lang);
    match state {
        State::Receiving => words.lost_receiving,
        _ => words.lost_upload,
    }
}

/// How much is done of what moves now.
fn amount(status: &Status, state: State) -> Option<(u64, u64)> {
    match state {
        State::Receiving => Some((status.stored, status.total)),
        State::Stored | State::Delivering => Some((status.delivered, status.total)),
        State::Received
        | State::Held
        | State::Accepted
        | State::Rejected
        | State::Unknown
        | State::Stopped
        | State::Expired
        | State::Refused => None,
    }
}

fn percent(status: &Status, state: State) -> Option<u64> {
    let (done, of) = amount(status, state)?;
    Some((u128::from(done) * 100 / u128::from(of.max(1))) as u64)
}

/// Amount, rate and time.
fn movement(status: &Status, state: State, lang: Language) -> Markup {
    let Some((done, of)) = amount(status, state) else { return html! {} };
    let mut words = format!("{} {} {}", lang.size(done), MonitorWords::of(lang).of, lang.size(of));
    if state == State::Receiving {
        // It is delivered already; the rate is that of delivery, and nobody knows when the rest comes.
        if status.delivered > 0 {
            let there = lang.size(status.delivered);
            words += &(MonitorWords::of(lang).already)(&there);
        }
    } else if let Some(rate) = status.rate_bps.filter(|rate| *rate > 0) {
        let left = lang.span(Bitrate::bps(rate).time_for(of - done.min(of)).as_secs());
        words += &format!(" · {} · {}", lang.rate(rate), lang.left(&left));
    }
    html! { p.movement { (words) } }
}

/// Where the owner of a held upload finishes it (`docs/protocol.md` §7).
fn sign_in(status: &Status, state: State, lang: Language) -> Markup {
    let words = MonitorWords::of(lang).to_uploads;
    html! {
        @if state == State::Held { p { a.act href={ (shown(&status.dest_origin)) "/hoop/uploads" } { (words) } } }
    }
}

fn way_words(status: &Status, lang: Language) -> &'static str {
    status.reason.as_ref().map_or("", |known| reason(lang, &known.code))
}

/// What is in the way, and when it is tried next.
fn way(status: &Status, state: State, lang: Language, now: UnixTime) -> Markup {
    let words = MonitorWords::of(lang);
    let Some(reason) = &status.reason else { return its_time(status, state, lang, now) };
    let next = match status.next_attempt.map_or(0, |at| UnixTime(at).since(now)) {
        0 => words.tried_now.to_owned(),
        secs => format!("{} {}.", words.next_try, lang.within(secs.into())),
    };
    // Most ends are told by the headline; of a refusal only the code says why.
    let told = state.is_final() && state != State::Refused;
    html! {
        section.card.way[!told] {
            @if !told { h2 { (way_words(status, lang)) } }
            // What is held is tried again when its owner says so, and never by itself.
            @if !state.is_final() && state != State::Held {
                p {
                    (next)
                    @if status.attempts > 1 { " " (status.attempts) " " (words.attempts) }
                }
            }
            details {
                summary { (words.details) }
                p { code { (shown(&reason.code)) } " " (shown(&reason.detail)) }
            }
        }
    }
}

/// When what lies here whole, and has nothing in the way but the hour, goes on.
fn its_time(status: &Status, state: State, lang: Language, now: UnixTime) -> Markup {
    let words = MonitorWords::of(lang);
    let secs = status.next_attempt.map_or(0, |at| UnixTime(at).since(now));
    html! {
        @if secs > 0 && matches!(state, State::Stored | State::Delivering) {
            section.card.way {
                h2 { (words.waits_for_time) }
                p { (words.goes_on) " " (lang.within(secs.into())) "." }
            }
        }
    }
}

/// The steps that an upload takes, as far as it came.
fn chain(status: &Status, state: State, lang: Language, now: UnixTime) -> Markup {
    let words = MonitorWords::of(lang);
    let stored = words.stored_here;
    let received = words.received_there;
    let accepted = words.accepted_there;
    let mut steps = vec![(stored, status.stored_at), (received, status.received_at)];
    // What ends an upload badly stands where it was, and nothing follows.
    let end = match state {
        State::Rejected => Some(words.rejected_there),
        State::Unknown => Some(words.answer_lost),
        State::Stopped => Some(words.stopped_there),
        State::Expired => Some(words.time_over),
        State::Refused => Some(words.refused_there),
        State::Receiving | State::Stored | State::Delivering | State::Received | State::Held | State::Accepted => None,
    };
    match end {
        Some(_) => steps.retain(|(_, at)| at.is_some()),
        None => steps.push((accepted, status.finished_at)),
    }
    let now_at = steps.iter().position(|(_, at)| at.is_none());
    let ago = |at: Option<u32>| at.map(|at| time(at, &lang.ago(now.since(UnixTime(at)).into())));
    html! {
        @for (index, (text, at)) in steps.into_iter().enumerate() {
            @let is_now = now_at == Some(index);
            @let (class, aloud) = match (at, is_now) {
                (Some(_), _) => ("done", words.done),
                (None, true) => ("now", words.now),
                (None, false) => ("todo", words.to_come),
            };
            li.(class) aria-current=[is_now.then_some("step")] {
                span {
                    (if is_now { doing(lang, state, status.reason.is_some()) } else { text })
                    i.unseen { " (" (aloud) ")" }
                }
                @if let Some(ago) = ago(at) { (ago) }
            }
        }
        @if let Some(end) = end {
            li.end.(Tone::of(state, false).class()) {
                span { (end) }
                @if let Some(ago) = ago(status.finished_at) { (ago) }
            }
        }
    }
}

/// The step that an upload is at.
const fn doing(lang: Language, state: State, waits: bool) -> &'static str {
    let words = MonitorWords::of(lang);
    match state {
        State::Receiving => words.being_stored,
        State::Stored | State::Delivering if waits => words.waits_to_be_sent,
        State::Stored => words.waits_for_turn,
        State::Delivering => words.being_sent,
        State::Held => words.waits_for_you,
        State::Received
        | State::Accepted
        | State::Rejected
        | State::Unknown
        | State::Stopped
        | State::Expired
        | State::Refused => words.being_handed,
    }
}

fn facts(status: &Status, state: State, lang: Language, now: UnixTime) -> Markup {
    let words = MonitorWords::of(lang);
    let begun = lang.ago(now.since(UnixTime(status.created)).into());
    // Where the line is too short it breaks in the middle.
    let (start, end) = status.id.split_at(status.id.len() / 2);
    html! {
        section.card {
            dl {
                dt { (words.destination) }
                dd { (shown(status.dest_origin.trim_start_matches("https://"))) }
                dt { (words.size) }
                dd { (lang.size(status.total)) }
                dt { (words.begun) }
                dd { (time(status.created, &begun)) }
                @if !state.is_final() {
                    @let until = UnixTime(status.expires).plus_secs(KEEP_SECS);
                    dt { (words.expires) }
                    dd { (time(until.0, &lang.within(until.since(now).into()))) }
                }
                dt { (words.upload) }
                dd { code { (start) wbr; (end) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::status::ReasonDocument;

    const NOW: UnixTime = UnixTime(100);

    fn status() -> Status {
        Status {
            id: "ab".repeat(16),
            role: "gateway",
            state: "delivering",
            total: 3_000_000,
            received: 3_000_000,
            missing: String::new(),
            expires: 2_000,
            updated: 100,
            reason: Some(ReasonDocument {
                code: "dest-unreachable".into(),
                detail: "<script>alert(1)</script>".into(),
            }),
            attempts: 2,
            next_attempt: Some(190),
            answer: None,
            dest_origin: "https://photos.example".into(),
            stored: 3_000_000,
            delivered: 1_000_000,
            created: 40,
            stored_at: Some(60),
            received_at: None,
            finished_at: None,
            rate_bps: Some(1_000_000),
        }
    }

    #[test]
    fn a_waiting_upload_tells_its_reason_or_when_its_hours_begin() {
        let html = page(&waiting(), Language::English);
        assert!(html.contains("It waits for its time.") && html.contains("Delivery goes on in 2 h"), "{html}");
        for other in
            [Status { next_attempt: Some(NOW.0), ..waiting() }, Status { state: "receiving", ..waiting() }, status()]
        {
            let html = page(&other, Language::English);
            assert!(!html.contains("It waits for its time."), "{html}");
        }
    }

    fn waiting() -> Status {
        Status { state: "stored", reason: None, next_attempt: Some(NOW.0 + 7_200), ..status() }
    }

    /// Without the spaces that keep a line together.
    fn page(status: &Status, lang: Language) -> String {
        live(status, lang, NOW).html.replace('\u{a0}', " ")
    }

    #[test]
    fn the_page_says_where_the_upload_stands_and_when_it_is_tried_again() {
        let page = page(&status(), Language::English);
        for part in [
            "You may leave",
            "aria-valuenow=\"33\"",
            "1.0 MB of 3.0 MB · 1.0 Mbit/s · about 16 s to go",
            "The service cannot be reached from here",
            "Next try in 1 min 30 s. 2 attempts so far.",
            "<li class=\"done\"><span>Stored on this Hoop box<i class=\"unseen\"> (done)</i></span><time datetime=\"1970-01-01T00:01:00Z\">40 s ago</time>",
            "<li class=\"now\" aria-current=\"step\"><span>Waits to be sent to the service",
            "<li class=\"todo\"><span>Accepted by the application",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn the_page_speaks_french() {
        let page = page(&status(), Language::French);
        for part in
            ["Vous pouvez partir", "1,0 Mo sur 3,0 Mo", "Prochain essai dans 1 min 30 s. 2 essais", "il y a 40 s"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn what_another_end_wrote_is_shown_as_text() {
        let page = page(&status(), Language::English);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
    }

    #[test]
    fn an_end_stands_where_it_was_and_nothing_follows_it() {
        let ended = |state, received_at| {
            page(&Status { state, received_at, finished_at: Some(90), ..status() }, Language::English)
        };
        let done = ended("accepted", Some(80));
        assert!(done.contains("<h1>Done</h1>") && done.matches("<li class=\"done\">").count() == 3, "{done}");
        let expired = ended("expired", None);
        assert!(expired.contains("Its time was over") && !expired.contains("Received by"), "{expired}");
        let rejected = ended("rejected", Some(80));
        assert!(rejected.contains("Received by") && !rejected.contains("Accepted by"), "{rejected}");
        for page in [done, expired, rejected] {
            assert!(
                !page.contains("aria-current") && !page.contains("Next try") && !page.contains("Expires"),
                "{page}"
            );
        }
    }

    #[test]
    fn who_must_sign_in_is_led_to_the_list_of_uploads_at_the_service() {
        let link = "href=\"https://photos.example/hoop/uploads\"";
        assert!(page(&Status { state: "held", ..status() }, Language::English).contains(link));
        for code in ["sign-in-required", "form-token-refused", "not-permitted", "upstream-failed"] {
            let known =
                Some(crate::peer::status::ReasonDocument { code: code.into(), detail: "it answered 403".into() });
            for lang in [Language::English, Language::French] {
                let page = page(&Status { state: "held", reason: known.clone(), ..waiting() }, lang);
                assert!(page.contains(reason(lang, code)), "{code}: {page}");
                assert!(
                    !page.contains("tried again") && !page.contains("Next try") && !page.contains("essai"),
                    "{page}"
                );
            }
        }
        assert!(!page(&status(), Language::English).contains(link));
    }

    #[test]
    fn a_total_of_any_size_has_a_percentage() {
        let huge = Status { total: u64::MAX, delivered: u64::MAX - 1, reason: None, ..status() };
        assert!(page(&huge, Language::English).contains("aria-valuenow=\"99\""));
        let none = Status { total: 0, delivered: 0, ..status() };
        assert!(page(&none, Language::English).contains("aria-valuenow=\"0\""));
    }
}
