//! An input cut into the values that a target needs: [`Input`].

use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// What is left of an input. Where it has ended, numbers are zero and pieces are empty.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `len` bytes, or fewer.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// The next bytes, filled up with zeros.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    pub fn byte(&mut self) -> u8 {
        u8::from_be_bytes(self.array())
    }

    pub fn coin(&mut self) -> bool {
        self.byte().is_multiple_of(2)
    }

    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub fn word(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub fn long(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    /// A number whose size varies with the input: small ones must be as likely as vast ones.
    pub fn number(&mut self) -> u64 {
        self.long() >> (self.byte() % 64)
    }

    /// A piece that says its own length.
    pub fn piece(&mut self) -> &'a [u8] {
        let len = self.short();
        self.take(len.into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All the rest.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// All the rest, if it is text.
    pub fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.0).ok()
    }
}

/// A request's head, as a server hands it on.
pub struct Head {
    pub method: Method,
    pub path: String,
    pub query: Option<String>,
    pub headers: HeaderMap,
}

/// Reads a request's head, with the same parser and the same types as the servers do; `None` where they answer 400 themselves.
pub fn request(bytes: &[u8]) -> Option<Head> {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(_) = request.parse(bytes).ok()? else { return None };
    let uri: http::Uri = request.path?.parse().ok()?;
    let method = request.method?.parse().ok()?;
    let headers = headers(request.headers)?;
    Some(Head { method, path: uri.path().to_owned(), query: uri.query().map(str::to_owned), headers })
}

/// Reads a response's status and headers in the same way, and what follows them.
pub fn response(bytes: &[u8]) -> Option<(http::StatusCode, HeaderMap, &[u8])> {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(len) = response.parse(bytes).ok()? else { return None };
    let status = http::StatusCode::from_u16(response.code?).ok()?;
    let headers = headers(response.headers)?;
    Some((status, headers, &bytes[len..]))
}

pub fn headers(fields: &[httparse::Header<'_>]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for field in fields {
        let name: HeaderName = field.name.parse().ok()?;
        headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    Some(headers)
}
