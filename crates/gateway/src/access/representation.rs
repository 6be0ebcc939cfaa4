//! In which representation an answer is wanted (RFC 9110 §12): [`Representation`].

use http::{HeaderMap, header};

/// What an answer is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Representation {
    Html,
    Json,
    /// A stream of events.
    Events,
}

impl Representation {
    /// The first that `Accept` names; HTML for those that name none.
    pub fn of(headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let named = accept.split(',').filter_map(|range| match range.split(';').next()?.trim() {
            "text/html" => Some(Self::Html),
            "application/json" => Some(Self::Json),
            "text/event-stream" => Some(Self::Events),
            _ => None,
        });
        named.into_iter().next().unwrap_or(Self::Html)
    }
}
