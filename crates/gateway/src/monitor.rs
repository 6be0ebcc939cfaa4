//! The pages for people, rendered here: no script, so that they work in whatever browser a phone has.

use crate::status::Status;
use hoop_http::Problem;
use hoop_spool::State;
use hoop_units::{Bitrate, UnixTime};

const STYLE: &str = "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:2rem auto;padding:0 1rem;\
color:#222;background:#fff}h1{font-size:1.4rem}ol{list-style:none;padding:0}li{padding:.35rem 0 .35rem 1.8rem;\
position:relative;color:#888}li.done{color:#222}li.done::before{content:'\\2713';position:absolute;left:.3rem;\
color:#27713a}li.now{color:#222;font-weight:600}li.now::before{content:'\\2022';position:absolute;left:.45rem}\
progress{width:100%;height:1rem}.why{background:#fff4d6;padding:.6rem .8rem;border-radius:.4rem}\
small{color:#666;word-break:break-all}@media(prefers-color-scheme:dark){body,li.done,li.now{color:#ddd;\
background:#181818}.why{background:#4a3c10}small,li{color:#999}}";

/// The page at `/`.
pub fn front(base: &str) -> String {
    let base = escape(base);
    page(
        "Hoop gateway",
        false,
        &format!(
            "<h1>This is a Hoop gateway</h1>\
             <p>It takes sealed uploads at the speed of this network and delivers them over the slow line outside, so that \
             your device need not stay. It can neither read nor alter what it carries.</p>\
             <p>Programs offer uploads at <code>{base}/offload</code>; <code>hoop push</code> is one. What became of an \
             upload is at <code>{base}/monitor?ID=…</code>: the link that the program showed.</p>"
        ),
    )
}

/// The page of a refusal.
pub fn problem(problem: &Problem) -> String {
    let title = escape(problem.code.title());
    let detail = escape(&problem.detail);
    page("Hoop: not found", false, &format!("<h1>{title}</h1><p>{detail}</p><small>{}</small>", problem.code))
}

/// The page of an upload.
pub fn upload(status: &Status, now: UnixTime) -> String {
    let state = State::by_name(status.state).unwrap_or(State::Receiving);
    let mut body = format!("<h1>{}</h1>", headline(state));
    if let Some((done, of)) = bar(status, state) {
        body += &format!("<progress value=\"{done}\" max=\"{of}\"></progress><p>{} of {}", size(done), size(of));
        if let Some(rate) = status.rate_bps.filter(|rate| *rate > 0) {
            let left = Bitrate::bps(rate).time_for(of - done.min(of));
            body += &format!(", {}, about {} to go", Bitrate::bps(rate / 1000 * 1000), span(left.as_secs()));
        }
        body += "</p>";
    }
    if let Some(reason) = &status.reason {
        body += &format!("<p class=why>{} <small>({})</small>", escape(&reason.detail), escape(&reason.code));
        if let Some(next) = status.next_attempt.filter(|_| !state.is_final()) {
            body += &format!("<br>Next try {}.", in_time(UnixTime(next).since(now)));
        }
        body += "</p>";
    }
    body += &format!("<ol>{}</ol>", steps(status, state, now));
    body += &format!(
        "<p><small>For {}. Upload {}, {} in all.</small></p>",
        escape(&status.dest_origin),
        status.id,
        size(status.total)
    );
    page("Hoop: your upload", !state.is_final(), &body)
}

fn headline(state: State) -> &'static str {
    match state {
        State::Receiving => "Your upload is coming in",
        State::Stored => "Your upload is safe here; you may leave",
        State::Delivering => "Your upload is on its way; you may leave",
        State::Received => "Your upload has arrived",
        State::Held => "Your upload has arrived and waits for you to sign in",
        State::Accepted => "Done",
        State::Rejected => "The application refused your upload",
        State::Unknown => "Your upload was handed over, and the answer was lost",
        State::Stopped => "Your upload was stopped",
        State::Expired => "Your upload could not be delivered in time",
        State::Refused => "The service refused your upload",
    }
}

fn bar(status: &Status, state: State) -> Option<(u64, u64)> {
    match state {
        State::Receiving => Some((status.stored, status.total)),
        State::Stored | State::Delivering => Some((status.delivered, status.total)),
        State::Received | State::Held => None,
        State::Accepted | State::Rejected | State::Unknown | State::Stopped | State::Expired | State::Refused => None,
    }
}

fn steps(status: &Status, state: State, now: UnixTime) -> String {
    let ago = |at: u32| format!("{} ago", span(now.since(UnixTime(at)).into()));
    let step = |at: Option<u32>, text: &str| match at {
        Some(at) => format!("<li class=done>{text}, {}</li>", ago(at)),
        None => format!("<li>{text}</li>"),
    };
    let mut steps = step(status.stored_at, "Stored on this gateway");
    steps += &step(status.received_at, "Received by the service");
    steps += &match state {
        State::Accepted => step(status.finished_at, "Accepted by the application"),
        state if state.is_final() => step(status.finished_at, &format!("Ended: {state}")),
        _ => step(None, "Accepted by the application"),
    };
    steps
}

fn page(title: &str, refresh: bool, body: &str) -> String {
    let refresh = if refresh { "<meta http-equiv=refresh content=3>" } else { "" };
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">{refresh}\
         <title>{title}</title><style>{STYLE}</style>{body}</html>\n"
    )
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            other => escaped.push(other),
        }
    }
    escaped
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

fn in_time(secs: u32) -> String {
    if secs == 0 { "now".to_owned() } else { format!("in {}", span(secs.into())) }
}

fn span(secs: u64) -> String {
    match secs {
        0..120 => format!("{secs} s"),
        120..7_200 => format!("{} min", secs / 60),
        7_200..172_800 => format!("{} h", secs / 3_600),
        _ => format!("{} days", secs / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ReasonDocument;

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
    fn the_page_says_where_the_upload_stands_and_when_it_is_tried_again() {
        let page = upload(&status(), UnixTime(100));
        for part in ["you may leave", "1.0 MB of 3.0 MB", "1 Mbit/s", "about 16 s to go", "in 90 s", "40 s ago"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(page.contains("http-equiv=refresh"));
        let done = Status { state: "accepted", reason: None, finished_at: Some(90), ..status() };
        let page = upload(&done, UnixTime(100));
        assert!(page.contains("<h1>Done</h1>") && !page.contains("http-equiv=refresh"), "{page}");
    }

    #[test]
    fn what_another_end_wrote_is_shown_as_text() {
        let page = upload(&status(), UnixTime(100));
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
    }
}
