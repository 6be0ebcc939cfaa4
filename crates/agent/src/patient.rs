//! Uploads that can wait for a slow uplink, since the user says so: they are sealed, and left with the gateway of this network ([`Patient`]).
//!
//! The program's body goes into a file first. The program gets its answer when a gateway, or the service itself, has all of the upload. The relay has no part in it.

use crate::entrusted::EntrustedHost;
use crate::guests::user_max;
use crate::local::text;
use crate::patient_report::{ListedUpload, PatientListing, PatientStage};
use crate::shares::{Share, Shares};
use bytes::Bytes;
use hoop_client::{
    Client, ClientConfig, Content, Credentials, Event, Outcome, Payload, PushError, PushOptions, TicketsError, Upload,
};
use hoop_files::{FolderError, Lock, space};
use hoop_http::tls::TlsError;
use hoop_http::{Body, BodyError, LeastRate, PacedBody, end_hop, full};
use hoop_units::{UnixTime, plain};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST, HeaderMap, HeaderName};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use url::{Origin, Url};

/// Uploads to one origin that are sealed and sent at once. More wait: a gateway takes them one after the other as fast.
const TOGETHER_MAX: usize = 8;

/// Uploads to one origin whose bodies come, or wait. More are refused: programs that have left could otherwise fill the disk, and take all descriptors.
const KEPT_MAX: usize = 64;

/// The least that comes of a body while more of it is waited for: as much as a service asks for by default (`--body-timeout`).
const PACE: LeastRate = LeastRate { bytes: 64 << 10, within: Duration::from_secs(60) };

/// The threads that keep uploads and hand them over: they seal, and wait for the disk.
const THREADS: usize = 2;

/// What the file system keeps free: as much as a relay's.
const RESERVE_BYTES: u64 = 256 << 20;

/// How much of a body is written before the file system's room is looked at again.
const LOOK_EVERY: u64 = 1 << 20;

/// What follows from the URL, the body or this hop, or is said elsewhere.
const LEFT_OUT: [HeaderName; 6] =
    [HOST, CONTENT_LENGTH, EXPECT, AUTHORIZATION, COOKIE, HeaderName::from_static("hoop-token")];

/// The uploads to a URL, and to all below it: `https://photos.example/api` is also `https://photos.example/api/upload`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PatientUrl(Url);

/// It is no URL whose uploads could be patient.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a URL such as https://photos.example/upload: http or https, without user, query or fragment")]
pub struct NoUrl;

impl PatientUrl {
    fn covers(&self, url: &Url) -> bool {
        let below = url.path().strip_prefix(self.0.path().trim_end_matches('/'));
        self.0.origin() == url.origin() && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// What to tell of it where the agent sees no tunnels but those to these hosts. None: it sees its uploads.
    pub(crate) fn is_passed_by(&self, seen: &[EntrustedHost]) -> Option<String> {
        let (host, port) = (self.0.host_str()?, self.0.port_or_known_default()?);
        let is_seen = self.0.scheme() == "http" || seen.iter().any(|seen| seen.covers(host, port));
        let trusted = if port == 443 { host.to_owned() } else { format!("{host}:{port}") };
        // Not every host may have an authority.
        let advice = trusted.parse::<EntrustedHost>().map_or(String::new(), |_| {
            format!(": make an authority for it (hoop agent trust {trusted}), and name it with --authority")
        });
        (!is_seen).then(|| {
            format!(
                "uploads to {} are patient only where a program names that URL to the agent; curl and browsers make a tunnel, which the agent does not see{advice}",
                self.0
            )
        })
    }
}

impl FromStr for PatientUrl {
    type Err = NoUrl;

    fn from_str(text: &str) -> Result<Self, NoUrl> {
        let url = Url::parse(text).map_err(|_| NoUrl)?;
        let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        let is_web = matches!(url.scheme(), "https" | "http") && url.has_host() && url.password().is_none();
        if is_plain && is_web { Ok(Self(url)) } else { Err(NoUrl) }
    }
}

/// Whose uploads are patient, and how they are handed over.
#[derive(Clone, Debug)]
pub struct PatientConfig {
    /// Where they go.
    pub urls: Vec<PatientUrl>,
    /// Whom to trust, where the gateway is, and the folder for what is under way, in which the bodies are, too.
    pub client: ClientConfig,
    /// Whether a gateway is relied on that shows no key, or another than is known here ([`PushOptions::trust_new_gateway`]). Otherwise programs wait until the service has the upload.
    pub trust_new_gateway: bool,
}

/// Patient uploads cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum PatientError {
    /// The certificates to trust.
    #[error("cannot use the certificates to trust: {0}")]
    Tls(#[from] TlsError),
    /// There is no folder for the bodies.
    #[error("cannot use the folder for patient uploads: {0}")]
    Folder(#[source] FolderError),
    /// There are no threads for them.
    #[error("cannot start the threads for patient uploads: {0}")]
    Threads(#[source] io::Error),
    /// There is no folder for state.
    #[error("there is no folder for patient uploads: neither HOME nor XDG_STATE_HOME is set")]
    NoFolder,
}

/// Takes patient uploads.
pub(crate) struct Patient {
    urls: Vec<PatientUrl>,
    client: Client,
    trust_new_gateway: bool,
    folder: PathBuf,
    /// Those of each origin, so that one that does not answer keeps nobody waiting for another.
    origins: HashMap<Origin, Places>,
    listing: Arc<PatientListing>,
    pace: LeastRate,
    /// Where they are kept and handed over: a device's state is on its disk, which may be slow, and no connection waits for that, nor for a thread that does.
    runtime: Option<Runtime>,
}

impl Drop for Patient {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// How many uploads an origin may have.
#[derive(Clone)]
struct Places {
    kept: Arc<Semaphore>,
    /// Of those, what each user has whose agent this is not.
    of_guests: Arc<Shares<u32>>,
    sent: Arc<Semaphore>,
}

/// One of the uploads that an origin may have. It goes with this.
type KeptPlace = (OwnedSemaphorePermit, Option<Share<u32>>);

impl Places {
    fn new() -> Self {
        let [kept, sent] = [KEPT_MAX, TOGETHER_MAX].map(|most| Arc::new(Semaphore::new(most)));
        Self { kept, of_guests: Shares::new(user_max(KEPT_MAX)), sent }
    }

    /// A place for one more, of this guest's share if it is a guest's.
    fn take(&self, guest: Option<u32>) -> Option<KeptPlace> {
        let place = self.kept.clone().try_acquire_owned().ok()?;
        match guest.map(|guest| self.of_guests.take(guest)) {
            Some(None) => None,
            share => Some((place, share.flatten())),
        }
    }
}

impl fmt::Debug for Patient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patient").field("urls", &self.urls).finish_non_exhaustive()
    }
}

/// Why an upload is not handed over.
enum NotTaken {
    /// The program's body broke off.
    Broken,
    /// The program's body did not come, or came more slowly than this.
    Slow(LeastRate),
    /// The origin has too many.
    TooMany,
    /// The disk is full.
    NoRoom,
    /// The body cannot be kept.
    Disk(io::Error),
    /// Neither a gateway nor the service has it.
    Push(PushError),
    /// A defect.
    Internal,
}

impl Patient {
    /// Begins anew: what an agent left that was killed is removed.
    pub(crate) fn open(config: &PatientConfig, listing: Arc<PatientListing>) -> Result<Self, PatientError> {
        let state = config.client.state_dir.as_ref().ok_or(PatientError::NoFolder)?;
        let folder = state.join("patient");
        // It has keys.
        [state, &folder]
            .into_iter()
            .try_for_each(|path| hoop_files::folder(path).map(drop))
            .map_err(PatientError::Folder)?;
        for entry in std::fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok) {
            // Another agent's are locked.
            if let Ok(_lock) = Lock::take(&entry.path().join(LOCK)) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let client = Client::new(config.client.clone())?;
        let (urls, trust_new_gateway) = (config.urls.clone(), config.trust_new_gateway);
        let origins = urls.iter().map(|PatientUrl(url)| (url.origin(), Places::new())).collect();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(THREADS).thread_name("patient").enable_all().build();
        let runtime = Some(runtime.map_err(PatientError::Threads)?);
        Ok(Self { urls, client, trust_new_gateway, folder, origins, listing, pace: PACE, runtime })
    }

    /// Where a request goes, if it is a patient upload.
    pub(crate) fn url(&self, method: &Method, uri: &Uri) -> Option<Url> {
        let url = Url::parse(&uri.to_string()).ok()?;
        let is_upload = [Method::POST, Method::PUT, Method::PATCH].contains(method);
        (is_upload && self.urls.iter().any(|patient| patient.covers(&url))).then_some(url)
    }

    /// Keeps the body, and hands it over. If the program leaves once its body is whole, the upload goes on. `guest`: the program's user, unless it is the agent's own.
    pub(crate) async fn hand_over<B>(
        self: &Arc<Self>,
        request: Request<B>,
        url: Url,
        deadline: Option<UnixTime>,
        guest: Option<u32>,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Send + Unpin + 'static,
    {
        let places = self.origins.get(&url.origin()).cloned().unwrap_or_else(Places::new);
        let Some(kept_place) = places.take(guest) else { return refused(&url, &NotTaken::TooMany) };
        let Some(runtime) = &self.runtime else { return refused(&url, &NotTaken::Internal) };
        let (kept, listed) = match self.keep(runtime.handle(), &url, request).await {
            Ok(kept) => kept,
            Err(why) => return refused(&url, &why),
        };
        let (patient, to) = (self.clone(), url.clone());
        let handing = runtime.spawn(async move {
            listed.is(PatientStage::Waiting);
            let place = places.sent.acquire_owned().await;
            listed.is(PatientStage::Sending { sent: 0, total: 0 });
            let now = patient.client.config().clock.unix();
            let deadline = deadline.map(|deadline| Duration::from_secs(deadline.0.saturating_sub(now.0).into()));
            let trust_new_gateway = patient.trust_new_gateway;
            let options = PushOptions { deadline, sealed_only: true, trust_new_gateway, ..PushOptions::default() };
            let upload = kept.upload(to);
            // What is stored is only followed, which may take hours.
            let place = Mutex::new(Some(place));
            let on_event = move |event| match event {
                Event::Stored { .. } => {
                    drop(place.lock().take());
                    listed.is(PatientStage::Stored);
                }
                Event::Progress { sent, total } => listed.is(PatientStage::Sending { sent, total }),
                Event::Broken { reason } => listed.waits_since(reason),
                Event::Way { way, because: Some(why) } => {
                    tracing::warn!(way = way.name(), "a patient upload goes by this way: {}", plain::line(&why));
                }
                Event::Identity { origin, identity, trusted: false } if !identity.is_relied_on() => {
                    tracing::warn!(gateway = %origin, "this gateway has not shown who it is, so a patient upload waits until the service has it");
                }
                event => tracing::debug!(?event),
            };
            let pushed = patient.client.push(&upload, &options, Arc::new(on_event)).await;
            kept.remove().await;
            drop(kept_place);
            pushed
        });
        match handing.await {
            Ok(Ok(outcome)) => {
                let id = outcome.id.map(|id| id.to_hex());
                tracing::info!(id, state = outcome.state.name(), "a patient upload is handed over");
                receipt(&outcome)
            }
            Ok(Err(error)) => refused(&url, &NotTaken::Push(error)),
            Err(_) => refused(&url, &NotTaken::Internal),
        }
    }

    /// Keeps a body, on threads of these uploads alone. Dropped, as when the program has left, it keeps nothing.
    async fn keep<B>(&self, runtime: &Handle, url: &Url, request: Request<B>) -> Result<(Kept, ListedUpload), NotTaken>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Send + Unpin + 'static,
    {
        let (among, name, pace, listed) = (self.folder.clone(), name(url), self.pace, self.listing.add(url));
        let mut keeping = JoinSet::new();
        let kept = async move { Kept::body(&among, name, request, pace, &listed).await.map(|kept| (kept, listed)) };
        keeping.spawn_on(kept, runtime);
        keeping.join_next().await.and_then(Result::ok).unwrap_or(Err(NotTaken::Internal))
    }
}

/// The name of the file that is locked as long as a folder is in use.
const LOCK: &str = "lock";

/// A body in a folder of its own, and the head that came with it. The folder goes with this.
struct Kept {
    method: Method,
    headers: HeaderMap,
    file: PathBuf,
    folder: KeptFolder,
}

/// The folder of a body. It goes with this, with all that is in it.
struct KeptFolder {
    folder: Option<(PathBuf, Lock)>,
    /// That of these uploads, wherever this is dropped.
    runtime: Handle,
}

impl KeptFolder {
    /// Removes it, which may take as long as the disk takes. What is left when the agent ends goes with the next.
    fn remove(&mut self) -> Option<JoinHandle<()>> {
        let (folder, lock) = self.folder.take()?;
        Some(self.runtime.spawn_blocking(move || {
            let _ = std::fs::remove_dir_all(folder);
            drop(lock);
        }))
    }
}

impl Kept {
    /// Writes a request's body down, as long as it comes at that pace.
    async fn body<B>(
        among: &Path,
        name: String,
        request: Request<B>,
        pace: LeastRate,
        listed: &ListedUpload,
    ) -> Result<Self, NotTaken>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
    {
        let announced = request.body().size_hint().lower();
        let (parts, body) = request.into_parts();
        let mut body = PacedBody::new(body, pace, None);
        let late = body.late();
        let (parent, runtime) = (among.to_owned(), Handle::current());
        let (kept, file) = on_disk(move || {
            has_room(&parent, announced)?;
            let folder = parent.join(hex(hoop_http::Rng.bytes::<8>()));
            std::fs::create_dir(&folder).map_err(NotTaken::Disk)?;
            let lock = Lock::take(&folder.join(LOCK)).map_err(|error| {
                let _ = std::fs::remove_dir_all(&folder);
                NotTaken::Disk(io::Error::other(error))
            })?;
            let file = folder.join(name);
            let folder = KeptFolder { folder: Some((folder, lock)), runtime };
            let kept = Self { method: parts.method, headers: parts.headers, file, folder };
            let file = hoop_files::create(&kept.file).map_err(NotTaken::Disk)?;
            Ok((kept, file))
        })
        .await?;
        let mut file = File::from_std(file);
        let mut unlooked = 0;
        while let Some(frame) = body.frame().await {
            let broken = |_| if late.is_late() { NotTaken::Slow(pace) } else { NotTaken::Broken };
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            unlooked += data.len() as u64;
            if unlooked >= LOOK_EVERY {
                let parent = among.to_owned();
                on_disk(move || has_room(&parent, 0)).await?;
                unlooked = 0;
            }
            file.write_all(&data).await.map_err(NotTaken::Disk)?;
            listed.comes(data.len() as u64);
        }
        file.flush().await.map_err(NotTaken::Disk)?;
        Ok(kept)
    }

    /// Returns once nothing is left of it.
    async fn remove(mut self) {
        if let Some(removed) = self.folder.remove() {
            let _ = removed.await;
        }
    }

    /// The request as it is sealed. What proves who asks goes to the service alone.
    fn upload(&self, url: Url) -> Upload {
        let mut headers = self.headers.clone();
        end_hop(&mut headers);
        let credentials = Credentials { authorization: headers.remove(AUTHORIZATION), cookie: headers.remove(COOKIE) };
        LEFT_OUT.iter().for_each(|name| drop(headers.remove(name)));
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let payload = Payload::Data { content: vec![Content::File(self.file.clone())], content_type: None };
        Upload { url, method: self.method.clone(), headers, credentials, payload }
    }
}

impl Drop for KeptFolder {
    fn drop(&mut self) {
        drop(self.remove());
    }
}

/// Runs what waits for the disk on a thread that may wait.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NotTaken> + Send + 'static,
) -> Result<T, NotTaken> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(NotTaken::Internal))
}

/// What an upload is called in the user's list: the last part of its path.
fn name(url: &Url) -> String {
    let last = url.path().rsplit('/').find(|part| !part.is_empty()).unwrap_or("upload");
    let name: String =
        last.chars().filter(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(*letter)).take(64).collect();
    // Not `.`, nor `..`, nor the lock's.
    if name.trim_matches('.').is_empty() || name == LOCK { "upload".to_owned() } else { name }
}

fn hex(bytes: [u8; 8]) -> String {
    format!("{:016x}", u64::from_be_bytes(bytes))
}

/// Whether the disk, the user's quota or the limit of a file's size is reached.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

fn has_room(folder: &Path, more: u64) -> Result<(), NotTaken> {
    let left = space(folder).map_err(NotTaken::Disk)?;
    if left.bytes >= RESERVE_BYTES.saturating_add(more) { Ok(()) } else { Err(NotTaken::NoRoom) }
}

/// What a program is told of an upload that is in good hands: where, and under which number it can be followed. Otherwise why not.
fn receipt(outcome: &Outcome) -> Response<Body> {
    let is_safe = outcome.may_leave && !outcome.state.is_given_up();
    let document = json!({
        "id": outcome.id.map(|id| id.to_hex()),
        "state": outcome.state.name(),
        "via": outcome.way.name(),
        "gateway": outcome.way.gateway().map(ToString::to_string),
        "monitor": outcome.monitor,
        "bytes": outcome.bytes,
        "reason": outcome.reason.as_ref().map(|reason| json!({"code": reason.code, "detail": reason.detail})),
    });
    let mut response = Response::new(full(Bytes::from(format!("{document}\n"))));
    *response.status_mut() = if is_safe { StatusCode::ACCEPTED } else { StatusCode::BAD_GATEWAY };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(url: &Url, why: &NotTaken) -> Response<Body> {
    let (status, words) = match why {
        NotTaken::Broken => (StatusCode::BAD_REQUEST, "the request's body broke off".to_owned()),
        NotTaken::Slow(LeastRate { bytes, within }) => (
            StatusCode::REQUEST_TIMEOUT,
            format!("less than {} KiB of the request's body came in {} s", bytes >> 10, within.as_secs()),
        ),
        NotTaken::TooMany => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "as many others to the same service are under way as may be: {KEPT_MAX}, and {} of a user of --serve-user",
                user_max(KEPT_MAX)
            ),
        ),
        NotTaken::NoRoom => (StatusCode::INSUFFICIENT_STORAGE, "this machine's disk has no room for it".to_owned()),
        NotTaken::Disk(error) if is_full(error) => {
            (StatusCode::INSUFFICIENT_STORAGE, format!("this machine has no room for it: {error}"))
        }
        NotTaken::Disk(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot keep its body: {error}")),
        NotTaken::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "a defect of `hoop agent`".to_owned()),
        NotTaken::Push(error) => (
            match error {
                PushError::Tickets(TicketsError::NoHoop(_)) => StatusCode::NOT_IMPLEMENTED,
                PushError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
                PushError::NotNow(_) => StatusCode::SERVICE_UNAVAILABLE,
                PushError::Unreachable(_) | PushError::Tickets(TicketsError::Link(_)) => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::BAD_GATEWAY,
            },
            error.to_string(),
        ),
    };
    let (origin, words) = (url.origin().ascii_serialization(), plain::line(&words));
    tracing::warn!(origin, status = status.as_u16(), "a patient upload is not handed over: {words}");
    text(status, &format!("hoop agent: the upload to {origin}{} was not handed over: {words}\n", url.path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Frame;
    use http_body_util::Full;
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::{Context, Poll};
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    const URL: &str = "http://127.0.0.1:9/up";

    /// A patient agent for uploads there, and its folder.
    fn patient(pace: LeastRate) -> (Arc<Patient>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let client = ClientConfig { state_dir: Some(folder.path().into()), ..ClientConfig::default() };
        let config = PatientConfig { urls: vec![URL.parse().unwrap()], client, trust_new_gateway: false };
        let mut patient = Patient::open(&config, Arc::default()).unwrap();
        patient.pace = pace;
        (Arc::new(patient), folder)
    }

    /// A body of which nothing comes.
    struct Silent;

    impl http_body::Body for Silent {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_is_refused_and_frees_its_place() {
        let (patient, _folder) = patient(LeastRate { within: Duration::ZERO, ..PACE });
        let url: Url = URL.parse().unwrap();
        let handing = patient.hand_over(Request::new(Silent), url.clone(), None, None);
        let answer = timeout(Duration::from_secs(20), handing).await.expect("it is not waited for");
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(patient.origins[&url.origin()].kept.available_permits(), KEPT_MAX);
        assert!(patient.listing.reports().is_empty());
    }

    #[test]
    fn a_guest_leaves_an_eighth_of_a_services_uploads_to_the_others() {
        let places = Places::new();
        let mut kept: Vec<_> = (0..KEPT_MAX).filter_map(|_| places.take(Some(1_000))).collect();
        assert_eq!(kept.len(), 56);
        kept.extend((0..KEPT_MAX).filter_map(|_| places.take(None)));
        assert_eq!(kept.len(), KEPT_MAX);
        drop(kept.remove(0));
        assert!(places.take(Some(1_000)).is_some());
    }

    #[test]
    fn a_body_is_kept_while_all_other_threads_wait_for_the_disk() {
        let others = Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        others.block_on(async {
            let (_disk, waits) = mpsc::channel::<()>();
            tokio::task::spawn_blocking(move || waits.recv());
            let (patient, _folder) = patient(PACE);
            let (url, runtime) = (URL.parse().unwrap(), patient.runtime.as_ref().unwrap().handle());
            let request = Request::new(Full::new(Bytes::from_static(b"hello")));
            let keeping = timeout(Duration::from_secs(20), patient.keep(runtime, &url, request));
            let Ok((kept, _listed)) = keeping.await.expect("it needs none of them") else { panic!("it is kept") };
            assert_eq!(std::fs::read(&kept.file).unwrap(), b"hello");
            let folder = kept.file.parent().unwrap().to_owned();
            timeout(Duration::from_secs(20), kept.remove()).await.expect("nor does its end");
            assert!(!folder.exists());
        });
    }

    #[test]
    fn what_tunnels_would_pass_by_is_told_with_what_to_do() {
        let told = |url: &str, seen: &[&str]| {
            let seen: Vec<EntrustedHost> = seen.iter().map(|host| host.parse().unwrap()).collect();
            url.parse::<PatientUrl>().unwrap().is_passed_by(&seen)
        };
        let words = told("https://photos.example/api", &["docs.example", "photos.example:8443"]).unwrap();
        assert!(words.contains("https://photos.example/api") && words.contains("hoop agent trust photos.example"));
        let words = told("https://photos.example:8443/", &["photos.example"]).unwrap();
        assert!(words.contains("hoop agent trust photos.example:8443)"), "{words}");
        assert!(!told("https://192.0.2.7/", &[]).unwrap().contains("hoop agent trust"));
        assert_eq!(told("https://www.photos.example/api", &["photos.example"]), None);
        assert_eq!(told("http://photos.lan/api", &[]), None);
    }

    #[test]
    fn a_url_covers_what_is_below_it_at_the_same_origin() {
        let patient: PatientUrl = "https://photos.example/api".parse().unwrap();
        let covers = |url: &str| patient.covers(&url.parse().unwrap());
        for url in
            ["https://photos.example/api", "https://photos.example:443/api/", "https://PHOTOS.example/api/up?j=1"]
        {
            assert!(covers(url), "{url}");
        }
        for url in [
            "https://photos.example/apis",
            "https://photos.example/",
            "http://photos.example/api",
            "https://photos.example:8443/api",
            "https://www.photos.example/api",
        ] {
            assert!(!covers(url), "{url}");
        }
        let all: PatientUrl = "https://photos.example".parse().unwrap();
        assert!(all.covers(&"https://photos.example/any".parse().unwrap()));
        for wrong in
            ["photos.example", "ftp://photos.example/", "https://photos.example/?a=b", "https://a:b@photos.example/"]
        {
            assert_eq!(wrong.parse::<PatientUrl>(), Err(NoUrl), "{wrong}");
        }
    }

    #[test]
    fn an_upload_is_called_as_its_path_ends() {
        for (url, called) in [
            ("https://photos.example/dav/a.jpg", "a.jpg"),
            ("https://photos.example/", "upload"),
            ("https://photos.example/%2e%2e/lock", "upload"),
            ("https://photos.example/a/..%2f", "2f"),
        ] {
            assert_eq!(name(&url.parse().unwrap()).trim_start_matches('.'), called, "{url}");
        }
    }
}
