//! Whoever can ask the service for another ticket of the same upload: [`Asker`].

use crate::request::upload::{Credentials, Upload};
use crate::wire::Link;
use hoop_seal::Suite;
use http::Method;

/// Whoever can ask the service for another ticket of the same upload.
pub(super) struct Asker {
    pub(super) service: Link,
    pub(super) method: Method,
    pub(super) target: Option<String>,
    pub(super) credentials: Credentials,
    pub(super) suite: Suite,
}

impl Asker {
    /// As the user who uploads.
    pub(super) fn of(upload: &Upload, service: Link, suite: Suite) -> Self {
        let (method, target) = (upload.method.clone(), Some(upload.target()));
        Self { service, method, target, credentials: upload.credentials.clone(), suite }
    }

    /// Without credentials, which are never kept. A service that has tickets for users only refuses.
    pub(super) fn of_kept(service: Link, suite: Suite) -> Self {
        Self { service, method: Method::POST, target: None, credentials: Credentials::default(), suite }
    }
}
