//! `hoop push`.

use super::flags::PushFlags;
use super::progress::Progress;
use super::receipt;
use super::request;
use super::show;
use crate::exit::{Exit, Failure};
use hoop_client::{Answer, Client, ClientConfig, Outcome, PushOptions, State, Upload, WaitFor, Way};
use hoop_http::Clock;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// What is asked for, checked.
struct Plan {
    upload: Upload,
    config: ClientConfig,
    options: PushOptions,
}

/// Runs it.
pub fn run(flags: PushFlags, clock: Clock) -> Result<Exit, Failure> {
    let result = plan(&flags, clock).and_then(|plan| push(&flags, plan));
    if let (Err(failure), true) = (&result, flags.json) {
        println!("{}", json!({"error": failure.message(), "exit": failure.exit.code()}));
    }
    result
}

fn plan(flags: &PushFlags, clock: Clock) -> Result<Plan, Failure> {
    let config = ClientConfig {
        gateway: request::gateway(&flags.gateway)?,
        retry_max_time: flags.retry_max_time.0,
        ..request::client_config(&flags.request.network, clock)
    };
    let options = PushOptions {
        // There is no receipt before the application has answered.
        wait: if flags.receipt.is_some() { WaitFor::Accepted } else { flags.wait.into() },
        timeout: request::timeout(flags.timeout),
        plain: flags.plain,
        suite: flags.request.suite,
    };
    Ok(Plan { upload: request::upload(&flags.request)?, config, options })
}

fn push(flags: &PushFlags, plan: Plan) -> Result<Exit, Failure> {
    let client = request::client(plan.config)?;
    let runtime = super::light_runtime()?;
    let progress = Arc::new(Progress::new(flags.quiet || flags.json, flags.verbose));
    let shown = progress.clone();
    let on_event = Arc::new(move |event| shown.show(&event));
    let result = runtime.block_on(client.push(&plan.upload, &plan.options, on_event));
    progress.clear();
    let kept = match (&flags.receipt, &result) {
        (Some(path), Ok(outcome)) => runtime.block_on(keep_receipt(&client, outcome, path)),
        _ => Ok(()),
    };
    // What still runs, a name being looked up perhaps, must not keep anybody waiting.
    runtime.shutdown_background();
    let outcome = result?;
    kept?;
    if flags.json {
        println!("{}", document(&outcome));
    } else if !flags.quiet {
        print!("{}", summary(&outcome, &plan.upload.label()));
    }
    Ok(exit(&outcome))
}

/// Keeps the receipt, and says so if there is none: the upload's fate is the exit code's all the same.
async fn keep_receipt(client: &Client, outcome: &Outcome, path: &Path) -> Result<(), Failure> {
    let kept = match outcome.id {
        Some(id) => receipt::keep(client, id, outcome.body.clone(), path).await?,
        None => false,
    };
    if !kept {
        eprintln!("There is no receipt: it is {}.", outcome.state);
    }
    Ok(())
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
        Way::Gateway(origin) => format!("at the gateway {origin}: you may leave"),
        Way::Direct => "at the service: you may leave".to_owned(),
        Way::Plain => "sent as the ordinary request".to_owned(),
    };
    text += &format!("{label}: {place}. {speed}\n");
    if outcome.state > State::Stored || outcome.way == Way::Plain {
        text += &format!("{}\n", fate(outcome));
    }
    if let Some(answer) = &outcome.answer {
        text += &show_answer(answer);
    }
    if outcome.timed_out {
        text += "The wait is over; the upload goes on by itself.\n";
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
        State::Held => format!("The session had gone, and the service holds it{reason}. Sign in and push it again."),
        State::Rejected => format!("The application has rejected it{reason}."),
        State::Unknown => format!("The application had all of it, and its answer was lost{reason}."),
        state => format!("It is {state}{reason}."),
    }
}

/// Characters of an answer that are shown; `--json` has all that is known.
const SHOWN: usize = 2000;

pub fn show_answer(answer: &Answer) -> String {
    let kind = answer.field("content-type").map(|kind| format!(" {kind}")).unwrap_or_default();
    let location = answer.field("location").map(|location| format!(" to {location}")).unwrap_or_default();
    let body = show::beginning(&answer.body, SHOWN);
    let line_end = if body.is_empty() || body.ends_with('\n') { "" } else { "\n" };
    format!("Its answer: {}{kind}{location}\n{body}{line_end}", answer.status)
}

/// One object with everything that is known; members that are not are null.
fn document(outcome: &Outcome) -> Value {
    let timings = &outcome.timings;
    let gateway = match &outcome.way {
        Way::Gateway(origin) => Some(origin.to_string()),
        Way::Direct | Way::Plain => None,
    };
    json!({
        "id": outcome.id.map(|id| id.to_hex()),
        "state": outcome.state.name(),
        "via": outcome.way.name(),
        "gateway": gateway,
        "monitor": outcome.monitor,
        "bytes": outcome.bytes,
        "timed_out": outcome.timed_out,
        "reason": outcome.reason.as_ref().map(|reason| json!({"code": reason.code, "detail": reason.detail})),
        "answer": outcome.answer.as_ref().map(answer_document),
        "ticket_ms": timings.ticket_ms,
        "sending_ms": timings.sending_ms,
        "stored_ms": timings.stored_ms,
        "done_ms": timings.done_ms,
    })
}

/// The application's answer; octets that are no UTF-8 are replaced.
pub fn answer_document(answer: &Answer) -> Value {
    json!({
        "status": answer.status,
        "content_type": answer.field("content-type"),
        "location": answer.field("location"),
        "body": String::from_utf8_lossy(&answer.body),
    })
}
