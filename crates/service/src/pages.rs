//! Pages for people: the user's uploads and settings, as HTML.

use crate::core::Core;
use crate::listing::{self, Entry};
use crate::settings::Shown;
use hoop_http::{Body, Problem, json};
use http::{Response, StatusCode};

/// The page of a user's uploads, or of why they cannot be shown (`sign-in-required`, `upstream-unreachable`, …).
pub fn uploads(_core: &Core, listed: Result<Vec<Entry>, Problem>) -> Response<Body> {
    match listed {
        Ok(entries) => json(StatusCode::OK, &listing::document(&entries)),
        Err(problem) => problem.into_response(),
    }
}

/// The page of a user's settings, or of why they cannot be shown.
pub fn settings(_core: &Core, shown: Result<Shown, Problem>) -> Response<Body> {
    match shown {
        Ok(shown) => json(StatusCode::OK, &shown),
        Err(problem) => problem.into_response(),
    }
}
