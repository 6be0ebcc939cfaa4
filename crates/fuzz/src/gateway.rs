//! What a gateway reads: requests of devices and pages, destinations, and what services say.

use crate::input::{self, Input};
use bytes::Bytes;
use hoop_gateway::fuzzing::{
    admit, delivered_from_missing, dest_of, destination, host_is_known, is_public, judge, part, service_status,
    upload_fields, well_known,
};
use hoop_http::{Code, Origin, Problem};
use hoop_spool::State;
use http::{HeaderMap, Method, header};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use url::{Host, Url};

pub fn offload(bytes: &[u8]) {
    let Some(request) = input::request(bytes) else { return };
    let (method, path, query, headers) =
        (&request.method, request.path.as_str(), request.query.as_deref(), &request.headers);
    host(headers);
    match admit(method, path, query, headers) {
        Ok(None) => {}
        Ok(Some(access)) => page(access, method, path, query, headers),
        Err(problem) => assert!(matches!(problem.code, Code::HostForbidden | Code::OriginForbidden)),
    }
    if let Ok(dest) = dest_of(query) {
        check_dest(&dest);
    }
    resumable(headers);
    let Some(id) = path.strip_prefix("/offload/") else { return };
    match part(id, headers) {
        Ok((id, range, prelude)) => {
            assert_eq!(id.to_hex(), path["/offload/".len()..]);
            assert!(!range.range.is_empty() && range.range.end <= range.total);
            assert!(prelude.is_some() || headers.get("hoop-early").is_some());
        }
        Err(problem) => readable(&problem),
    }
}

/// The draft's fields: numbers of 15 digits, versions that are spoken, lengths that agree.
fn resumable(headers: &HeaderMap) {
    let fields = upload_fields(headers);
    assert!(fields.offset.into_iter().chain(fields.length).all(|number| number < 1_000_000_000_000_000));
    assert!(fields.interop.is_none_or(|version| (3..=8).contains(&version)));
    let offset = fields.offset.unwrap_or(0);
    if let Ok(Some(total)) = fields.total(offset) {
        assert!(fields.length.is_none_or(|length| length == total));
        assert!(fields.length.is_some() || (fields.complete == Some(true) && total >= offset));
    }
}

/// A name that is known is an address, or a name that no stranger can register.
fn host(headers: &HeaderMap) {
    if !host_is_known(headers) || !headers.contains_key(header::HOST) {
        return;
    }
    let text = headers[header::HOST].to_str().expect("it was read").to_ascii_lowercase();
    assert_eq!(headers.get_all(header::HOST).iter().count(), 1);
    assert!(!text.contains(['/', '\\', '?', '#', '@', ' ', '\t']), "{text}");
    let name = match Url::parse(&format!("http://{text}/")).expect("a host").host() {
        Some(Host::Domain(name)) => name.trim_end_matches('.').to_owned(),
        _ => return,
    };
    let local = ["local", "localhost", "lan", "home", "internal", "arpa", "localdomain", "box"];
    let last = name.rsplit('.').next().unwrap_or_default();
    assert!(!name.contains('.') || local.contains(&last), "{name} could be anybody's");
}

/// A page gets at little, and only at what is of its own origin.
fn page(access: &str, method: &Method, path: &str, query: Option<&str>, headers: &HeaderMap) {
    let origin = headers[header::ORIGIN].to_str().expect("it was read");
    assert!(path == "/test" || path == "/monitor" || path == "/offload" || path.starts_with("/offload/"), "{path}");
    if access == "page" {
        assert_eq!(headers["hoop-version"], "1");
        assert!([Method::GET, Method::HEAD, Method::POST, Method::PUT].contains(method), "{method}");
    }
    let writes = access != "refused"
        && (*method == Method::POST || *method == Method::PUT || access.contains('P') && access.contains('U'));
    if writes {
        let dest = dest_of(query).expect("a page writes to a destination");
        let of = Url::parse(&dest).expect("a URL").origin().ascii_serialization();
        assert_eq!(of, origin, "a page writes to its own origin alone");
    }
}

pub fn dest(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() {
        0 => address(IpAddr::V4(Ipv4Addr::from(input.word()))),
        1 => address(IpAddr::V6(Ipv6Addr::from(input.array::<16>()))),
        2 => {
            let Some(text) = input.text() else { return };
            if let Ok(allowed) = text.parse::<hoop_gateway::AllowDest>() {
                assert_eq!(allowed.to_string().parse().as_ref(), Ok(&allowed), "{text}");
            }
        }
        _ => input.text().into_iter().for_each(check_dest),
    }
}

/// What is no public address, by prefix: RFC 6890 and the registries behind it.
const SPECIAL_V4: [(&str, u32); 19] = [
    ("0.0.0.0", 8),
    ("10.0.0.0", 8),
    ("100.64.0.0", 10),
    ("127.0.0.0", 8),
    ("169.254.0.0", 16),
    ("172.16.0.0", 12),
    ("192.0.0.0", 24),
    ("192.0.2.0", 24),
    ("192.31.196.0", 24),
    ("192.52.193.0", 24),
    ("192.88.99.0", 24),
    ("192.168.0.0", 16),
    ("192.175.48.0", 24),
    ("198.18.0.0", 15),
    ("198.51.100.0", 24),
    ("203.0.113.0", 24),
    ("224.0.0.0", 4),
    ("240.0.0.0", 4),
    ("255.255.255.255", 32),
];

/// The same for version 6, within 2000::/3; all else is not public, or wraps an address of version 4.
const SPECIAL_V6: [(&str, u32); 6] =
    [("2001::", 23), ("2001:db8::", 32), ("2002::", 16), ("2620:4f:8000::", 48), ("3ffe::", 16), ("3fff::", 20)];

/// Where an address of version 4 is wrapped in, and after how many bits.
const WRAPPED: [(&str, u32); 3] = [("::ffff:0:0", 96), ("64:ff9b::", 96), ("2002::", 16)];

/// An independent judgement, by tables of prefixes.
fn public(address: IpAddr) -> bool {
    let v4 = |bits: u32| {
        SPECIAL_V4.iter().all(|(base, len)| {
            let base = u32::from(base.parse::<Ipv4Addr>().expect("a table"));
            (bits ^ base) >> (32 - len) != 0
        })
    };
    let bits = match address {
        IpAddr::V4(address) => return v4(address.into()),
        IpAddr::V6(address) => u128::from(address),
    };
    let within = |base: &str, len: u32| {
        let base = u128::from(base.parse::<Ipv6Addr>().expect("a table"));
        (bits ^ base) >> (128 - len) == 0
    };
    if let Some((_, len)) = WRAPPED.iter().find(|(base, len)| within(base, *len)) {
        return v4((bits >> (96 - len)) as u32);
    }
    // ISATAP (RFC 5214) carries one in the interface's half.
    let carries = matches!((bits >> 32) as u32, 0x5efe | 0x0200_5efe);
    within("2000::", 3) && !SPECIAL_V6.iter().any(|(base, len)| within(base, *len)) && (!carries || v4(bits as u32))
}

fn address(address: IpAddr) {
    assert_eq!(is_public(address), public(address), "{address}");
}

/// A destination that is taken is one that can be delivered to, and says the same when it is read again.
fn check_dest(text: &str) {
    let (url, origin) = match destination(text) {
        Ok(taken) => taken,
        Err(problem) => {
            assert!(matches!(problem.code, Code::DestInvalid | Code::DestForbidden));
            return readable(&problem);
        }
    };
    assert!(origin.is_https() && url.starts_with(origin.as_str()) && url.is_ascii(), "{url}");
    let path = &url[origin.as_str().len()..];
    assert!(path.is_empty() || path.starts_with('/'), "{url}");
    assert!(!path.contains(['?', '#', '\\', ' ']) && !url.ends_with('/'), "{url}");
    assert_eq!(destination(&url).as_ref(), Ok(&(url.clone(), origin.clone())), "read again");
    match origin.host() {
        Host::Domain(name) => assert!(name.parse::<IpAddr>().is_err(), "{name}"),
        Host::Ipv4(address) => assert!(public((*address).into()), "{address}"),
        Host::Ipv6(address) => assert!(public((*address).into()), "{address}"),
    }
    let path = format!("{path}/00");
    let asked = http::Request::builder().uri(path.as_str()).header(header::HOST, origin.authority()).body(());
    assert_eq!(asked.expect("a message can be sent there").uri().path(), path);
}

pub fn well_known_at(origin: &Origin, document: &[u8]) {
    match well_known(document, origin) {
        Ok((post, uploads)) => {
            assert_eq!(Origin::of(&uploads).as_ref(), Ok(origin));
            assert!(!post.ends_with('/') && Url::parse(&post).is_ok());
            let asked = http::Request::builder().uri(format!("{}/00", uploads.path())).body(());
            assert!(asked.is_ok() || uploads.path().len() > 60_000, "{}", uploads.path());
        }
        Err(why) => assert!(why.len() < 200, "a site speaks: {why}"),
    }
}

pub fn well_known_document(bytes: &[u8]) {
    let origin: Origin = "https://photos.example".parse().expect("an origin");
    well_known_at(&origin, bytes);
    crate::client::tickets_path(&origin, bytes);
}

/// An answer of a service: what is not understood is asked again, and what is believed holds together.
pub fn answers(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let total = input.number() >> 4;
    let Some((status, headers, body)) = input::response(input.rest()) else { return };
    let _ = hoop_http::retry_after(&headers, std::time::SystemTime::UNIX_EPOCH);
    let missing = headers.get("hoop-missing").and_then(|value| value.to_str().ok()).map(str::to_owned);
    if let Some(Some(answer)) = service_status(body) {
        assert!(answer.len() <= 32 * 1024);
    }
    let Some((state, has)) = judge(status, headers, Bytes::copy_from_slice(body), total) else { return };
    assert!(has.len() <= total);
    if status.is_success()
        && state == State::Receiving
        && let Some(missing) = missing
    {
        assert_eq!(Some(has), delivered_from_missing(&missing, total));
    } else if status.is_success() && state != State::Receiving {
        assert_eq!(has.len(), total);
    } else if !status.is_success() {
        assert!(state.is_final());
    }
}

/// A refusal is one that the other end can read.
fn readable(problem: &Problem) {
    let read = Problem::from_json(&problem.to_json()).expect("a problem of ours");
    assert_eq!((read.code, &read.detail, &read.field), (problem.code, &problem.detail, &problem.field));
}
