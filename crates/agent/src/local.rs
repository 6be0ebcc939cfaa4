//! What the agent says about itself, to programs of this machine: how browsers find it, and what it carries.

use crate::patient_report::{PatientListing, PatientReport};
use crate::tun::TunReport;
use hoop_http::{Body, full};
use hoop_relay::Link;
use hoop_relay::status::{Listing, Report};
use hoop_units::plain;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, X_CONTENT_TYPE_OPTIONS};
use http::uri::Authority;
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Networks that no relay reaches unless it is told to, with their masks: browsers go there by themselves. Loopback, private and link-local addresses (RFC 6890).
const DIRECT: [(&str, &str); 5] = [
    ("127.0.0.0", "255.0.0.0"),
    ("10.0.0.0", "255.0.0.0"),
    ("172.16.0.0", "255.240.0.0"),
    ("192.168.0.0", "255.255.0.0"),
    ("169.254.0.0", "255.255.0.0"),
];

/// What the agent knows of itself.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) link: Arc<Link>,
    pub(crate) listing: Arc<Listing>,
    pub(crate) patient: Arc<PatientListing>,
    /// The relay, for people.
    pub(crate) relay: String,
    pub(crate) address: SocketAddr,
    /// What is taken in besides, without a proxy.
    pub(crate) tun: Option<TunReport>,
}

/// The answer to `/status.json`.
#[derive(Serialize)]
struct Status<'a> {
    relay: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tun: Option<&'a TunReport>,
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    patient: Vec<PatientReport>,
}

impl Local {
    /// Whether an authority is this agent's own address.
    pub(crate) fn is_own(&self, authority: &Authority) -> bool {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let is_loopback =
            host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        is_loopback && authority.port_u16() == Some(self.address.port())
    }

    /// Answers a request that is for the agent itself. A page elsewhere whose name leads here is answered nothing: its field `Host` says so.
    pub(crate) fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Response<Body> {
        let host = headers.get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
        if host.is_none_or(|host| !self.is_own(&host)) {
            return text(
                StatusCode::MISDIRECTED_REQUEST,
                "this is an agent of `hoop agent`, and not the host that was asked for\n",
            );
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        }
        match path {
            "/" => text(StatusCode::OK, &format!("{}\n", self.status().trim_end())),
            "/status.json" => {
                let (report, patient) = (self.report(), self.patient.reports());
                let status = Status { relay: &self.relay, tun: self.tun.as_ref(), report, patient };
                let json = serde_json::to_vec(&status).unwrap_or_default();
                typed(StatusCode::OK, "application/json", json)
            }
            "/proxy.pac" => typed(StatusCode::OK, "application/x-ns-proxy-autoconfig", pac(self.address)),
            _ => text(StatusCode::NOT_FOUND, "there are /, /status.json and /proxy.pac\n"),
        }
    }

    fn report(&self) -> Report {
        Report::of(&self.link, &self.listing)
    }

    /// What is carried, in lines.
    fn status(&self) -> String {
        let patient: String = self.patient.reports().iter().map(ToString::to_string).collect();
        format!("{}{}{patient}", title(self.address, self.tun.as_ref(), &self.relay), self.report())
    }
}

/// What an agent's status begins with, for people.
pub fn title(address: SocketAddr, tun: Option<&TunReport>, relay: &str) -> String {
    let tun = tun.map(TunReport::to_string).unwrap_or_default();
    format!("hoop agent at {address}{tun}: by {}", plain::line(relay))
}

/// A program for browsers that chooses the agent for all but the machine itself and its networks (`FindProxyForURL`).
fn pac(agent: SocketAddr) -> String {
    let networks = DIRECT.map(|(network, mask)| format!("isInNet(host, \"{network}\", \"{mask}\")")).join(" || ");
    format!(
        r#"// Of `hoop agent`: everything goes to it, but for this machine and its own networks.
function FindProxyForURL(url, host) {{
  var v6 = host.indexOf(":") >= 0, v4 = /^[0-9.]+$/.test(host);
  if (v6 && /^\[?(::1\]?$|f[cd]|fe[89ab])/i.test(host)) return "DIRECT";
  if (v4 && ({networks})) return "DIRECT";
  if (!v6 && (isPlainHostName(host) || dnsDomainIs(host, ".local"))) return "DIRECT";
  return "PROXY {agent}";
}}
"#
    )
}

/// Text for people.
pub(crate) fn text(status: StatusCode, text: &str) -> Response<Body> {
    typed(status, "text/plain; charset=utf-8", text.to_owned())
}

fn typed(status: StatusCode, kind: &'static str, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    for (name, value) in [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
