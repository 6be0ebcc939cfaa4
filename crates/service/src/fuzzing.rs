//! Doors to this crate's parsers of foreign bytes, for `hoop-fuzz` alone: nothing here is part of the API.

pub use crate::api::guard::{hoop_version, own_form, own_page};
pub use crate::api::post::wait;
pub use crate::api::request::Representation;
pub use crate::model::content::Form;
pub use crate::model::note::NOTE_MAX;
pub use crate::model::{Credentials, Note, Offload, Settings};
pub use crate::policy::Policy;
pub use crate::policy::admit::{Admission, inspect, open_token};
pub use crate::policy::forwarded::Client;
pub use crate::policy::head::{FIELDS_MAX, RequestHead, is_method};
pub use crate::policy::paths::is_target;
pub use crate::policy::rules::{Outcome, Rule, Seen, judge, judge_head};
pub use crate::receive::message::range;
pub use crate::replay::http1_response::{Answer, AnswerError, BODY_KEPT, read_answer};

use crate::api::{tickets, uploads};
use hoop_http::Problem;
use hoop_seal::{Route, Suite, UploadKey};

/// What a request for tickets asks for: the route, the longest Z, the suite, and the device's own K.
///
/// # Errors
/// As the service answers.
pub fn ticket_request(policy: &Policy, body: &[u8]) -> Result<(Route, u64, Suite, Option<UploadKey>), Problem> {
    let wanted = tickets::TicketRequest::parse(body)?;
    let (route, limit, suite) = tickets::check(policy, &wanted)?;
    Ok((route, limit, suite, tickets::given_key(&wanted)?))
}

/// What an owner asks to be done with an upload, in JSON or as a form.
///
/// # Errors
/// As the service answers.
pub fn action(body: &[u8], form: bool) -> Result<String, Problem> {
    let wanted = if form { uploads::ActionRequest::of_form(body) } else { uploads::ActionRequest::of_json(body) };
    wanted.map(|wanted| format!("{:?}", wanted.action).to_lowercase())
}
