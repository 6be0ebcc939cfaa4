//! One download, from as many answers as it takes: [`download`].

use super::digest::Expected;
use super::part::Part;
use super::source::{Answer, NoAnswer, Source};
use crate::base::exit::{Exit, Failure};
use crate::base::values::bytes;
use hoop_http::Rng;
use hoop_relay::continuation::Version;
use hoop_units::{Backoff, plain};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, LOCATION, RANGE, RETRY_AFTER, USER_AGENT,
};
use http::{HeaderValue, Request, StatusCode, request};
use http_body_util::BodyExt as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use url::Url;

/// A chain of more redirects has no end.
const REDIRECTS_MAX: usize = 10;

/// When it is tried again.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(30) };

/// A server that asks for more patience is not waited for longer than this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// So often a download without a version may begin anew.
const ANEW_MAX: u32 = 5;

/// What is to be downloaded.
#[derive(Clone, Debug)]
pub struct Job {
    pub url: Url,
    pub target: PathBuf,
    /// What the file must be.
    pub expected: Option<Expected>,
    /// A file that is there is the beginning.
    pub continues: bool,
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
    let mut part = Part::open(&job.target, job.url.as_str(), job.continues).map_err(file)?;
    let mut expected = job.expected.clone();
    let (mut tries, mut anew, mut moved, mut said) = (0, 0, Instant::now(), String::new());
    let mut asked = Asked { job, source, show, vouched: part.have() > 0 && part.version().is_none() };
    loop {
        let had = part.have();
        let short = match asked.attempt(&mut part, &mut expected).await {
            Ok(()) => break,
            Err(short) => short,
        };
        let (why, least) = match short {
            Short::Again(why, least) => (why, least),
            Short::Failed(failure) => return Err(failure),
        };
        if part.have() > had {
            (tries, moved) = (0, Instant::now());
        }
        if part.version().is_none() && part.have() > 0 && !asked.vouched {
            anew += 1;
            if anew > ANEW_MAX {
                let failure = Failure::new(Exit::Network, format!("cannot download {}", job.url), why);
                return Err(failure.hint("the server does not name the file's version (ETag), so each try begins anew"));
            }
        }
        if moved.elapsed() > give_up_after {
            let failure = Failure::new(Exit::Network, format!("nothing has come of {} for too long", job.url), why);
            return Err(failure.hint("the same command continues it"));
        }
        if said != why {
            show.say(&format!("{}: {why}; trying again", place(&job.url, part.have())));
            said = why;
        }
        sleep(AGAIN.delay(tries, Rng.jitter()).max(least)).await;
        tries += 1;
    }
    if let Some(expected) = expected
        && !expected.is_of(part.file()).map_err(file)?
    {
        part.discard();
        let what = format!("what came of {} has another checksum than it should, and is removed", job.url);
        return Err(Failure::plain(Exit::Damaged, what));
    }
    part.finish().map_err(file)?;
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
    /// The user says that what is there is the beginning.
    vouched: bool,
}

impl<S: Show> Asked<'_, S> {
    /// Asks for what is missing, and takes what comes. Ok: the file is whole.
    async fn attempt(&mut self, part: &mut Part, expected: &mut Option<Expected>) -> Result<(), Short> {
        if part.version().is_some_and(|version| version.is_whole(part.have())) {
            return Ok(());
        }
        let plain = plain_request();
        let request = match part.version() {
            Some(version) if part.have() > 0 => version.rest(&plain, part.have()),
            None if self.vouched => from(&plain, part.have()),
            _ => plain.clone(),
        };
        let Answer { response, connection: _connection } = self.send(request).await?;
        let (head, mut body) = response.into_parts();
        if expected.is_none() {
            *expected = Expected::told(&head.headers);
        }
        let skips = match self.place(&plain, &head, part)? {
            Some(skips) => skips,
            None => return Ok(()),
        };
        let (mut skips, length) = (skips, part.version().and_then(Version::length).or_else(|| whole(&head)));
        self.show.progress(part.have(), length);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                Short::Again(cause, Duration::ZERO)
            })?;
            let data = frame.into_data().unwrap_or_default();
            let skipped = skips.min(data.len() as u64);
            skips -= skipped;
            part.append(&data[skipped as usize..]).map_err(|error| self.file(error))?;
            self.show.progress(part.have(), length);
        }
        match length {
            Some(length) if part.have() < length => {
                Err(Short::Again("the answer was cut short".to_owned(), Duration::ZERO))
            }
            _ => Ok(()),
        }
    }

    /// Sends it, and follows where that leads.
    async fn send(&self, request: request::Parts) -> Result<Answer, Short> {
        let mut url = self.job.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.source.send(&url, request.clone()).await.map_err(|no| match no {
                NoAnswer::NoAgent(why) => {
                    Short::Again(format!("no agent answers at {}: {why}", self.source.agent), Duration::ZERO)
                }
                NoAnswer::Broken(why) => Short::Again(why, Duration::ZERO),
                NoAnswer::Refused(why) => self.failed(Exit::Network, why),
            })?;
            let is_redirect = matches!(answer.response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            let Some(location) = answer.response.headers().get(LOCATION).filter(|_| is_redirect) else {
                return Ok(answer);
            };
            let next = location.to_str().ok().and_then(|location| url.join(location).ok());
            let next = next.ok_or_else(|| self.failed(Exit::Refused, "it leads to what is no URL"))?;
            match (url.scheme(), next.scheme()) {
                ("https", "http") => {
                    return Err(
                        self.failed(Exit::Refused, "it leads from https to http, where anybody could change it")
                    );
                }
                (_, "http" | "https") => url = next,
                _ => return Err(self.failed(Exit::Refused, format!("it leads to {}", plain::line(next.as_str())))),
            }
        }
        Err(self.failed(Exit::Refused, format!("it leads from one place to another more than {REDIRECTS_MAX} times")))
    }

    /// How many bytes of this answer's body are there already. None: nothing is missing.
    fn place(
        &mut self,
        request: &request::Parts,
        head: &http::response::Parts,
        part: &mut Part,
    ) -> Result<Option<u64>, Short> {
        let status = head.status;
        if status.is_server_error()
            || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS].contains(&status)
        {
            return Err(Short::Again(format!("the server answers {status}"), retry_after(&head.headers)));
        }
        if let Some(version) = part.version().filter(|_| part.have() > 0)
            && let Some(skips) = version.before(head, part.have())
        {
            return Ok(Some(skips));
        }
        match status {
            StatusCode::PARTIAL_CONTENT if self.vouched && begins(&head.headers) == Some(part.have()) => Ok(Some(0)),
            StatusCode::RANGE_NOT_SATISFIABLE if self.vouched && is_of(&head.headers, part.have()) => Ok(None),
            StatusCode::OK => {
                if part.have() > 0 && (part.version().is_some() || self.vouched) {
                    self.show.say(&format!(
                        "{} has changed, or cannot be continued: from the beginning",
                        plain::line(self.job.url.as_str())
                    ));
                }
                self.vouched = false;
                let begun = part.begin(Version::of(request, head), whole(head));
                begun.map(|()| Some(0)).map_err(|error| self.file(error))
            }
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if part.have() > 0 => {
                self.vouched = false;
                part.begin(None, None).map_err(|error| self.file(error))?;
                Err(Short::Again("the server gives other bytes than those that are missing".to_owned(), Duration::ZERO))
            }
            status => Err(self.failed(Exit::Refused, format!("the server answers {status}"))),
        }
    }

    fn failed(&self, exit: Exit, why: impl std::fmt::Display) -> Short {
        Short::Failed(Failure::new(exit, format!("cannot download {}", plain::line(self.job.url.as_str())), why))
    }

    fn file(&self, error: io::Error) -> Short {
        Short::Failed(Failure::new(Exit::File, format!("cannot write {}", self.job.target.display()), error))
    }
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

fn from(request: &request::Parts, from: u64) -> request::Parts {
    let mut request = request.clone();
    if let Ok(range) = HeaderValue::try_from(format!("bytes={from}-")) {
        request.headers.insert(RANGE, range);
    }
    request
}

fn number(headers: &HeaderMap, name: http::HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// How long the whole body is.
fn whole(head: &http::response::Parts) -> Option<u64> {
    number(&head.headers, CONTENT_LENGTH).filter(|_| head.status == StatusCode::OK)
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
