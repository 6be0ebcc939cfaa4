//! An upload that waits for its owner, or has come to a bad end, is handed over again: [`Client::release`] (`docs/protocol.md` §7).

use crate::client::Client;
use crate::client::error::StatusError;
use crate::request::upload::Credentials;
use crate::wire::status::Status;
use crate::wire::{Link, LinkError, Refusal};
use hoop_http::{Origin, full};
use hoop_units::UploadId;
use http::{HeaderValue, Method, StatusCode, header};
use std::time::Duration;
use url::Url;

/// How long the service may take: it may ask the application who is signed in.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(20);

/// It was not handed over again.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// This device does not know it, or not well enough.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// The service cannot be reached.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The service says no.
    #[error("{0}")]
    Refused(Refusal),
    /// It answers what this version does not understand.
    #[error("the service answers what this version does not understand")]
    Unusable,
}

impl Client {
    /// Has the service hand an upload of this device to the application again, with these credentials. `twice`: also if the application may
    /// have it already, and would have it twice. Returns how it stands then, which is as it stood if there was nothing to release.
    ///
    /// # Errors
    /// If the service cannot be asked, or refuses.
    pub async fn release(&self, id: UploadId, credentials: &Credentials, twice: bool) -> Result<Status, ReleaseError> {
        let record = self.record(id)?;
        let key = record.key.key().ok_or(StatusError::NotOurs(id))?;
        let uploads = Url::parse(&record.uploads).map_err(|_| ReleaseError::Unusable)?;
        let origin = Origin::of(&uploads).map_err(|_| ReleaseError::Unusable)?;
        let mut link = Link::new(self.connector(), origin);
        let body = if twice { r#"{"action":"release","risk":"twice"}"# } else { r#"{"action":"release"}"# };
        let mut request = link.request(Method::POST, &format!("{}/{id}", uploads.path()), full(body));
        let headers = request.headers_mut();
        headers.insert("hoop-version", const { HeaderValue::from_static("1") });
        headers.insert(header::CONTENT_TYPE, const { HeaderValue::from_static("application/json") });
        headers.insert(header::CONTENT_LENGTH, body.len().into());
        // Without it the service asks whether the credentials are of the same user.
        if let Some(token) = record.token.as_ref().and_then(|token| HeaderValue::try_from(token.text()).ok()) {
            headers.insert("hoop-token", token);
        }
        let given = [(header::COOKIE, &credentials.cookie), (header::AUTHORIZATION, &credentials.authorization)];
        for (name, value) in given {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
        let answer = link.ask(request, RELEASE_TIMEOUT).await?;
        match answer.status() {
            StatusCode::OK => Status::read(answer.body(), id, &key).ok_or(ReleaseError::Unusable),
            _ => Err(ReleaseError::Refused(Refusal::of(&answer, self.config().clock.wall()))),
        }
    }
}
