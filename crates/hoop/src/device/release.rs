//! `hoop release`: an upload that is held, rejected or unknown is handed to the application again.

use super::answer::{answer_document, show_answer, way_out};
use super::flags::ReleaseFlags;
use super::request;
use super::status::find;
use crate::base::exit::{Exit, Failure};
use hoop_client::{Client, ReleaseError, State, Status};
use hoop_http::Clock;
use hoop_units::UploadId;
use serde_json::json;
use std::time::{Duration, Instant};

/// Between questions to a service that does not wait before it answers: often at first, for those who wait for a small upload.
const POLL_MIN: Duration = Duration::from_millis(100);
const POLL_MAX: Duration = Duration::from_secs(2);

/// Runs it.
pub fn run(flags: ReleaseFlags, clock: Clock) -> Result<Exit, Failure> {
    let credentials = request::credentials(&flags.header, &flags.cookie, flags.user.as_deref())?;
    let client = request::client(request::client_config(&flags.network, clock))?;
    let id = find(&client, &flags.id)?;
    let runtime = super::runtime::light_runtime()?;
    let released = runtime.block_on(async {
        let status = client.release(id, &credentials, flags.even_twice).await?;
        Ok::<_, ReleaseError>(follow(&client, id, status, Instant::now() + flags.timeout.0).await)
    });
    runtime.shutdown_background();
    let status = released?;
    match flags.json {
        true => println!("{}", document(id, &status)),
        false => print!("{}", in_words(id, &status)),
    }
    Ok(if status.state.is_settled() { super::failure::exit_of(status.state) } else { Exit::TimedOut })
}

/// How it stands once the application has answered, or the time is over.
async fn follow(client: &Client, id: UploadId, mut status: Status, until: Instant) -> Status {
    let left = || until.saturating_duration_since(Instant::now());
    let mut pause = POLL_MIN;
    while !status.state.is_settled() && !left().is_zero() {
        match client.status_at_service(id, left()).await {
            Ok(now) => status = now,
            Err(_) => break,
        }
        if !status.state.is_settled() {
            tokio::time::sleep(pause.min(left())).await;
            pause = (pause * 3 / 2).min(POLL_MAX);
        }
    }
    status
}

fn in_words(id: UploadId, status: &Status) -> String {
    let reason = status.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let said = match status.state {
        State::Accepted => "The application has accepted it.".to_owned(),
        State::Rejected => format!("The application has rejected it{reason}."),
        State::Held => format!("The service still holds the upload{reason}."),
        State::Unknown => format!("The application received all of it, but its answer was lost{reason}."),
        state => format!("It is {state}{reason}."),
    };
    let answer = status.answer.as_ref().map(show_answer).unwrap_or_default();
    format!("{said}\n{}{answer}", way_out(status.state, id))
}

fn document(id: UploadId, status: &Status) -> serde_json::Value {
    json!({
        "id": id.to_hex(), "state": status.state.name(),
        "reason": status.reason.as_ref().map(|reason| json!({"code": reason.code, "detail": reason.detail})),
        "answer": status.answer.as_ref().map(answer_document),
    })
}
