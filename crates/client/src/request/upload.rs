//! What the application wants to send: [`Upload`]; and the same, opened and measured: [`Measured`].

use crate::request::multipart::{self, Part};
use crate::request::pieces::{self, BodyPiece};
use crate::request::plaintext::Plaintext;
use crate::request::source::{Content, Segment, SourceError};
use crate::wire::USER_AGENT;
use hoop_http::{Origin, OriginError, Rng};
use http::header::{self, HeaderName};
use http::{HeaderValue, Method};
use std::fmt;
use url::Url;

/// A request as the application would send it.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Where to, `https://photos.example/?j`. Fragment, user and password are not sent.
    pub url: Url,
    /// `POST`, `PUT` or `PATCH`. Default `POST`.
    pub method: Method,
    /// Header fields that travel sealed with the body. `Authorization` and `Cookie` have their own place.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Who asks.
    pub credentials: Credentials,
    /// The body.
    pub payload: Payload,
}

/// Who asks: what proves it to the service. Goes only to the service itself, over its own HTTPS; `Debug` shows none of it.
#[derive(Clone, Default)]
pub struct Credentials {
    /// `Authorization`.
    pub authorization: Option<HeaderValue>,
    /// `Cookie`.
    pub cookie: Option<HeaderValue>,
}

/// The body of an upload.
#[derive(Clone, Debug)]
pub enum Payload {
    /// `multipart/form-data`.
    Form(Vec<Part>),
    /// Bytes as they are, one run after the other.
    Data {
        /// The runs.
        content: Vec<Content>,
        /// Their media type; `None`: none is written.
        content_type: Option<String>,
    },
}

/// An upload that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// A local file.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The URL names no server.
    #[error("cannot send to that URL: {0}")]
    Url(#[from] OriginError),
    /// A method without a body, or one that no service takes sealed.
    #[error("the method must be POST, PUT or PATCH, not {0}")]
    Method(Method),
    /// A field that the protocol owns.
    #[error("the header {0} cannot be set: it follows from the URL and the body")]
    Header(HeaderName),
    /// The head is too large for record 0.
    #[error(
        "the request's head has {len} bytes in {fields} fields; {HEAD_MAX} bytes in {FIELDS_MAX} fields are allowed"
    )]
    Head {
        /// Its length.
        len: usize,
        /// Its fields.
        fields: usize,
    },
    /// Too many parts.
    #[error("the form has {0} parts; {PARTS_MAX} are allowed")]
    Parts(usize),
}

/// The plaintext in record 0 (`docs/protocol.md` section 4): the head lies wholly within it.
const HEAD_MAX: usize = hoop_seal::RECORD_SIZE as usize - hoop_seal::RECORD_OVERHEAD as usize;

/// Fields in a head (`docs/protocol.md` section 4).
const FIELDS_MAX: usize = 100;

/// Parts in a form. Each may hold a file open, and 1,024 descriptors is the usual limit of a process.
const PARTS_MAX: usize = 512;

/// What follows from the URL, the body or the connection (RFC 9110 §7.6.1), or belongs to Hoop.
const OWNED: [&str; 9] =
    ["host", "content-length", "transfer-encoding", "te", "trailer", "connection", "upgrade", "expect", "hoop-token"];

impl Upload {
    /// A `POST` of `payload` to `url`, with no fields of its own.
    pub fn new(url: Url, payload: Payload) -> Self {
        Self { url, method: Method::POST, headers: Vec::new(), credentials: Credentials::default(), payload }
    }

    /// The service's origin.
    ///
    /// # Errors
    /// If the URL is not `http` or `https`.
    pub fn origin(&self) -> Result<Origin, OriginError> {
        Origin::of(&self.url)
    }

    /// Path and query: the request target in origin form (RFC 9112 §3.2.1).
    pub fn target(&self) -> String {
        let query = self.url.query().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{query}", self.url.path())
    }

    /// What it holds, in words, for a list: the one file's name, or how many there are.
    pub fn label(&self) -> String {
        let name_of = |content: &Content| match content {
            Content::Bytes(_) => None,
            Content::File(path) => Some(path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()),
            Content::Stdin => Some("standard input".to_owned()),
        };
        let names: Vec<String> = match &self.payload {
            Payload::Form(parts) => parts.iter().filter_map(|part| name_of(&part.content)).collect(),
            Payload::Data { content, .. } => content.iter().filter_map(name_of).collect(),
        };
        match names.as_slice() {
            [] => "data".to_owned(),
            [name] => name.clone(),
            names => format!("{} files", names.len()),
        }
    }

    /// Opens every file and lays the body out. Copies pipes, so it may block.
    ///
    /// # Errors
    /// If the request cannot be made of what was given.
    pub fn measure(&self, dice: Rng) -> Result<Measured, UploadError> {
        let origin = self.origin()?;
        if ![Method::POST, Method::PUT, Method::PATCH].contains(&self.method) {
            return Err(UploadError::Method(self.method.clone()));
        }
        if self.target().len() > HEAD_MAX {
            return Err(UploadError::Head { len: self.target().len(), fields: self.headers.len() });
        }
        if let Some((name, _)) = self.headers.iter().find(|(name, _)| OWNED.contains(&name.as_str())) {
            return Err(UploadError::Header(name.clone()));
        }
        let (body, content_type) = match &self.payload {
            Payload::Form(parts) if parts.len() > PARTS_MAX => return Err(UploadError::Parts(parts.len())),
            Payload::Form(parts) => {
                let (body, content_type) = multipart::lay_out(parts, dice)?;
                (body, Some(content_type))
            }
            Payload::Data { content, content_type } => {
                let mut body = Plaintext::default();
                for run in content {
                    body.push(Segment::open(run)?);
                }
                (body, content_type.clone())
            }
        };
        let fields = self.fields(&origin, content_type, body.len());
        Ok(Measured { request_line: format!("{} {} HTTP/1.1\r\n", self.method, self.target()), fields, body })
    }

    /// The head's fields in order; one that the caller set replaces ours.
    fn fields(&self, origin: &Origin, content_type: Option<String>, len: u64) -> Vec<(String, Vec<u8>)> {
        let mut fields = vec![("Host".to_owned(), origin.authority().as_bytes().to_vec())];
        let is_set = |name: HeaderName| self.headers.iter().any(|(set, _)| *set == name);
        if !is_set(header::USER_AGENT) {
            fields.push(("User-Agent".to_owned(), USER_AGENT.as_bytes().to_vec()));
        }
        if !is_set(header::ACCEPT) {
            fields.push(("Accept".to_owned(), b"*/*".to_vec()));
        }
        if let Some(content_type) = content_type.filter(|_| !is_set(header::CONTENT_TYPE)) {
            fields.push(("Content-Type".to_owned(), content_type.into_bytes()));
        }
        fields.extend(self.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())));
        fields.push(("Content-Length".to_owned(), len.to_string().into_bytes()));
        fields
    }
}

/// An upload whose files are open and whose length is known. Clones share the open files.
#[derive(Clone)]
pub struct Measured {
    request_line: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Plaintext,
}

impl Measured {
    /// The length of the body.
    pub const fn body_len(&self) -> u64 {
        self.body.len()
    }

    /// How the body is put together.
    pub(crate) fn pieces(&self) -> Vec<BodyPiece> {
        pieces::pieces(&self.body)
    }

    /// The body alone.
    pub(crate) fn into_body(self) -> Plaintext {
        self.body
    }

    /// The fields of the head, for the ordinary request.
    pub(crate) fn fields(&self) -> &[(String, Vec<u8>)] {
        &self.fields
    }

    /// T‖D (`docs/protocol.md` section 4): the head with the token, and the body.
    pub(crate) fn into_plaintext(self, token: &str) -> Result<Plaintext, UploadError> {
        let mut head = self.request_line.into_bytes();
        let token = ("Hoop-Token".to_owned(), token.as_bytes().to_vec());
        let fields = self.fields.len() + 1;
        for (name, value) in self.fields.into_iter().chain([token]) {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(&value);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        match head.len() <= HEAD_MAX && fields <= FIELDS_MAX {
            true => Ok(self.body.prepend(head)),
            false => Err(UploadError::Head { len: head.len(), fields }),
        }
    }
}

impl fmt::Debug for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Measured").field("body_len", &self.body_len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<HeaderValue>| value.as_ref().map(|_| "…");
        f.debug_struct("Credentials")
            .field("authorization", &shown(&self.authorization))
            .field("cookie", &shown(&self.cookie))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::plaintext::tests::read_all;

    fn upload() -> Upload {
        let content = vec![Content::Bytes("hello".into())];
        Upload::new("https://photos.example/a?j#top".parse().unwrap(), Payload::Data { content, content_type: None })
    }

    #[test]
    fn the_plaintext_is_a_whole_request_with_the_token_and_no_credential() {
        let mut upload = upload();
        upload.credentials.cookie = Some(HeaderValue::from_static("session=secret"));
        upload.headers.push((header::ACCEPT, HeaderValue::from_static("application/json")));
        let plaintext = upload.measure(Rng).unwrap().into_plaintext("dG9rZW4").unwrap();
        let expected = format!(
            "POST /a?j HTTP/1.1\r\nHost: photos.example\r\nUser-Agent: {USER_AGENT}\r\naccept: application/json\r\n\
             Content-Length: 5\r\nHoop-Token: dG9rZW4\r\n\r\nhello"
        );
        assert_eq!(String::from_utf8(read_all(&plaintext)).unwrap(), expected);
    }

    #[test]
    fn what_cannot_travel_sealed_is_refused_by_name() {
        let mut with_host = upload();
        with_host.headers.push((header::HOST, HeaderValue::from_static("other.example")));
        assert!(with_host.measure(Rng).unwrap_err().to_string().starts_with("the header host cannot be set"));
        let get = Upload { method: Method::GET, ..upload() };
        assert!(matches!(get.measure(Rng), Err(UploadError::Method(_))));
        let mut long = upload();
        long.headers.push(("x-long".parse().unwrap(), "x".repeat(HEAD_MAX).parse().unwrap()));
        assert!(matches!(long.measure(Rng).unwrap().into_plaintext(""), Err(UploadError::Head { .. })));
        let far = Upload { url: format!("https://photos.example/{}", "x".repeat(70_000)).parse().unwrap(), ..upload() };
        assert!(matches!(far.measure(Rng), Err(UploadError::Head { .. })), "nor in a request that is not sealed");
        let many = Upload { payload: Payload::Form(vec![Part::text("a", "b"); PARTS_MAX + 1]), ..upload() };
        assert!(matches!(many.measure(Rng), Err(UploadError::Parts(_))));
    }

    #[test]
    fn credentials_are_not_printed() {
        let mut upload = upload();
        upload.credentials.authorization = Some(HeaderValue::from_static("Bearer secret"));
        assert!(!format!("{upload:?}").contains("secret"));
    }
}
