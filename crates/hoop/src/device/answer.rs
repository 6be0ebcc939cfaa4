//! The application's answer, and what can be done about it: [`show_answer`], [`answer_document`], [`way_out`].

use super::show;
use hoop_client::{Answer, State};
use hoop_units::{UploadId, plain};
use serde_json::{Value, json};

/// Characters of an answer that are shown; `--json` has all that is known.
const SHOWN: usize = 2000;

/// The answer, as lines.
pub fn show_answer(answer: &Answer) -> String {
    let field = |name: &str| answer.field(name).map(plain::line);
    let kind = field("content-type").map(|kind| format!(" {kind}")).unwrap_or_default();
    let location = field("location").map(|location| format!(" to {location}")).unwrap_or_default();
    // Set in, so that no line of it reads like one of ours.
    let body: String = show::beginning(&answer.body, SHOWN).lines().map(|line| format!("  {line}\n")).collect();
    format!("Its answer: {}{kind}{location}\n{body}", answer.status)
}

/// The application's answer; bytes that are no UTF-8 are replaced.
pub fn answer_document(answer: &Answer) -> Value {
    json!({
        "status": answer.status,
        "content_type": answer.field("content-type"),
        "location": answer.field("location"),
        "body": String::from_utf8_lossy(&answer.body),
    })
}

/// What can be done about it, as a line, or nothing.
pub fn way_out(state: State, id: UploadId) -> String {
    match state {
        State::Held => format!("Sign in, then run: hoop release {id} -b 'name=value'\n"),
        State::Rejected => {
            format!("The service keeps it for a week. To hand it over again: hoop release {id} -b 'name=value'\n")
        }
        State::Unknown => {
            format!(
                "Check whether it is there. If not, run within a week: hoop release {id} -b 'name=value' --even-twice\n"
            )
        }
        State::Announced | State::Receiving | State::Stored | State::Delivering | State::Received => String::new(),
        State::Accepted | State::Stopped | State::Expired | State::Refused => String::new(),
    }
}
