//! One download, from as many answers as it takes: [`download`].

use super::digest::Expected;
use super::fields::Fields;
use super::part::Part;
use super::source::{Answer, NoAnswer, Source};
use crate::base::exit::{Exit, Failure};
use crate::base::values::bytes;
use hoop_http::Rng;
use hoop_relay::continuation::Version;
use hoop_units::{Backoff, plain};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, LOCATION, RANGE, RETRY_AFTER, USER_AGENT,
};
use http::{HeaderValue, Request, StatusCode, request};
use http_body_util::BodyExt as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

/// A chain of more redirects has no end.
const REDIRECTS_MAX: usize = 10;

/// When it is tried again.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(30) };

/// A server that asks for more patience is not waited for longer than this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// Where no try has brought anything, so long it is tried.
const FIRST_MAX: Duration = Duration::from_secs(60);

/// So often what had come may turn out to be of no use.
const ANEW_MAX: u32 = 5;

/// What is to be downloaded.
#[derive(Clone, Debug)]
pub struct Job {
    pub url: Url,
    pub target: PathBuf,
    /// What its server is told besides.
    pub fields: Fields,
    /// What the file must be.
    pub expected: Option<Expected>,
    /// A file that is there is the beginning.
    pub continues: bool,
    /// It takes the place of one that is there.
    pub replaces: bool,
    /// The whole file's mode.
    pub mode: u32,
}

/// Shows how far it is.
pub trait Show {
    /// So many bytes are there, of so many.
    fn progress(&self, have: u64, length: Option<u64>);
    /// Something that is worth a line.
    fn say(&self, words: &str);
}

/// Why an answer is not the whole.
enum Short {
    /// It is tried again, after this long at least.
    Again(String, Duration),
    /// It is not.
    Failed(Failure),
}

/// Downloads a file, and continues until it is whole or nothing has come for too long. What has come stays, if there is no more. Returns its length.
pub async fn download(job: &Job, source: &Source, give_up_after: Duration, show: &impl Show) -> Result<u64, Failure> {
    let path = job.target.display();
    let file = |error: io::Error| Failure::new(Exit::File, format!("cannot write {path}"), error);
    let part = Part::open(&job.target, job.url.as_str(), job.continues, job.replaces).map_err(file)?;
    let (mut tries, mut said, before) = (0, String::new(), part.have());
    let vouched = job.continues;
    let moved = Instant::now();
    let mut asked = Asked { job, source, show, part, vouched, anew: 0, moved, give_up_after };
    loop {
        let had = asked.part.have();
        let (why, least) = match asked.attempt().await {
            Ok(()) => break,
            Err(Short::Again(why, least)) => (why, least),
            Err(Short::Failed(failure)) => return Err(failure),
        };
        let have = asked.part.have();
        if have > had {
            tries = 0;
        }
        // Whoever has never answered may not be there at all.
        let patience = if have == before && have == 0 { give_up_after.min(FIRST_MAX) } else { give_up_after };
        if asked.moved.elapsed() >= patience {
            let what = format!("nothing came from {} for {} s", plain::line(job.url.as_str()), patience.as_secs());
            let failure = Failure::new(Exit::Network, what, why);
            return Err(failure.hint("run the same command again to continue"));
        }
        if said != why {
            show.say(&format!("{}: {why}; trying again", place(&job.url, have)));
            said = why;
        }
        sleep(AGAIN.delay(tries, Rng.jitter()).max(least)).await;
        tries += 1;
    }
    let Asked { mut part, .. } = asked;
    if let Some(expected) = job.expected.clone().or(part.told().cloned())
        && !expected.is_of(&mut part.file().map_err(file)?).map_err(file)?
    {
        part.discard();
        let what = format!("the checksum of {} differs; what came is removed", plain::line(job.url.as_str()));
        return Err(Failure::plain(Exit::Damaged, what));
    }
    part.finish(job.mode).map_err(file)?;
    Ok(part.have())
}

fn place(url: &Url, have: u64) -> String {
    let name = plain::line(url.as_str());
    if have == 0 { name } else { format!("{name} after {}", bytes(have)) }
}

/// What is asked for, and of whom.
struct Asked<'a, S> {
    job: &'a Job,
    source: &'a Source,
    show: &'a S,
    part: Part,
    /// The user says that what is there is the beginning.
    vouched: bool,
    /// How often what had come was of no use.
    anew: u32,
    /// When something came last.
    moved: Instant,
    give_up_after: Duration,
}

impl<S: Show> Asked<'_, S> {
    /// Asks for what is missing, and takes what comes. Ok: the file is whole.
    async fn attempt(&mut self) -> Result<(), Short> {
        let have = self.part.have();
        if self.part.version().is_some_and(|version| version.is_whole(have)) {
            return Ok(());
        }
        let patience = self.give_up_after;
        let silent = |_| Short::Again(format!("nothing came for {} s", patience.as_secs()), Duration::ZERO);
        let (answer, from) = timeout(patience, self.send()).await.map_err(silent)??;
        let Answer { response, connection: _connection } = answer;
        let (head, mut body) = response.into_parts();
        let Some(mut skips) = self.place(&head, &from)? else { return Ok(()) };
        let length = self.part.version().and_then(|version| version.length()).or_else(|| whole(&head));
        self.show.progress(self.part.have(), length);
        while let Some(frame) = timeout(patience, body.frame()).await.map_err(silent)? {
            let frame = frame.map_err(|_| Short::Again("the connection broke off".to_owned(), Duration::ZERO))?;
            let data = frame.into_data().unwrap_or_default();
            let skipped = skips.min(data.len() as u64);
            skips -= skipped;
            let data = &data[skipped as usize..];
            if length.is_some_and(|length| self.part.have() + data.len() as u64 > length) {
                self.begin(None, &from)?;
                return Err(Short::Again("the server sent more than it had announced".to_owned(), Duration::ZERO));
            }
            self.part.append(data).map_err(|error| self.file(error))?;
            self.moved = Instant::now();
            self.show.progress(self.part.have(), length);
        }
        match length {
            _ if skips > 0 => Err(Short::Again("the answer was cut short".to_owned(), Duration::ZERO)),
            Some(length) if self.part.have() < length => {
                Err(Short::Again("the answer was cut short".to_owned(), Duration::ZERO))
            }
            _ => Ok(()),
        }
    }

    /// Sends it, and follows where that leads. A part is asked for only where the rest came from: elsewhere the same tag says nothing.
    async fn send(&mut self) -> Result<(Answer, String), Short> {
        let mut url = self.job.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let (from, have) = (place_of(&url), self.part.have());
            let mut plain = plain_request();
            if url.origin() == self.job.url.origin() {
                self.job.fields.put(&mut plain.headers);
            }
            let request = match self.part.is_from(&from).then(|| self.part.version()).flatten() {
                Some(version) => version.rest(&plain, have),
                None if self.vouched && have > 0 => rest(&plain, have),
                None => plain.clone(),
            };
            let answer = self.source.send(&url, request).await.map_err(|no| match no {
                NoAnswer::NoAgent(why) => {
                    Short::Again(format!("no agent answers at {}: {why}", self.source.agent), Duration::ZERO)
                }
                NoAnswer::Broken(why) => Short::Again(why, Duration::ZERO),
                NoAnswer::Refused(why) => self.failed(Exit::Network, why),
                NoAnswer::NotEntrusted => self.failed(Exit::Network, "the agent entrusts no such host".to_owned()),
            })?;
            let is_redirect = matches!(answer.response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            let Some(location) = answer.response.headers().get(LOCATION).filter(|_| is_redirect) else {
                return Ok((answer, from));
            };
            let next = location.to_str().ok().and_then(|location| url.join(location).ok());
            let next = next.ok_or_else(|| self.failed(Exit::Refused, "it redirects to what is not a URL"))?;
            match (url.scheme(), next.scheme()) {
                ("https", "http") => {
                    return Err(self.failed(Exit::Refused, "it redirects from https to http, which is not secure"));
                }
                (_, "http" | "https") => url = next,
                _ => return Err(self.failed(Exit::Refused, format!("it redirects to {}", plain::line(next.as_str())))),
            }
        }
        Err(self.failed(Exit::Refused, format!("there are more than {REDIRECTS_MAX} redirects")))
    }

    /// How many bytes of this answer's body are there already. None: nothing is missing.
    fn place(&mut self, head: &http::response::Parts, from: &str) -> Result<Option<u64>, Short> {
        let (status, have) = (head.status, self.part.have());
        if status.is_server_error()
            || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS].contains(&status)
        {
            return Err(Short::Again(format!("the server answers {status}"), retry_after(&head.headers)));
        }
        let told = Expected::told(&head.headers);
        let is_from = self.part.is_from(from);
        if let Some(skips) = self.part.version().filter(|_| is_from).and_then(|version| version.before(head, have)) {
            self.part.tell(told).map_err(|error| self.file(error))?;
            return Ok(Some(skips));
        }
        match status {
            StatusCode::PARTIAL_CONTENT if self.vouched && begins(&head.headers) == Some(have) => {
                // From now on it has a version, if the server names one.
                let etag = head.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
                let version = etag.and_then(|etag| Version::new(etag, whole(head)));
                self.vouched = false;
                let adopted = self.part.adopt(version, from).and_then(|()| self.part.tell(told));
                adopted.map(|()| Some(0)).map_err(|error| self.file(error))
            }
            StatusCode::RANGE_NOT_SATISFIABLE if self.vouched && is_of(&head.headers, have) => {
                if !is_from {
                    self.part.tell_instead(told);
                }
                Ok(None)
            }
            StatusCode::OK => {
                self.begin(Version::of(&plain_request(), head), from)?;
                self.part.tell(told).map(|()| Some(0)).map_err(|error| self.file(error))
            }
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => {
                self.begin(None, from)?;
                Err(Short::Again("the server did not send the range that was asked for".to_owned(), Duration::ZERO))
            }
            status => Err(self.failed(Exit::Refused, format!("the server answers {status}"))),
        }
    }

    /// Begins anew. What had come is of no use, which may happen so often.
    fn begin(&mut self, version: Option<Version>, from: &str) -> Result<(), Short> {
        let (had, url) = (self.part.have() > 0, plain::line(self.job.url.as_str()));
        if had {
            self.anew += 1;
            if self.anew > ANEW_MAX {
                let why = "the server does not name its version (ETag), or names another one each time";
                let what = format!("cannot download {url}: it began anew {ANEW_MAX} times");
                return Err(Short::Failed(Failure::new(Exit::Network, what, why)));
            }
        }
        self.vouched = false;
        self.part.begin(version, from).map_err(|error| self.file(error))?;
        if had {
            self.show.say(&format!("{url} has changed on the server, or cannot be continued; starting over"));
        }
        Ok(())
    }

    fn failed(&self, exit: Exit, why: impl std::fmt::Display) -> Short {
        Short::Failed(Failure::new(exit, format!("cannot download {}", plain::line(self.job.url.as_str())), why))
    }

    fn file(&self, error: io::Error) -> Short {
        Short::Failed(Failure::new(Exit::File, format!("cannot write {}", self.job.target.display()), error))
    }
}

/// Where bytes come from. What signed URLs have in their query changes each time.
fn place_of(url: &Url) -> String {
    url[..url::Position::AfterPath].to_owned()
}

/// What is asked for: the file as it is, since a coded one could not be checked.
fn plain_request() -> request::Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    let agent = concat!("hoop/", env!("CARGO_PKG_VERSION"));
    for (name, value) in [(USER_AGENT, agent), (ACCEPT, "*/*"), (ACCEPT_ENCODING, "identity")] {
        head.headers.insert(name, HeaderValue::from_static(value));
    }
    head.headers.insert("want-repr-digest", HeaderValue::from_static("sha-256=10"));
    head
}

fn rest(request: &request::Parts, from: u64) -> request::Parts {
    let mut request = request.clone();
    if let Ok(range) = HeaderValue::try_from(format!("bytes={from}-")) {
        request.headers.insert(RANGE, range);
    }
    request
}

fn number(headers: &HeaderMap, name: http::HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// How long the whole is.
fn whole(head: &http::response::Parts) -> Option<u64> {
    match head.status {
        StatusCode::OK => number(&head.headers, CONTENT_LENGTH),
        _ => head.headers.get(CONTENT_RANGE)?.to_str().ok()?.split_once('/')?.1.parse().ok(),
    }
}

/// Where a part begins.
fn begins(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    range.split_once('-')?.0.parse().ok()
}

/// Whether the whole has so many bytes (RFC 9110 §15.5.17).
fn is_of(headers: &HeaderMap, length: u64) -> bool {
    let range = headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range.and_then(|range| range.strip_prefix("bytes */")?.parse().ok()) == Some(length)
}

fn retry_after(headers: &HeaderMap) -> Duration {
    Duration::from_secs(number(headers, RETRY_AFTER).unwrap_or(0)).min(RETRY_AFTER_MAX)
}
