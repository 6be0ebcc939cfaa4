//! Why a program gets no connection, in the words of each protocol: [`Failure`].

use hoop_endpoint::{FlowError, Refusal, ended};
use hoop_relay::{ConnectError, codes};
use http::StatusCode;

/// Why there is no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The name is not known where the relay asks.
    NoName,
    /// Nobody listens there.
    Refused,
    /// It did not answer in time.
    TimedOut,
    /// No network leads there.
    NoRoute,
    /// The relay does not go there.
    Forbidden,
    /// The device was shut out.
    ShutOut,
    /// The relay does not know the device, or has forgotten the connection: it tells nobody which.
    Unknown,
    /// The device begins more connections than its share, or has too many.
    TooMany,
    /// There was no relay for too long.
    NoRelay,
    /// The connection broke off before there was an answer.
    Broken,
    /// The relay was lost, and nobody knows whether the request was passed on.
    Unclear,
    /// What answers there does not speak HTTP.
    NoHttp,
    /// Its certificate is not valid.
    Untrusted,
    /// What answers there does not speak TLS.
    NoTls,
    /// The program's request broke off, or is malformed.
    NoRequest,
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Refused(Some(error)) => error.into(),
            ConnectError::GivenUp => Self::NoRelay,
            ConnectError::NoFlow(_) => Self::TooMany,
            ConnectError::Refused(None) | ConnectError::Protocol => Self::Broken,
        }
    }
}

impl From<FlowError> for Failure {
    fn from(error: FlowError) -> Self {
        match error {
            FlowError::Ended(codes::UNKNOWN_NAME) => Self::NoName,
            FlowError::Ended(codes::REFUSED | codes::UNREACHABLE) => Self::Refused,
            FlowError::Ended(codes::TIMED_OUT | ended::EXPIRED) => Self::TimedOut,
            FlowError::Ended(codes::NO_HOST | codes::NO_NETWORK) => Self::NoRoute,
            FlowError::Ended(codes::TOO_MANY) | FlowError::Refused(Refusal::Full | Refusal::Busy { .. }) => {
                Self::TooMany
            }
            FlowError::Ended(codes::REVOKED) => Self::ShutOut,
            FlowError::Refused(Refusal::Unknown) => Self::Unknown,
            FlowError::Ended(codes::FORBIDDEN) | FlowError::Refused(_) => Self::Forbidden,
            FlowError::Ended(codes::NO_HTTP) => Self::NoHttp,
            FlowError::Ended(codes::UNTRUSTED) => Self::Untrusted,
            FlowError::Ended(codes::NO_TLS) => Self::NoTls,
            FlowError::Ended(codes::OUTCOME_UNKNOWN) => Self::Unclear,
            // Of those that wait for an answer, this end gives up for this reason alone.
            FlowError::Reset(ended::GIVEN_UP) => Self::NoRelay,
            FlowError::Reset(codes::MALFORMED) => Self::NoRequest,
            FlowError::Ended(_) | FlowError::Reset(_) | FlowError::Gone => Self::Broken,
        }
    }
}

impl Failure {
    /// The answer's status, and the error type of its `Proxy-Status` (RFC 9209 §2.3).
    pub(crate) const fn status(self) -> (StatusCode, &'static str) {
        match self {
            Self::NoName => (StatusCode::BAD_GATEWAY, "dns_error"),
            Self::Refused => (StatusCode::BAD_GATEWAY, "connection_refused"),
            Self::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
            Self::NoRoute => (StatusCode::BAD_GATEWAY, "destination_ip_unroutable"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "destination_ip_prohibited"),
            Self::ShutOut => (StatusCode::FORBIDDEN, "proxy_configuration_error"),
            Self::Unknown => (StatusCode::BAD_GATEWAY, "connection_terminated"),
            Self::TooMany => (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached"),
            Self::NoRelay => (StatusCode::GATEWAY_TIMEOUT, "destination_unavailable"),
            Self::Broken | Self::Unclear => (StatusCode::BAD_GATEWAY, "connection_terminated"),
            Self::NoHttp => (StatusCode::BAD_GATEWAY, "http_protocol_error"),
            Self::Untrusted => (StatusCode::BAD_GATEWAY, "tls_certificate_error"),
            Self::NoTls => (StatusCode::BAD_GATEWAY, "tls_protocol_error"),
            Self::NoRequest => (StatusCode::BAD_REQUEST, "http_request_error"),
        }
    }

    /// In words, for whoever reads the answer.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::NoName => "the relay does not find this name",
            Self::Refused => "nobody listens there",
            Self::TimedOut => "it does not answer",
            Self::NoRoute => "no network of the relay leads there",
            Self::Forbidden => "the relay does not go there; its log says why",
            Self::ShutOut => "the relay has shut this device out",
            Self::Unknown => "the relay was restarted, or does not know this device: then `hoop introduce` it again",
            Self::TooMany => "there are too many connections",
            Self::NoRelay => "the relay was out of reach for too long",
            Self::Broken => "the connection broke off",
            Self::Unclear => "the relay was restarted, and nobody knows whether the web server has had this request",
            Self::NoHttp => "what answers there does not speak HTTP",
            Self::Untrusted => {
                "its certificate is not valid, comes with too many others, or is of nobody who is believed here (`hoop relay --ca`, and `hoop agent --ca`)"
            }
            Self::NoTls => "what answers there does not speak TLS",
            Self::NoRequest => "the request is malformed",
        }
    }

    /// The reply of SOCKS (RFC 1928 §6).
    pub(crate) const fn reply(self) -> u8 {
        match self {
            Self::Forbidden | Self::ShutOut => 2,
            Self::NoRoute => 3,
            Self::NoName | Self::TimedOut => 4,
            Self::Refused => 5,
            Self::Unknown | Self::TooMany | Self::NoRelay | Self::Broken | Self::NoHttp | Self::NoRequest => 1,
            Self::Unclear | Self::Untrusted | Self::NoTls => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_relay_is_told_as_what_it_is() {
        for (refusal, failure) in [
            (Refusal::Full, Failure::TooMany),
            (Refusal::Busy { secs: 1 }, Failure::TooMany),
            (Refusal::NoService, Failure::Forbidden),
            (Refusal::Unknown, Failure::Unknown),
        ] {
            assert_eq!(Failure::from(FlowError::Refused(refusal)), failure, "{refusal:?}");
        }
    }
}
