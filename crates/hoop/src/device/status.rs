//! `hoop status`: the uploads that this device remembers, or one of them in full.

use super::answer::{answer_document, show_answer};
use super::flags::StatusFlags;
use super::receipt;
use super::request;
use super::show;
use crate::base::exit::{Exit, Failure};
use hoop_client::{Client, State, Status, UploadRecord};
use hoop_http::Clock;
use hoop_units::{UploadId, plain};
use serde_json::{Value, json};
use std::path::Path;

/// Runs it.
pub fn run(flags: StatusFlags, clock: Clock) -> Result<Exit, Failure> {
    let client = request::client(request::client_config(&flags.network, clock))?;
    match &flags.id {
        None => {
            list(&client, &flags);
            Ok(Exit::Done)
        }
        Some(text) => {
            let id = find(&client, text)?;
            if let Some(path) = &flags.receipt {
                keep_receipt(&client, id, path)?;
            }
            one(&client, id, flags.json)
        }
    }
}

fn keep_receipt(client: &Client, id: UploadId, path: &Path) -> Result<(), Failure> {
    let runtime = super::runtime::light_runtime()?;
    let kept = runtime.block_on(receipt::keep(client, id, Vec::new(), path));
    runtime.shutdown_background();
    if !kept? {
        eprintln!("There is no receipt, or not yet.");
    }
    Ok(())
}

/// The one upload whose id begins so.
pub fn find(client: &Client, text: &str) -> Result<UploadId, Failure> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let records = client.list();
    let mut fitting = records.iter().filter(|record| !text.is_empty() && record.id.starts_with(text));
    match (fitting.next(), fitting.next()) {
        (Some(record), None) => {
            record.id.parse().map_err(|error| Failure::new(Exit::Unexpected, "the state folder is damaged", error))
        }
        (Some(_), Some(_)) => {
            Err(Failure::usage(format!("several uploads begin with `{text}`")).hint("give more digits"))
        }
        (None, _) => Err(Failure::usage(format!("this device does not remember an upload `{text}`"))
            .hint("`hoop status` lists the uploads that it remembers")),
    }
}

fn list(client: &Client, flags: &StatusFlags) {
    let mut records = client.list();
    records.truncate(flags.count);
    if flags.json {
        let documents: Vec<Value> = records.iter().map(record_document).collect();
        println!("{}", Value::from(documents));
        return;
    }
    if records.is_empty() {
        println!("No uploads yet.");
        return;
    }
    let mut text = format!("{:<10}  {:<20}  {:>9}  {:<10}  NAME\n", "ID", "BEGUN", "SIZE", "LAST KNOWN");
    for record in &records {
        let (begun, size) = (show::time(record.created), show::bytes(record.bytes));
        let name = show::beginning(plain::line(&record.name).as_bytes(), 60);
        text += &format!("{:<10}  {begun:<20}  {size:>9}  {:<10}  {name}\n", &record.id[..10], record.state);
    }
    // Whoever reads the first lines only (`head`) has what they want.
    print!("{text}");
}

fn one(client: &Client, id: UploadId, as_json: bool) -> Result<Exit, Failure> {
    let runtime = super::runtime::light_runtime()?;
    let result = runtime.block_on(client.status(id));
    runtime.shutdown_background();
    let (record, status) = match result {
        Ok(known) => known,
        Err(error) => {
            // What the device knows by itself is still worth telling.
            if let (Ok(record), false) = (client.record(id), as_json) {
                println!("{}, last known as {}", describe(&record), record.state);
            }
            return Err(error.into());
        }
    };
    match as_json {
        true => println!("{}", document(&record, &status)),
        false => print!("{}", in_full(&record, &status)),
    }
    Ok(super::failure::exit_of_status(&status))
}

fn describe(record: &UploadRecord) -> String {
    let (name, url) = (plain::line(&record.name), plain::line(&record.url));
    format!("{}: {name}, {}, for {url}", record.id, show::bytes(record.bytes))
}

/// The receipt chain with its times, what is in the way, and the application's answer.
fn in_full(record: &UploadRecord, status: &Status) -> String {
    let mut text = format!("{}\n", describe(record));
    let mut line = |name: &str, value: String| text += &format!("  {name:<13} {}\n", plain::line(&value));
    let at = |time: Option<u32>, otherwise: &str| time.map_or_else(|| otherwise.to_owned(), show::time);
    line("begun", show::time(record.created));
    if let Some(gateway) = &record.gateway {
        let otherwise = if status.state < State::Stored { "not all of it" } else { "yes" };
        line("stored", format!("{}, at the gateway {gateway}", at(status.stored_at, otherwise)));
    }
    // What was given up may have been so before all of it had come.
    let has_come = (State::Received..State::Stopped).contains(&status.state);
    let is_received = !status.is_claim() && (status.received_at.is_some() || has_come);
    let never = match status.state {
        state if state.is_given_up() => "no",
        _ if status.is_claim() => "not proven",
        _ => "not yet",
    };
    line("received", if is_received { at(status.received_at, "yes") } else { never.to_owned() });
    let state = match status.state {
        state if state.is_settled() => format!("{state} {}", at(status.finished_at.or(status.updated), "")),
        state => state.to_string(),
    };
    let doubt = match status.is_claim() {
        true if status.denied => " (the gateway says so; the service knows nothing of this upload)",
        true => " (the gateway says so, without proof; the service cannot be asked)",
        false => "",
    };
    line("state", format!("{}{doubt}", state.trim_end()));
    if let (false, Some(done), Some(total)) = (is_received, status.delivered, status.total) {
        line("delivered", format!("{} of {}", show::bytes(done), show::bytes(total)));
    }
    if let Some(rate) = status.rate_bps.filter(|_| !is_received) {
        line("rate", format!("{:.1} Mbit/s", rate as f64 / 1e6));
    }
    if let Some(reason) = &status.reason {
        line("because", reason.to_string());
    }
    if let Some(next) = status.next_attempt {
        line("next attempt", format!("{} (attempts so far: {})", show::time(next), status.attempts));
    }
    if let (Some(expires), false) = (status.expires, status.state.is_final()) {
        line("ticket ends", show::time(expires));
    }
    if let Some(monitor) = &record.monitor {
        line("monitor", monitor.clone());
    }
    text += &status.answer.as_ref().map(show_answer).unwrap_or_default();
    if status.denied {
        text += &deliver_again(record);
    }
    text
}

/// What to do with an upload that nobody who is relied on has.
fn deliver_again(record: &UploadRecord) -> String {
    let how = match record.is_resumable() {
        true => format!("To deliver it by another way, run `hoop resume {}`", record.id),
        false => "It cannot be resumed: push it again if the application does not have it".to_owned(),
    };
    format!("The service does not have all of it, and this device no longer relies on the gateway for it. {how}.\n")
}

fn record_document(record: &UploadRecord) -> Value {
    json!({
        "id": record.id, "name": record.name, "url": record.url, "bytes": record.bytes, "total": record.total,
        "created": record.created, "expires": record.expires, "gateway": record.gateway, "monitor": record.monitor,
        "state": record.state, "finished": record.finished, "resumable": record.is_resumable(),
    })
}

fn document(record: &UploadRecord, status: &Status) -> Value {
    let mut document = record_document(record);
    let more = json!({
        "state": status.state.name(), "received": status.received, "delivered": status.delivered,
        "stored_at": status.stored_at, "received_at": status.received_at, "finished_at": status.finished_at,
        "updated": status.updated, "proven": status.proven, "denied": status.denied, "attempts": status.attempts, "next_attempt": status.next_attempt,
        "reason": status.reason.as_ref().map(|reason| json!({"code": reason.code, "detail": reason.detail})),
        "answer": status.answer.as_ref().map(answer_document),
    });
    if let (Value::Object(document), Value::Object(more)) = (&mut document, more) {
        document.extend(more);
    }
    document
}
