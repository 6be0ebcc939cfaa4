//! Following an upload after it was handed over: [`Follower`] asks the gateway, and the service when that is out of reach.

use crate::client::Client;
use crate::client::error::StatusError;
use crate::outcome::{Event, OnEvent, WaitFor};
use crate::state::store::UploadRecord;
use crate::wire::status::{State, Status};
use crate::wire::{Link, LinkError};
use bytes::Bytes;
use hoop_http::{Code, Origin, Problem, empty, retry_after};
use hoop_seal::UploadKey;
use hoop_units::UploadId;
use http::{HeaderValue, Method, Response, StatusCode};
use std::time::Duration;
use tokio::time::Instant;
use url::Url;

/// Between questions to a gateway: often at first, for those who wait for a small upload.
const POLL_MIN: Duration = Duration::from_millis(100);
const POLL_MAX: Duration = Duration::from_secs(2);

/// How long the other end may think about a status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// A gateway that sends at certain hours is waited for until they come, once for each time that the service has got something: they come
/// every day.
const HOURS_MAX: Duration = Duration::from_secs(24 * 3600);

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
    /// Whether the service has said that it is so far.
    pub(crate) proven: bool,
    pub(crate) timed_out: bool,
    /// Why the gateway is not to be relied on, if so.
    pub(crate) doubt: Option<String>,
    /// Whether that is since the service has not got what the gateway answers for.
    pub(crate) denied: bool,
}

/// What one end says of an upload.
enum Word {
    Status(Box<Status>),
    /// That it has no such upload.
    Unknown,
    /// Nothing that says whether it has it, and why.
    Silence(String),
    /// There is none to ask.
    NotAsked,
}

impl Word {
    /// What a gateway's answer says. One that is overloaded or broken says nothing; who answers anything else has no such upload, whoever it is.
    fn of_gateway(answer: &Response<Bytes>, id: UploadId, key: &UploadKey) -> Self {
        match (Self::told(answer, id, key), answer.status()) {
            (Some(status), _) => status,
            (None, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) => Self::silence(answer),
            (None, status) if status.is_server_error() => Self::silence(answer),
            (None, _) => Self::Unknown,
        }
    }

    /// What a service's answer says. That it does not know the upload it says with the code for that alone: a 404 without it may be a proxy's, and
    /// a 503 says nothing at all.
    fn of_service(answer: &Response<Bytes>, id: UploadId, key: &UploadKey) -> Self {
        let denies = answer.status() == StatusCode::NOT_FOUND
            && Problem::from_json(answer.body()).is_some_and(|problem| problem.code == Code::UploadUnknown);
        match Self::told(answer, id, key) {
            Some(Self::Status(status)) => Self::Status(Box::new(Status { proven: true, ..*status })),
            Some(word) => word,
            None if denies => Self::Unknown,
            None => Self::silence(answer),
        }
    }

    fn told(answer: &Response<Bytes>, id: UploadId, key: &UploadKey) -> Option<Self> {
        let status = (answer.status() == StatusCode::OK).then(|| Status::read(answer.body(), id, key)).flatten();
        status.map(|status| Self::Status(Box::new(status)))
    }

    fn silence(answer: &Response<Bytes>) -> Self {
        Self::Silence(format!("it answered {} without a status of this upload", answer.status()))
    }
}

/// What both say.
struct Heard {
    gateway: Word,
    /// In how long the gateway goes on, if it says that it is not the time for it.
    wait: Option<Duration>,
    /// `None`: it was not asked.
    service: Option<Word>,
}

impl Heard {
    /// Whether the gateway has all of it, and waits for its hours.
    fn is_not_its_time(&self) -> bool {
        let whole =
            matches!(&self.gateway, Word::Status(status) if matches!(status.state, State::Stored | State::Delivering));
        whole && self.wait.is_some()
    }

    /// Whether the gateway is not to be relied on any longer: the service has not got all of it, and the gateway says that it has, has given
    /// up, or has forgotten it.
    fn is_denied(&self) -> bool {
        let lacking = match &self.service {
            Some(Word::Status(status)) => status.state <= State::Delivering,
            Some(Word::Unknown) => true,
            Some(Word::Silence(_) | Word::NotAsked) | None => false,
        };
        lacking
            && match &self.gateway {
                Word::Status(status) => status.is_claim(),
                Word::Unknown => true,
                Word::Silence(_) | Word::NotAsked => false,
            }
    }

    /// Whose word counts: the service's, if it knows the upload and says more of it than that it lacks something.
    fn settle(self) -> Result<Status, StatusError> {
        let denied = self.is_denied();
        let status = self.settled()?;
        Ok(Status { denied, ..status })
    }

    fn settled(self) -> Result<Status, StatusError> {
        match (self.service, self.gateway) {
            (Some(Word::Status(service)), Word::Status(gateway)) => {
                // Where it is with the gateway is news as well, as long as the service has not got it all.
                // What was sealed before a release is over.
                let is_lasting = !gateway.is_claim() && !gateway.state.may_be_released();
                let gateway_knows = service.state <= State::Receiving && is_lasting;
                Ok(if gateway_knows { *gateway } else { *service })
            }
            (Some(Word::Status(service)), _) => Ok(*service),
            (_, Word::Status(gateway)) => Ok(*gateway),
            (Some(Word::Silence(trouble)), _) | (_, Word::Silence(trouble)) => Err(StatusError::Unreachable(trouble)),
            (None, Word::NotAsked) => Err(StatusError::Unreachable("neither is known".to_owned())),
            (_, Word::Unknown | Word::NotAsked) => Err(StatusError::Unknown),
        }
    }
}

/// How the service gets on.
struct Progress {
    /// Bytes that it had.
    received: u64,
    /// Since when.
    since: Instant,
    /// Until when the gateway has said that it is not its time.
    shut: Option<Instant>,
}

impl Progress {
    /// Why the gateway is not to be relied on, by what was just heard. `due`: the service has had no more for too long.
    fn doubt(&mut self, heard: &Heard, due: bool, patience: Duration, now: Instant) -> Option<String> {
        let received = match heard.service.as_ref()? {
            Word::Status(status) if status.state > State::Delivering => return None,
            Word::Status(status) => status.received.unwrap_or(0),
            Word::Unknown => 0,
            // Nobody could send it anything now.
            Word::Silence(_) | Word::NotAsked => {
                (self.since, self.shut) = (now, None);
                return None;
            }
        };
        match &heard.gateway {
            Word::Status(status) if status.is_claim() => {
                return Some(format!(
                    "the gateway says {}, and the service that it has {received} bytes",
                    status.state
                ));
            }
            Word::Unknown => return Some("the gateway knows nothing of it any more".to_owned()),
            Word::Status(_) | Word::Silence(_) | Word::NotAsked => {}
        }
        if received > self.received {
            *self = Self { received, since: now, shut: None };
            return None;
        }
        if heard.is_not_its_time() {
            let shut = *self.shut.get_or_insert(now + heard.wait.unwrap_or_default().min(HOURS_MAX));
            if now < shut {
                self.since = now;
                return None;
            }
        }
        due.then(|| format!("the service has got no more of it for {} s", patience.as_secs()))
    }
}

impl Followed {
    /// Whether that is what was waited for, or nothing more will come. What is said of service and application counts when it is proven;
    /// that it has given up, a gateway says of itself.
    pub(crate) fn satisfies(&self, wait: WaitFor) -> bool {
        match wait {
            WaitFor::Stored => true,
            WaitFor::Received | WaitFor::Accepted if self.state.is_given_up() => true,
            WaitFor::Received => self.proven && (self.state.is_settled() || self.state == State::Received),
            // The status carries the answer: without it, it is still to be fetched.
            WaitFor::Accepted => self.proven && self.state.is_settled() && self.status.is_some(),
        }
    }

    /// Whether it is final, by the service's word.
    pub(crate) const fn is_proven_final(&self) -> bool {
        self.proven && self.state.is_final()
    }
}

impl Follower<'_> {
    /// Asks until the state is what `wait` asks for, or `timeout` is over, or the gateway is found out: it claims what the service
    /// denies, knows nothing any more, or the service has got nothing new for the client's `service_patience`. Without `doubting`
    /// that makes no difference.
    pub(crate) async fn until(
        &self,
        wait: WaitFor,
        deadline: Option<Instant>,
        state: State,
        mut gateway: Option<Link>,
        doubting: bool,
        on_event: &OnEvent,
    ) -> Followed {
        let mut followed =
            Followed { state, status: None, proven: false, timed_out: false, doubt: None, denied: false };
        let mut service = self.service_link();
        let mut progress = Progress { received: 0, since: Instant::now(), shut: None };
        let mut pause = POLL_MIN;
        loop {
            let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let patience = self.client.config().service_patience.saturating_sub(progress.since.elapsed());
            // Nobody who may have to act himself waits for the service's answer longer than that.
            let longest =
                if doubting { left().unwrap_or(Duration::MAX).min(patience) } else { left().unwrap_or(Duration::MAX) };
            let heard = self.hear(gateway.as_mut(), service.as_mut(), longest, patience.is_zero()).await;
            if doubting {
                let longest = self.client.config().service_patience;
                followed.doubt = progress.doubt(&heard, patience.is_zero(), longest, Instant::now());
            }
            followed.denied = heard.is_denied();
            if let Ok(status) = heard.settle() {
                let news = followed.status.as_ref() != Some(&status);
                (followed.state, followed.proven) = (status.believed(), status.proven);
                followed.status = Some(status.clone());
                if news {
                    on_event(Event::Status(Box::new(status)));
                }
            }
            if followed.doubt.is_some() || followed.satisfies(wait) {
                return followed;
            }
            let left = left();
            if left.is_some_and(|left| left.is_zero()) {
                followed.timed_out = true;
                return followed;
            }
            tokio::time::sleep(left.map_or(pause, |left| left.min(pause))).await;
            pause = (pause * 3 / 2).min(POLL_MAX);
        }
    }

    /// The status as it is now, and whether the gateway is not to be relied on any longer.
    pub(crate) async fn once(&self) -> (Result<Status, StatusError>, bool) {
        let gateway = self.record.gateway.as_ref().and_then(|origin| origin.parse().ok());
        let connector = self.client.connector().with_timeout(self.client.config().gateway_connect_timeout);
        let mut gateway = gateway.map(|origin| Link::new(connector, origin));
        let heard = self.hear(gateway.as_mut(), self.service_link().as_mut(), Duration::ZERO, false).await;
        let denied = heard.is_denied();
        (heard.settle(), denied)
    }

    /// What the service itself says, which may wait so long for something to become of it.
    pub(crate) async fn at_service(&self, wait: Duration) -> Result<Status, StatusError> {
        self.hear(None, self.service_link().as_mut(), wait, true).await.settle()
    }

    /// Asks the gateway; and the service, which is given so long to wait for a final state, if the gateway knows nothing, speaks for
    /// others without proof, shows what may have changed since it was sealed, or `both` are to be asked.
    async fn hear(&self, gateway: Option<&mut Link>, service: Option<&mut Link>, wait: Duration, both: bool) -> Heard {
        let mut heard = Heard { gateway: Word::NotAsked, wait: None, service: None };
        if let Some(gateway) = gateway {
            let answer = self.ask_at(gateway, &format!("/monitor?ID={}", self.id), None).await;
            heard.gateway = match answer {
                Ok(answer) => {
                    let word = Word::of_gateway(&answer, self.id, self.key);
                    let now = self.client.config().clock.wall();
                    heard.wait = matches!(word, Word::Status(_)).then(|| retry_after(answer.headers(), now)).flatten();
                    word
                }
                Err(error) => Word::Silence(error.to_string()),
            };
            let suffices = |status: &Status| !status.is_claim() && !status.state.may_be_released();
            if matches!(&heard.gateway, Word::Status(status) if suffices(status)) && !both {
                return heard;
            }
        }
        if let (Some(service), Ok(uploads)) = (service, Url::parse(&self.record.uploads)) {
            let claims = matches!(heard.gateway, Word::Status(_) | Word::Unknown);
            // Whoever checks what a gateway says wants to know now.
            let wait = Some(wait.as_secs().min(PREFER_WAIT_SECS)).filter(|secs| *secs > 0 && !claims);
            let answer = self.ask_at(service, &format!("{}/{}", uploads.path(), self.id), wait).await;
            heard.service = Some(match answer {
                Ok(answer) => Word::of_service(&answer, self.id, self.key),
                Err(error) => Word::Silence(error.to_string()),
            });
        }
        heard
    }

    /// The answer to a question for the status.
    async fn ask_at(&self, link: &mut Link, path: &str, wait_secs: Option<u64>) -> Result<Response<Bytes>, LinkError> {
        let mut request = link.request(Method::GET, path, empty());
        if let Some(secs) = wait_secs {
            let value = HeaderValue::try_from(format!("wait={secs}")).expect("a number is ASCII");
            request.headers_mut().insert("prefer", value);
        }
        link.ask(request, STATUS_TIMEOUT + Duration::from_secs(wait_secs.unwrap_or(0))).await
    }

    fn service_link(&self) -> Option<Link> {
        let uploads = Url::parse(&self.record.uploads).ok()?;
        Some(Link::new(self.client.connector(), Origin::of(&uploads).ok()?))
    }
}

impl Client {
    /// Asks the gateway, then the service, what has become of an upload of this device, and remembers it. Only the service's word makes it
    /// final; until then it can be gone on with, and a gateway that the service denies is passed over then.
    ///
    /// # Errors
    /// If it is none of this device's, or nobody tells.
    pub async fn status(&self, id: UploadId) -> Result<(UploadRecord, Status), StatusError> {
        let mut record = self.record(id)?;
        let key = record.key.key().ok_or(StatusError::NotOurs(id))?;
        let (status, denied) = Follower { client: self, id, key: &key, record: &record }.once().await;
        if denied {
            record.deny_gateway();
        }
        if let Ok(status) = &status {
            record.state = status.believed().name().to_owned();
            record.finished = status.is_proven_final();
        }
        if (status.is_ok() || denied)
            && let Err(error) = self.clone().save(record.clone()).await
        {
            tracing::debug!(%error, "cannot update the record of an upload");
        }
        status.map(|status| (record, status))
    }

    /// How an upload stands at the service, which may wait so long for something to become of it.
    ///
    /// # Errors
    /// If it cannot be asked, or does not know it.
    pub async fn status_at_service(&self, id: UploadId, wait: Duration) -> Result<Status, StatusError> {
        let record = self.record(id)?;
        let key = record.key.key().ok_or(StatusError::NotOurs(id))?;
        Follower { client: self, id, key: &key, record: &record }.at_service(wait).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClientConfig;
    use crate::state::store::SecretText;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(120);
    const HOUR: Duration = Duration::from_secs(3600);

    fn status_of(json: &str) -> Word {
        Word::Status(Box::new(Status::read(json.as_bytes(), UploadId([1; 16]), &UploadKey([2; 32])).unwrap()))
    }

    fn heard(gateway: &str, wait: Option<Duration>, received: u64) -> Heard {
        let service = status_of(&format!(r#"{{"state":"receiving","received":{received}}}"#));
        let gateway = if gateway.is_empty() {
            Word::Silence("gone".to_owned())
        } else {
            status_of(&format!(r#"{{"state":"{gateway}"}}"#))
        };
        Heard { gateway, wait, service: Some(service) }
    }

    /// After how long the gateway is not relied on any longer, if it says this each minute.
    fn doubted_after(tells: impl Fn(Duration) -> Heard) -> Duration {
        let begun = Instant::now();
        let mut progress = Progress { received: 0, since: begun, shut: None };
        let mut minutes = (1..6_000).map(|minute| Duration::from_secs(60 * minute));
        let doubted = minutes.find(|passed| {
            let now = begun + *passed;
            let due = now - progress.since >= PATIENCE;
            progress.doubt(&tells(*passed), due, PATIENCE, now).is_some()
        });
        doubted.expect("it is relied on for ever")
    }

    #[test]
    fn a_gateway_with_the_whole_upload_is_given_until_the_hour_it_names() {
        let night = |now: Duration| Some((8 * HOUR).saturating_sub(now)).filter(|left| !left.is_zero());
        let minute = Duration::from_secs(60);
        let end = 8 * HOUR - minute + PATIENCE;
        assert_eq!(doubted_after(|now| heard("stored", night(now), 0)), end);
        assert_eq!(doubted_after(|now| heard("delivering", night(now), 0)), end);
        let gone = |now: Duration| if now <= HOUR { heard("stored", night(now), 0) } else { heard("", None, 0) };
        assert_eq!(doubted_after(gone), HOUR + PATIENCE, "one that has gone");
        let ever = doubted_after(|_| heard("stored", Some(HOUR), 0));
        assert_eq!(ever, HOUR + PATIENCE, "one that puts it off for ever");
        let none = doubted_after(|_| heard("stored", Some(1000 * HOUR), 0));
        assert_eq!(none, HOURS_MAX + PATIENCE, "one that tells no hour of any day");
        for (state, wait) in [("receiving", Some(HOUR)), ("stored", None)] {
            assert_eq!(doubted_after(|_| heard(state, wait, 0)), PATIENCE, "{state}");
        }
    }

    #[test]
    fn the_gateway_says_where_an_upload_is_that_the_service_only_knows_of() {
        let announced = || status_of(r#"{"state":"announced","total":9}"#);
        let gateway = Heard { gateway: status_of(r#"{"state":"stored"}"#), wait: None, service: Some(announced()) };
        assert_eq!(gateway.settle().unwrap().state, State::Stored);
        let none = Heard { gateway: Word::Unknown, wait: None, service: Some(announced()) };
        assert_eq!(none.settle().unwrap().state, State::Announced);
    }

    #[test]
    fn an_upload_that_nobody_has_yet_is_unknown_rather_than_out_of_reach() {
        let sealed = |service| Heard { gateway: Word::NotAsked, wait: None, service };
        assert!(matches!(sealed(Some(Word::Unknown)).settle(), Err(StatusError::Unknown)));
        let silent = Some(Word::Silence("gone".to_owned()));
        assert!(matches!(sealed(silent).settle(), Err(StatusError::Unreachable(why)) if why == "gone"));
    }

    /// A server on loopback that gives every request this status document: where it is.
    fn telling(document: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let mut reader = BufReader::new(connection);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|len| len > 2) {
                    line.clear();
                }
                let head =
                    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", document.len());
                let _ = reader.get_mut().write_all(format!("{head}{document}").as_bytes());
            }
        });
        origin
    }

    /// A status document with the application's answer, sealed.
    fn sealed(state: State) -> String {
        let answer = format!("HTTP/1.1 422 Unprocessable\r\nHoop-State: {state}\r\n\r\nno");
        let sealed = hoop_seal::answer::seal(&UploadKey([2; 32]), UploadId([1; 16]), answer.as_bytes(), [3; 12]);
        format!(r#"{{"state":"{state}","answer":"{}"}}"#, URL_SAFE_NO_PAD.encode(sealed))
    }

    /// What both say now of an upload that was handed over to that gateway, for that service.
    async fn asked(gateway: &str, service: &str) -> Status {
        let (id, key) = (UploadId([1; 16]), UploadKey([2; 32]));
        let record = serde_json::json!({
            "id": id.to_hex(), "key": SecretText::of(&key), "url": service, "dest": service, "uploads": format!("{service}/hoop/uploads"),
            "gateway": gateway, "monitor": null, "name": "a.jpg", "bytes": 1, "total": 2, "created": 1, "expires": 2, "state": "stored",
            "finished": false,
        });
        let (record, client) = (serde_json::from_value(record).unwrap(), Client::new(ClientConfig::default()).unwrap());
        let follower = Follower { client: &client, id, key: &key, record: &record };
        follower.once().await.0.unwrap()
    }

    #[tokio::test]
    async fn a_sealed_answer_from_before_a_release_proves_nothing() {
        for old in [State::Rejected, State::Held, State::Unknown] {
            let gateway = telling(sealed(old));
            for now in [State::Accepted, State::Received, State::Receiving] {
                let status = asked(&gateway, &telling(format!(r#"{{"state":"{now}"}}"#))).await;
                assert_eq!((status.state, status.proven), (now, true), "{old} at the gateway");
            }
            let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let status = asked(&gateway, &format!("http://{away}")).await;
            assert_eq!((status.state, status.proven), (old, true), "the service is out of reach");
        }
    }

    fn answer(status: u16, body: &str) -> Response<Bytes> {
        let mut answer = Response::new(Bytes::from(body.to_owned()));
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        answer
    }

    fn problem(code: Code) -> String {
        String::from_utf8(Problem::new(code, "").to_json()).unwrap()
    }

    #[test]
    fn a_service_denies_an_upload_by_the_code_for_that_alone() {
        let (unknown, busy) = (problem(Code::UploadUnknown), problem(Code::Internal));
        let word = |status, body: &str| Word::of_service(&answer(status, body), UploadId([1; 16]), &UploadKey([2; 32]));
        assert!(matches!(word(404, &unknown), Word::Unknown));
        let silent = [
            (404, "<html>"),
            (404, "{}"),
            (404, &*problem(Code::NotFound)),
            (503, &unknown),
            (503, &busy),
            (503, ""),
            (502, "<html>"),
            (504, ""),
            (500, &busy),
            (429, ""),
            (403, ""),
            (302, ""),
            (200, "<html>"),
            (204, ""),
        ]
        .map(|(status, body)| (status, body.to_owned()));
        for (status, body) in silent {
            assert!(matches!(word(status, &body), Word::Silence(_)), "{status} {body}");
            let claim = status_of(r#"{"state":"accepted"}"#);
            let heard = Heard { gateway: claim, wait: None, service: Some(word(status, &body)) };
            assert!(!heard.is_denied(), "{status} {body}");
            let now = Instant::now();
            let mut progress = Progress { received: 0, since: now, shut: None };
            assert!(progress.doubt(&heard, true, PATIENCE, now + HOUR).is_none(), "{status} {body}");
            assert!(matches!(heard.settle(), Ok(status) if !status.proven && !status.denied), "{status} {body}");
        }
        assert!(matches!(word(200, r#"{"state":"received"}"#), Word::Status(status) if status.proven));
    }

    #[test]
    fn a_gateway_that_is_overloaded_has_not_forgotten_an_upload() {
        let word = |status, body| Word::of_gateway(&answer(status, body), UploadId([1; 16]), &UploadKey([2; 32]));
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(matches!(word(status, "{}"), Word::Silence(_)), "{status}");
        }
        for (status, body) in [(404, "{}"), (404, ""), (403, ""), (200, "<html>"), (301, "")] {
            assert!(matches!(word(status, body), Word::Unknown), "{status} {body}");
        }
        assert!(matches!(word(200, r#"{"state":"stored"}"#), Word::Status(status) if !status.proven));
    }
}
