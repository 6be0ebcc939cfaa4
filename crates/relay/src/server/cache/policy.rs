//! How long an answer may be used, and by which requests: [`Policy`] (RFC 9111 §3, §4.2 and §5.2). Pure.
//!
//! The judgement is that of `http-cache-semantics`. It is shown the fields that it judges, and those only as they are meant: numbers within bounds, dates in one form, names in lower
//! case. Foreign bytes would otherwise lead it astray: an `Age` without bounds makes it overflow, and `No-Store` it would not know. It never makes the answer's own head.

use super::directives::{Directives, SECONDS_MAX};
use http::header::{AGE, AUTHORIZATION, CACHE_CONTROL, DATE, ETAG, EXPIRES, HeaderName, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_cache_semantics::{CacheOptions, CachePolicy};
use std::time::{Duration, SystemTime};

/// Where a server does not say how long an answer is fresh, a tenth of the time since it was changed is guessed, and so long at most: whoever changes a page sees it after that.
const HEURISTIC_MAX: Duration = Duration::from_secs(3_600);

/// When an answer was asked for, and when its head came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Times {
    pub asked: SystemTime,
    pub came: SystemTime,
}

/// How long an answer may be used, and by which requests.
#[derive(Debug)]
pub(super) struct Policy {
    semantics: CachePolicy,
    came: SystemTime,
    /// How long after it is stale it may stand in for an error (RFC 5861 §4).
    stale_if_error: u64,
    /// Whether a stale answer is worth anything: it can be validated, or was fresh once.
    is_worth_keeping: bool,
}

impl Policy {
    /// That of an answer to this request. `is_own`: it is kept for one device alone, as a private cache would.
    pub(super) fn of(request: &HeaderMap, status: StatusCode, answer: &HeaderMap, times: Times, is_own: bool) -> Self {
        let directives = Directives::of(answer);
        let options = CacheOptions { shared: !is_own, ..CacheOptions::default() };
        let asked = distilled_request(request);
        let mut told = Response::new(());
        *told.status_mut() = status;
        *told.headers_mut() = distilled_answer(answer, &directives, times);
        let semantics = CachePolicy::new_options(&asked, &told, times.came, options);
        let needs_validation = ["must-revalidate", "proxy-revalidate", "s-maxage", "no-cache"];
        let stale_if_error = match needs_validation.iter().any(|name| directives.has(name)) {
            true => 0,
            false => directives.seconds("stale-if-error").unwrap_or(0),
        };
        let has_validator = answer.contains_key(ETAG) || answer.contains_key(LAST_MODIFIED);
        let was_fresh = ["max-age", "s-maxage"].iter().any(|name| directives.seconds(name).is_some_and(|age| age > 0));
        let is_worth_keeping = has_validator || was_fresh || !semantics.time_to_live(times.came).is_zero();
        Self { semantics, came: times.came, stale_if_error, is_worth_keeping }
    }

    /// Whether it may be stored, and is worth it.
    pub(super) fn is_storable(&self) -> bool {
        self.is_worth_keeping && self.semantics.is_storable()
    }

    /// Whether it answers this request as it is. What came later than it is now does not: a clock was put back.
    pub(super) fn answers(&self, request: &HeaderMap, now: SystemTime) -> bool {
        now >= self.came
            && self.semantics.before_request(&distilled_request(request), now).satisfies_without_revalidation()
    }

    /// Whether it is fresh, whatever a request says.
    pub(super) fn is_fresh(&self, now: SystemTime) -> bool {
        self.answers(&HeaderMap::new(), now)
    }

    /// Whether it may stand in for an error (RFC 5861 §4).
    pub(super) fn answers_errors(&self, now: SystemTime) -> bool {
        let since = self.age(now).saturating_sub(self.lifetime());
        now >= self.came && since < self.stale_if_error
    }

    /// Its age in seconds (RFC 9111 §4.2.3).
    pub(super) fn age(&self, now: SystemTime) -> u64 {
        self.semantics.age(now).as_secs().min(SECONDS_MAX)
    }

    /// How long it is fresh from now on, in seconds.
    pub(super) fn left(&self, now: SystemTime) -> u64 {
        self.semantics.time_to_live(now).as_secs()
    }

    /// How long it is fresh in all, as far as that was not over when it came.
    fn lifetime(&self) -> u64 {
        match self.left(self.came) {
            0 => self.age(self.came),
            left => left + self.age(self.came),
        }
    }
}

/// A request as the judgement sees it.
fn distilled_request(headers: &HeaderMap) -> Request<()> {
    let directives = Directives::of_request(headers);
    let mut told = Vec::new();
    for name in ["no-cache", "no-store"] {
        if directives.has(name) {
            told.push(name.to_owned());
        }
    }
    for name in ["max-age", "min-fresh", "max-stale"] {
        // Any staleness at all is wanted.
        let is_any = name == "max-stale" && directives.is_bare(name);
        match directives.seconds(name) {
            Some(_) if is_any => told.push(name.to_owned()),
            Some(seconds) => told.push(format!("{name}={seconds}")),
            None => {}
        }
    }
    let mut request = Request::new(());
    put(request.headers_mut(), CACHE_CONTROL, &told.join(", "));
    if headers.contains_key(AUTHORIZATION) {
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("x"));
    }
    request
}

/// An answer as the judgement sees it.
fn distilled_answer(headers: &HeaderMap, directives: &Directives, times: Times) -> HeaderMap {
    let mut told = Vec::new();
    for name in ["no-store", "private", "public", "no-cache"] {
        if directives.has(name) {
            told.push(name.to_owned());
        }
    }
    for name in ["max-age", "s-maxage"] {
        if let Some(seconds) = directives.seconds(name) {
            told.push(format!("{name}={seconds}"));
        }
    }
    // Each of these says that what is stale is not used without asking (RFC 9111 §4.2.4).
    if ["must-revalidate", "proxy-revalidate", "s-maxage", "no-cache"].iter().any(|name| directives.has(name)) {
        told.push("must-revalidate".to_owned());
    }
    let mut distilled = HeaderMap::new();
    put(&mut distilled, CACHE_CONTROL, &told.join(", "));
    let date = date(headers, &DATE);
    let since = |then: SystemTime| times.came.duration_since(then).unwrap_or_default().as_secs();
    let age = first_age(headers).saturating_add(since(times.asked)).max(date.map_or(0, since));
    put(&mut distilled, AGE, &age.min(SECONDS_MAX).to_string());
    let said = date.unwrap_or(times.came);
    put(&mut distilled, DATE, &httpdate::fmt_http_date(said));
    if headers.contains_key(EXPIRES) {
        // What is no date is over (RFC 9111 §5.3).
        let expires = self::date(headers, &EXPIRES).map_or_else(|| "0".to_owned(), httpdate::fmt_http_date);
        put(&mut distilled, EXPIRES, &expires);
    }
    if let Some(modified) = self::date(headers, &LAST_MODIFIED) {
        let modified = modified.max(said.checked_sub(HEURISTIC_MAX * 10).unwrap_or(modified));
        put(&mut distilled, LAST_MODIFIED, &httpdate::fmt_http_date(modified));
    }
    distilled
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if !value.is_empty() {
        HeaderValue::from_str(value).into_iter().for_each(|value| drop(headers.insert(&name, value)));
    }
}

/// A date that is there once, in any of the three forms (RFC 9110 §5.6.7).
fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().filter(|_| values.next().is_none())?;
    httpdate::parse_http_date(first.to_str().ok()?).ok()
}

/// The first number of `Age` (RFC 9111 §5.1); none where it is no number.
fn first_age(headers: &HeaderMap) -> u64 {
    let first = headers.get(AGE).and_then(|age| age.to_str().ok()).unwrap_or_default();
    super::directives::seconds(first.split(',').next().unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + NOW
    }

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()));
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        headers
    }

    fn at(seconds: i64) -> String {
        httpdate::fmt_http_date(
            now() + Duration::from_secs(1 << 30) - Duration::from_secs(((1 << 30) - seconds) as u64),
        )
    }

    fn policy(fields: &[(&str, &str)]) -> Policy {
        let times = Times { asked: now(), came: now() };
        Policy::of(&HeaderMap::new(), StatusCode::OK, &headers(fields), times, false)
    }

    #[test]
    fn ages_and_dates_of_any_form_are_within_bounds() {
        for (fields, age, left) in [
            (&[("cache-control", "max-age=100")][..], 0, 100),
            (&[("cache-control", "max-age=100"), ("age", "30")], 30, 70),
            (&[("cache-control", "max-age=100"), ("date", &at(-30))], 30, 70),
            (&[("cache-control", "max-age=100"), ("age", "30"), ("date", &at(-40))], 40, 60),
            (&[("cache-control", "max-age=100"), ("age", "99999999999999999999")], SECONDS_MAX, 0),
            (&[("cache-control", "max-age=100"), ("age", "x")], 0, 100),
            (&[("expires", &at(50)), ("date", &at(0))], 0, 50),
            (&[("expires", "Sunday, 06-Nov-94 08:49:37 GMT"), ("date", &at(0))], 0, 0),
            (&[("expires", "0")], 0, 0),
            (&[("last-modified", &at(-1_000)), ("date", &at(0))], 0, 100),
            (&[("last-modified", "Sun Nov  6 08:49:37 1994"), ("date", &at(0))], 0, 3_600),
        ] {
            let policy = policy(fields);
            assert_eq!((policy.age(now()), policy.left(now())), (age, left), "{fields:?}");
            let later = now() + Duration::from_secs(1 << 33);
            assert!(
                policy.age(later) == SECONDS_MAX && policy.left(later) == 0 && !policy.is_fresh(later),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn what_came_after_now_answers_nothing() {
        let policy = policy(&[("cache-control", "max-age=100, stale-if-error=100")]);
        assert!(policy.is_fresh(now()) && policy.is_fresh(now() + Duration::from_secs(99)));
        assert!(!policy.is_fresh(now() + Duration::from_secs(100)) && !policy.is_fresh(now() - Duration::from_secs(1)));
        assert!(!policy.answers_errors(now() - Duration::from_secs(1)));
        assert!(policy.answers_errors(now() + Duration::from_secs(199)));
        assert!(!policy.answers_errors(now() + Duration::from_secs(200)));
    }

    #[test]
    fn a_device_alone_keeps_what_is_private() {
        let fields = headers(&[("cache-control", "private, max-age=100, s-maxage=1")]);
        let times = Times { asked: now(), came: now() };
        let of = |is_own| Policy::of(&HeaderMap::new(), StatusCode::OK, &fields, times, is_own);
        assert!(!of(false).is_storable() && of(true).is_storable());
        assert_eq!(of(true).left(now()), 100);
    }

    #[test]
    fn an_answer_that_is_of_no_use_later_is_not_stored() {
        assert!(!policy(&[]).is_storable() && !policy(&[("cache-control", "max-age=0")]).is_storable());
        assert!(policy(&[("etag", "\"a\"")]).is_storable());
    }
}
