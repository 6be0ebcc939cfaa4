//! Who asks: [`Caller`] (`docs/protocol.md` §7, "Owners").
//!
//! Bounds: the application has [`ASK_TIMEOUT`] to say who asks, in at most [`ASK_MAX`] of JSON.

use crate::api::Api;
use crate::model::{Credentials, Tag};
use crate::policy::user::Ask;
use crate::policy::{Policy, owner};
use hoop_http::{Code, Lines, Problem, ReadError, read_limited};
use hoop_units::UnixTime;
use http::{HeaderMap, StatusCode};
use std::net::IpAddr;
use std::time::Duration;

/// How long the application may take to say who asks: a page waits for it.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest answer of the application: a user's profile, generously.
const ASK_MAX: usize = 64 * 1024;

/// Who asks.
pub struct Caller {
    /// The credentials of the request, with the user if one is known.
    pub credentials: Credentials,
    tags: Vec<Tag>,
    /// Whether the application says who its users are, and has not named this one.
    anonymous: bool,
}

impl Caller {
    /// Who sends these headers from this address: asks the application if the operator says how.
    ///
    /// # Errors
    /// `request-invalid` if the credentials are none, `upstream-unreachable` if the application cannot be asked.
    pub async fn of(api: &Api, headers: &HeaderMap, address: IpAddr) -> Result<Self, Problem> {
        Self::with(api, captured(api, headers, address)?).await
    }

    /// The same for credentials that were captured.
    ///
    /// # Errors
    /// `upstream-unreachable`.
    pub async fn with(api: &Api, mut credentials: Credentials) -> Result<Self, Problem> {
        let policy = &api.context.policy();
        let name = match &policy.routes.user.ask {
            Some(question) if !credentials.is_empty() => ask(api, question, &credentials).await?,
            _ => None,
        };
        let mut tags = name.map_or(Vec::new(), |name| owner::user_tags(policy, &name));
        credentials.user = tags.first().copied();
        let (cookie, authorization) = owner::telling(policy, &credentials);
        if !cookie.is_empty() || !authorization.is_empty() {
            // What was begun with these very credentials while the application could not say whose they are.
            tags.extend(owner::credential_tags(policy, &credentials));
        }
        let anonymous = owner::is_anonymous(policy, &credentials);
        Ok(Self { credentials, tags, anonymous })
    }

    /// The same, taking whom the application cannot be asked about for nobody that it knows.
    pub async fn or_nobody(api: &Api, credentials: Credentials) -> Self {
        let user = Self::with(api, credentials.clone()).await;
        user.unwrap_or_else(|_| Self::unnamed(&api.context.policy(), credentials))
    }

    /// Who fetches a ticket. That does not depend on the application: whoever it cannot be asked about is known by the credentials.
    ///
    /// # Errors
    /// `sign-in-required` for whoever is certainly not signed in, where tickets are for users only.
    pub async fn of_ticket(api: &Api, credentials: Credentials) -> Result<Self, Problem> {
        let policy = &api.context.policy();
        let Ok(caller) = Self::with(api, credentials.clone()).await else {
            return Ok(Self::unnamed(policy, credentials));
        };
        let rule = &policy.routes.user;
        let known = if rule.ask.is_some() { caller.credentials.user.is_some() } else { !caller.tags.is_empty() };
        if known || !rule.required { Ok(caller) } else { Err(signed_out()) }
    }

    /// Whoever has these credentials and no name.
    fn unnamed(policy: &Policy, credentials: Credentials) -> Self {
        let tags = owner::credential_tags(policy, &credentials);
        let nobody = tags.first().is_some_and(|tag| owner::is_nobody(policy, *tag));
        let anonymous = owner::is_anonymous(policy, &credentials);
        Self { tags: if nobody { Vec::new() } else { tags }, credentials, anonymous }
    }

    /// The tag that stands for whoever asks; none: nobody.
    pub fn tag(&self) -> Option<Tag> {
        self.tags.first().copied()
    }

    /// All tags by which the uploads of whoever asks are known.
    pub fn tags(&self) -> &[Tag] {
        &self.tags
    }

    /// The tags, if there is anybody.
    ///
    /// # Errors
    /// `sign-in-required`.
    pub fn signed_in(&self) -> Result<&[Tag], Problem> {
        match self.tags.is_empty() {
            true => Err(signed_out()),
            false => Ok(&self.tags),
        }
    }

    /// The tags, if whoever asks may take room that all users share: anybody can make cookies up, so that where the application says who
    /// its users are, only they may.
    ///
    /// # Errors
    /// `sign-in-required`.
    pub fn user(&self) -> Result<&[Tag], Problem> {
        if self.anonymous {
            return Err(anonymous());
        }
        self.signed_in()
    }

    /// Whether the application says who its users are, and has not named this one.
    pub const fn is_anonymous(&self) -> bool {
        self.anonymous
    }

    /// Whether the tag is one of whoever asks.
    pub fn is(&self, tag: Tag) -> bool {
        self.tags.contains(&tag)
    }
}

/// The credentials of a request.
///
/// # Errors
/// `request-invalid`.
pub fn captured(api: &Api, headers: &HeaderMap, address: IpAddr) -> Result<Credentials, Problem> {
    capture(headers, address, api.context.clock.unix())
}

/// The same, for a token that ends with its ticket.
///
/// # Errors
/// `request-invalid`.
pub fn capture(headers: &HeaderMap, address: IpAddr, expires: UnixTime) -> Result<Credentials, Problem> {
    Credentials::capture(headers, address, expires)
        .map_err(|error| Problem::new(Code::RequestInvalid, &error).field(error.field()))
}

/// Nobody asks.
pub fn signed_out() -> Problem {
    Problem::new(Code::SignInRequired, "neither `Cookie` nor `Authorization` says who asks")
}

/// Somebody asks whom the application does not know.
pub fn anonymous() -> Problem {
    Problem::new(Code::SignInRequired, "the application does not know who asks")
}

/// Asks the application whose credentials these are; none: nobody that it knows.
async fn ask(api: &Api, question: &Ask, credentials: &Credentials) -> Result<Option<String>, Problem> {
    let unreachable = |error: &dyn std::fmt::Display| {
        static TROUBLE: Lines = Lines::new();
        let more = || tracing::warn!("the application cannot be asked more often than is written down in this minute");
        if TROUBLE.have_room(std::time::Instant::now(), more) {
            tracing::warn!(%error, "the application could not be asked who is signed in");
        }
        Problem::new(Code::UpstreamUnreachable, "it could not be asked who is signed in")
    };
    let asking = async {
        let asked = api.application.get(&question.path, "application/json", credentials).await;
        let response = asked.map_err(|error| unreachable(&error))?;
        if response.status() != StatusCode::OK {
            return Ok(None);
        }
        match read_limited(response.into_body(), ASK_MAX).await {
            Ok(body) => Ok(question.identify(&body)),
            Err(ReadError::TooLong { .. }) => Ok(None),
            Err(error @ ReadError::Broken(_)) => Err(unreachable(&error)),
        }
    };
    let answer = tokio::time::timeout(ASK_TIMEOUT, asking).await;
    answer.unwrap_or_else(|_| Err(unreachable(&"no answer in 5 s")))
}
