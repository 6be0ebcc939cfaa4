//! `hoop push` and `hoop resume`.

use super::answer::{answer_document, show_answer, way_out};
use super::flags::{HandFlags, PushFlags, ResumeFlags};
use super::progress::Progress;
use super::receipt;
use super::request;
use super::show;
use super::status::find;
use crate::base::exit::{Exit, Failure};
use hoop_client::{Client, OnEvent, Outcome, PushError, PushOptions, State, Upload, WaitFor, Way};
use hoop_http::Clock;
use hoop_units::plain;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Runs `hoop push`.
pub fn run(flags: PushFlags, clock: Clock) -> Result<Exit, Failure> {
    let result = plan(&flags, clock).and_then(|(client, upload, options)| {
        let hand_over = async |on_event| client.push(&upload, &options, on_event).await;
        conduct(&flags.hand, &client, &upload.label(), flags.receipt.as_deref(), hand_over)
    });
    told(result, flags.hand.json)
}

/// Runs `hoop resume`.
pub fn resume(flags: ResumeFlags, clock: Clock) -> Result<Exit, Failure> {
    let result =
        request::hand_config(&flags.hand, &flags.network, clock).and_then(request::client).and_then(|client| {
            let id = find(&client, &flags.id)?;
            let (label, options) = (client.record(id)?.name, options(&flags.hand));
            let hand_over = async |on_event| client.resume(id, &options, on_event).await;
            conduct(&flags.hand, &client, &label, None, hand_over)
        });
    told(result, flags.hand.json)
}

fn told(result: Result<Exit, Failure>, as_json: bool) -> Result<Exit, Failure> {
    if let (Err(failure), true) = (&result, as_json) {
        println!("{}", json!({"error": failure.message(), "exit": failure.exit.code()}));
    }
    result
}

/// What is asked for, checked.
fn plan(flags: &PushFlags, clock: Clock) -> Result<(Client, Upload, PushOptions), Failure> {
    let config = request::hand_config(&flags.hand, &flags.request.network, clock)?;
    let upload = request::upload(&flags.request)?;
    let mut options = PushOptions { plain: flags.plain, suite: flags.request.suite, ..options(&flags.hand) };
    if flags.receipt.is_some() {
        // There is none before the application has answered.
        options.wait = WaitFor::Accepted;
    }
    Ok((request::client(config)?, upload, options))
}

fn options(flags: &HandFlags) -> PushOptions {
    let (timeout, deadline) = (request::timeout(flags.timeout), flags.deadline.map(|span| span.0));
    let trust_new_gateway = flags.trust_new_gateway;
    PushOptions { wait: flags.wait.into(), timeout, deadline, trust_new_gateway, ..PushOptions::default() }
}

/// Shows how it goes and what came of it.
fn conduct(
    flags: &HandFlags,
    client: &Client,
    label: &str,
    receipt: Option<&Path>,
    hand_over: impl AsyncFnOnce(OnEvent) -> Result<Outcome, PushError>,
) -> Result<Exit, Failure> {
    let runtime = super::runtime::light_runtime()?;
    let progress = Arc::new(Progress::new(flags.quiet || flags.json, flags.verbose));
    let shown = progress.clone();
    let on_event = Arc::new(move |event| shown.show(&event));
    let result = runtime.block_on(hand_over(on_event));
    progress.clear();
    if let Ok(outcome) = &result {
        if flags.json {
            println!("{}", document(outcome));
        } else if !flags.quiet {
            print!("{}", summary(outcome, label));
        }
        if let Some(path) = receipt {
            runtime.block_on(keep_receipt(client, outcome, path));
        }
    }
    // What still runs, a name being looked up perhaps, must not keep anybody waiting.
    runtime.shutdown_background();
    Ok(exit(&result?))
}

/// Keeps the receipt, and says so if there is none or it cannot be kept: the upload's fate is the exit code's all the same.
async fn keep_receipt(client: &Client, outcome: &Outcome, path: &Path) {
    let none = || eprintln!("There is no receipt, since the upload is {}.", outcome.state);
    let Some(id) = outcome.id else { return none() };
    match receipt::keep(client, id, outcome.body.clone(), path).await {
        Ok(true) => {}
        Ok(false) => none(),
        Err(failure) => eprintln!(
            "The receipt is not kept: {}. Fetch it later: hoop status {id} --receipt FILE",
            plain::line(&failure.message())
        ),
    }
}

fn exit(outcome: &Outcome) -> Exit {
    match outcome.timed_out {
        true => Exit::TimedOut,
        false => super::failure::exit_of(outcome.state),
    }
}

/// The last word: what, how much, how fast, that one may leave, and where to follow.
fn summary(outcome: &Outcome, label: &str) -> String {
    let mut text = String::new();
    let timings = &outcome.timings;
    let sending = timings.stored_ms.zip(timings.sending_ms).map_or(0, |(end, start)| end.saturating_sub(start));
    let size = show::bytes(outcome.bytes);
    let speed = format!("{size} in {} ({})", show::millis(sending), show::rate(outcome.bytes, sending));
    let place = match &outcome.way {
        Way::Direct if outcome.state == State::Held => "at the service, where it waits for you".to_owned(),
        Way::Gateway(origin) if !outcome.may_leave => {
            format!("at the gateway {origin}, which has not shown who it is: do not leave yet")
        }
        Way::Gateway(origin) => format!("at the gateway {origin}: you may leave"),
        Way::Direct if !outcome.may_leave => {
            "partly at a gateway that has not shown who it is: do not leave yet".to_owned()
        }
        Way::Direct => "at the service: you may leave".to_owned(),
        Way::Plain => "sent as the ordinary request".to_owned(),
    };
    text += &format!("{}: {place}. {speed}\n", plain::line(label));
    if outcome.state > State::Stored || outcome.way == Way::Plain {
        text += &format!("{}\n", fate(outcome));
    }
    if let Some(id) = outcome.id {
        text += &way_out(outcome.state, id);
    }
    if let Some(answer) = &outcome.answer {
        text += &show_answer(answer);
    }
    if outcome.timed_out {
        text += match outcome.may_leave {
            true => "The wait is over; the upload continues without this device.\n",
            false => {
                "The wait is over, and the service does not have all of it. Check with `hoop status`, or continue with `hoop resume`.\n"
            }
        };
    }
    match (&outcome.monitor, outcome.id) {
        (Some(monitor), _) if !outcome.state.is_final() => text += &format!("Follow it: {monitor}\n"),
        (None, Some(id)) if !outcome.state.is_final() => text += &format!("Follow it: hoop status {id}\n"),
        _ => {}
    }
    text
}

/// The state in a sentence.
fn fate(outcome: &Outcome) -> String {
    let reason = outcome.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    match outcome.state {
        State::Accepted => "The application has accepted it.".to_owned(),
        State::Received => "The service has all of it.".to_owned(),
        State::Held => match outcome.reason.as_ref().map(|reason| reason.code.as_str()) {
            Some("sign-in-required") | None => {
                format!("The session had ended, so the service holds the upload{reason}.")
            }
            Some(_) => format!("The service holds the upload{reason}."),
        },
        State::Rejected => format!("The application has rejected it{reason}."),
        State::Unknown => format!("The application received all of it, but its answer was lost{reason}."),
        state => format!("It is {state}{reason}."),
    }
}

/// One object with everything that is known; members that are not are null.
fn document(outcome: &Outcome) -> Value {
    let timings = &outcome.timings;
    json!({
        "id": outcome.id.map(|id| id.to_hex()),
        "state": outcome.state.name(),
        "via": outcome.way.name(),
        "gateway": outcome.way.gateway().map(ToString::to_string),
        "monitor": outcome.monitor,
        "bytes": outcome.bytes,
        "timed_out": outcome.timed_out,
        "may_leave": outcome.may_leave,
        "reason": outcome.reason.as_ref().map(|reason| json!({"code": reason.code, "detail": reason.detail})),
        "answer": outcome.answer.as_ref().map(answer_document),
        "ticket_ms": timings.ticket_ms,
        "sending_ms": timings.sending_ms,
        "stored_ms": timings.stored_ms,
        "done_ms": timings.done_ms,
    })
}
