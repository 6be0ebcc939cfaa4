//! What is inside T: [`Credentials`], on whose behalf an upload is.

use crate::model::Tag;
use hoop_http::Rng;
use hoop_seal::{Keyring, TOKEN_CONTENT_STEP};
use hoop_units::{UnixTime, UploadId};
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// The most that `Cookie` and `Authorization` may have together (`docs/protocol.md` §3).
pub const CREDENTIALS_MAX: usize = 8 * 1024;

const _: () = assert!(hoop_seal::token_content_len(CREDENTIALS_MAX) <= 9 * 1024, "a token fits a head");

/// The content of a token. Its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// When the ticket that it was issued with ends, in seconds since 1970.
    pub expires: u32,
    /// The device's address when it fetched the ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The `Cookie` of that request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// The `Authorization` of that request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<String>,
    /// Whose the ticket is, if the application knew.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "tag_text")]
    pub user: Option<Tag>,
}

/// A tag as base64url.
mod tag_text {
    use super::Tag;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(tag: &Option<Tag>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&tag.map(crate::model::tag::text).unwrap_or_default())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Tag>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let tag = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        tag.map(Some).ok_or_else(|| D::Error::custom("no owner's tag"))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// The credentials of a request cannot be captured.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CaptureError {
    /// Too long.
    #[error("`Cookie` and `Authorization` have {len} bytes together; {CREDENTIALS_MAX} is the most")]
    TooLong {
        /// Their length.
        len: usize,
    },
    /// Not text.
    #[error("is not text")]
    NotText(&'static str),
    /// Several where one may stand.
    #[error("stands there more than once")]
    Twice(&'static str),
}

impl CaptureError {
    /// The header at fault.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "Cookie",
            Self::NotText(field) | Self::Twice(field) => field,
        }
    }
}

impl Credentials {
    /// Those of a request.
    ///
    /// # Errors
    /// If they are too long, or no text.
    pub fn capture(headers: &HeaderMap, address: IpAddr, expires: UnixTime) -> Result<Self, CaptureError> {
        let cookie = collect(headers, header::COOKIE, "Cookie")?;
        let authorization = collect(headers, header::AUTHORIZATION, "Authorization")?;
        if authorization.len() > 1 {
            return Err(CaptureError::Twice("Authorization"));
        }
        // HTTP/2 clients may split `Cookie`; joined, it is what it was (RFC 9113 §8.2.3).
        let cookie = (!cookie.is_empty()).then(|| cookie.join("; "));
        let authorization = authorization.into_iter().next();
        let len = cookie.as_ref().map_or(0, String::len) + authorization.as_ref().map_or(0, String::len);
        if len > CREDENTIALS_MAX {
            return Err(CaptureError::TooLong { len });
        }
        Ok(Self { expires: expires.0, address: Some(address), cookie, authorization, user: None })
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.cookie.is_none() && self.authorization.is_none()
    }

    /// T for one upload. Spaces after the JSON make its length follow from the credentials' lengths alone
    /// (`docs/protocol.md` §3).
    pub fn seal(&self, keys: &Keyring, origin: &str, id: UploadId) -> Vec<u8> {
        let mut content = serde_json::to_vec(self).expect("credentials have a JSON form");
        let len = self.cookie.as_ref().map_or(0, String::len) + self.authorization.as_ref().map_or(0, String::len);
        let padded = hoop_seal::token_content_len(len).max(content.len().next_multiple_of(TOKEN_CONTENT_STEP));
        content.resize(padded, b' ');
        keys.seal_token(origin, id, &content, Rng.bytes())
    }
}

fn collect(headers: &HeaderMap, name: header::HeaderName, field: &'static str) -> Result<Vec<String>, CaptureError> {
    let texts = headers.get_all(name).iter().map(|value| String::from_utf8(value.as_bytes().to_vec()));
    texts.collect::<Result<_, _>>().map_err(|_| CaptureError::NotText(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_seal::{KwsId, ServiceKey};

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn capture(headers: &HeaderMap) -> Result<Credentials, CaptureError> {
        Credentials::capture(headers, IpAddr::from([192, 0, 2, 7]), UnixTime(9))
    }

    #[test]
    fn split_cookies_are_joined_and_two_authorizations_refused() {
        let mut both = headers(&[("cookie", "a=1")]);
        both.append("cookie", "b=2".parse().unwrap());
        assert_eq!(capture(&both).unwrap().cookie.as_deref(), Some("a=1; b=2"));
        let mut twice = headers(&[("authorization", "Basic x")]);
        twice.append("authorization", "Basic y".parse().unwrap());
        assert_eq!(capture(&twice), Err(CaptureError::Twice("Authorization")));
    }

    #[test]
    fn a_tokens_length_follows_from_the_lengths_of_the_credentials() {
        let keys = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
        let (origin, id) = ("https://photos.example", UploadId([3; 16]));
        let longest = "2001:db8:1111:2222:3333:4444:5555:6666".parse::<IpAddr>().unwrap();
        let token = |cookie: Option<String>, authorization: Option<String>, user: Option<Tag>| {
            let expires = u32::MAX;
            let credentials = Credentials { expires, address: Some(longest), cookie, authorization, user };
            let token = credentials.seal(&keys, origin, id);
            let opened = keys.open_token(origin, id, &token).unwrap();
            assert_eq!(serde_json::from_slice::<Credentials>(&opened).unwrap(), credentials);
            token.len()
        };
        for (cookie, authorization) in [(0, 0), (1, 0), (96, 0), (0, 97), (90, 7), (352, 0), (353, 0), (8_000, 192)] {
            let text = |len: usize| (len > 0).then(|| "x".repeat(len));
            let expected = hoop_seal::token_len(cookie + authorization);
            for user in [None, Some([255; 16])] {
                let len = token(text(cookie), text(authorization), user);
                assert_eq!(len, expected, "{cookie} and {authorization}, with {user:?}");
            }
        }
        assert_eq!(hoop_seal::token_len(96), 256 + 33);
        assert_eq!(hoop_seal::token_len(97), 512 + 33);
        // Escapes make the JSON longer: the next step.
        assert_eq!(token(Some("\"".repeat(96)), None, None), 512 + 33);
    }

    #[test]
    fn credentials_beyond_their_bound_are_refused_and_never_shown() {
        let long = "x".repeat(CREDENTIALS_MAX);
        assert!(capture(&headers(&[("cookie", &long)])).is_ok());
        let error = capture(&headers(&[("cookie", &long), ("authorization", "y")])).unwrap_err();
        assert_eq!(error, CaptureError::TooLong { len: CREDENTIALS_MAX + 1 });
        let kept = capture(&headers(&[("cookie", "session=s3cret")])).unwrap();
        assert!(!format!("{kept:?}").contains("s3cret"));
    }
}
