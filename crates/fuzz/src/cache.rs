//! A relay's cache: its records on disk, and for whom an answer is kept.

use crate::input::{Input, headers, response};
use hoop_relay::fuzzing::{answers_other, record};
use http::{HeaderMap, Request, header, request};
use std::time::{Duration, SystemTime};

/// A record is written as it was read. An answer is found by who has asked, and one to a request with credentials, or one that sets a cookie or says `private`, by no other device.
pub fn cache(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let what = input.coin();
    let times = [0; 3].map(|_| SystemTime::UNIX_EPOCH + Duration::from_secs(input.number() >> 30));
    if what {
        if let Some(content) = record(input.rest(), times[0]) {
            assert_eq!(record(&content, times[1]), Some(content), "a record is written in one form");
        }
        return;
    }
    let (Some(first), Some(second)) = (asked(input.piece()), asked(input.piece())) else { return };
    let Some((status, answer, _)) = response(input.rest()) else { return };
    let Some(is_shared) = answers_other([&first, &second], (status, &answer), times) else { return };
    let lines = answer.get_all(header::CACHE_CONTROL).iter();
    let lines = Vec::from_iter(lines.map(|line| String::from_utf8_lossy(line.as_bytes()).to_lowercase()));
    // A comma within quotes ends nothing.
    let is_quoted = lines.iter().any(|line| line.contains('"'));
    let says = |name: &str| {
        let mut members = lines.iter().flat_map(|line| line.split(','));
        members.any(|member| member.split('=').next().is_some_and(|of| of.trim() == name))
    };
    let has = |head: &request::Parts, name| head.headers.contains_key(name);
    assert!(!answer.contains_key(header::SET_COOKIE), "a cookie is for nobody else");
    assert!(!says("no-store") || is_quoted, "nothing that is not to be stored");
    if is_shared {
        assert!(!has(&first, header::COOKIE) && !has(&second, header::COOKIE), "cookies");
        assert!(is_quoted || says("public") || ![&first, &second].iter().any(|head| has(head, header::AUTHORIZATION)));
        assert!(!says("private") || is_quoted, "what is private");
        assert_eq!(first.uri.path_and_query(), second.uri.path_and_query());
        for name in [header::ACCEPT, header::ORIGIN, header::FORWARDED] {
            let [first, second] = [&first, &second].map(|head| Vec::from_iter(head.headers.get_all(&name)));
            assert_eq!(first, second, "a field that counts");
        }
    }
}

/// A request to one host.
fn asked(bytes: &[u8]) -> Option<request::Parts> {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(_) = request.parse(bytes).ok()? else { return None };
    let path = request.path.filter(|path| path.starts_with('/'))?;
    let headers: HeaderMap = headers(request.headers)?;
    let mut asked = Request::get(format!("http://a.example{path}")).body(()).ok()?;
    *asked.headers_mut() = headers;
    Some(asked.into_parts().0)
}
