//! Following an upload after it was handed over: [`Follower`] asks the gateway, and the service when that is out of reach.

use crate::client::Client;
use crate::outcome::{Event, OnEvent, WaitFor};
use crate::status::{State, Status};
use crate::store::UploadRecord;
use crate::wire::{Link, LinkError};
use hoop_http::{Origin, empty};
use hoop_seal::UploadKey;
use hoop_units::UploadId;
use http::{HeaderValue, Method, StatusCode};
use std::time::Duration;
use tokio::time::Instant;
use url::Url;

/// Between questions to a gateway: often at first, for those who wait for a small upload.
const POLL_MIN: Duration = Duration::from_millis(100);
const POLL_MAX: Duration = Duration::from_secs(2);

/// How long the other end may think about a status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the service is asked to wait for a final state before it answers (`Prefer: wait`, RFC 7240).
const PREFER_WAIT_SECS: u64 = 20;

/// One upload to follow.
pub(crate) struct Follower<'a> {
    pub(crate) client: &'a Client,
    pub(crate) id: UploadId,
    pub(crate) key: &'a UploadKey,
    pub(crate) record: &'a UploadRecord,
}

/// How far it was followed.
pub(crate) struct Followed {
    pub(crate) state: State,
    pub(crate) status: Option<Status>,
    pub(crate) timed_out: bool,
}

/// Nobody tells the status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// Neither gateway nor service can be reached.
    #[error("neither the gateway nor the service can be asked: {0}")]
    Unreachable(String),
    /// They do not know the upload.
    #[error("neither the gateway nor the service knows the upload")]
    Unknown,
    /// This device has no record of it.
    #[error("this device remembers no upload {0}")]
    NotOurs(UploadId),
}

impl Followed {
    /// Whether that is what was waited for, or nothing more will come. The application's word counts when it is proven.
    pub(crate) fn satisfies(&self, wait: WaitFor) -> bool {
        match wait {
            WaitFor::Stored => true,
            WaitFor::Received => self.state.is_settled() || self.state == State::Received,
            // The status carries the answer: without it, it is still to be fetched.
            WaitFor::Accepted => {
                self.state.is_settled() && self.status.as_ref().is_some_and(|status| !status.is_hearsay())
            }
        }
    }
}

impl Follower<'_> {
    /// Asks until the state is what `wait` asks for, or `timeout` is over.
    pub(crate) async fn until(
        &self,
        wait: WaitFor,
        timeout: Option<Duration>,
        state: State,
        mut gateway: Option<Link>,
        on_event: &OnEvent,
    ) -> Followed {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut followed = Followed { state, status: None, timed_out: false };
        let mut service = self.service_link();
        let mut pause = POLL_MIN;
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let asked = self.ask(gateway.as_mut(), service.as_mut(), Some(left.unwrap_or(Duration::MAX))).await;
            if let Ok(status) = asked {
                let news = followed.status.as_ref() != Some(&status);
                followed.state = status.state;
                followed.status = Some(status.clone());
                if news {
                    on_event(Event::Status(Box::new(status)));
                }
            }
            if followed.satisfies(wait) {
                return followed;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                followed.timed_out = true;
                return followed;
            }
            tokio::time::sleep(left.map_or(pause, |left| left.min(pause))).await;
            pause = (pause * 3 / 2).min(POLL_MAX);
        }
    }

    /// The status as it is now.
    pub(crate) async fn once(&self) -> Result<Status, StatusError> {
        let gateway = self.record.gateway.as_ref().and_then(|origin| origin.parse().ok());
        let connector = self.client.connector().with_timeout(self.client.config().gateway_connect_timeout);
        let mut gateway = gateway.map(|origin| Link::new(connector, origin));
        self.ask(gateway.as_mut(), self.service_link().as_mut(), None).await
    }

    /// Asks the gateway, and if that knows nothing or cannot prove what it says, the service, which is given so long to wait for a
    /// final state.
    async fn ask(
        &self,
        gateway: Option<&mut Link>,
        service: Option<&mut Link>,
        wait: Option<Duration>,
    ) -> Result<Status, StatusError> {
        let (mut trouble, mut hearsay) = (None, None);
        if let Some(gateway) = gateway {
            match self.ask_at(gateway, &format!("/monitor?ID={}", self.id), None).await {
                Ok(Some(status)) if status.is_hearsay() => hearsay = Some(status),
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                Err(error) => trouble = Some(error),
            }
        }
        if let (Some(service), Ok(uploads)) = (service, Url::parse(&self.record.uploads)) {
            let wait = wait.map(|wait| wait.as_secs().min(PREFER_WAIT_SECS)).filter(|secs| *secs > 0);
            match self.ask_at(service, &format!("{}/{}", uploads.path(), self.id), wait).await {
                Ok(Some(status)) => return Ok(Status { proven: true, ..status }),
                Ok(None) => {}
                Err(error) => trouble = Some(error),
            }
        }
        if let Some(hearsay) = hearsay {
            return Ok(hearsay);
        }
        Err(trouble.map_or(StatusError::Unknown, |error| StatusError::Unreachable(error.to_string())))
    }

    async fn ask_at(&self, link: &mut Link, path: &str, wait_secs: Option<u64>) -> Result<Option<Status>, LinkError> {
        let mut request = link.request(Method::GET, path, empty());
        if let Some(secs) = wait_secs {
            let value = HeaderValue::try_from(format!("wait={secs}")).expect("a number is ASCII");
            request.headers_mut().insert("prefer", value);
        }
        let answer = link.ask(request, STATUS_TIMEOUT + Duration::from_secs(wait_secs.unwrap_or(0))).await?;
        Ok((answer.status() == StatusCode::OK).then(|| Status::read(answer.body(), self.id, self.key)).flatten())
    }

    fn service_link(&self) -> Option<Link> {
        let uploads = Url::parse(&self.record.uploads).ok()?;
        Some(Link::new(self.client.connector(), Origin::of(&uploads).ok()?))
    }
}
