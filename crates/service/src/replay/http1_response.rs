//! Reads the application's answer from the socket: [`read_answer`] (RFC 9112).
//!
//! A replay speaks HTTP/1.1 by hand, since it must know to the byte what has been sent. It must also hear an answer
//! that comes early, even where the application then closes the connection.
//!
//! Bounds: a head of [`HEAD_MAX`] bytes and [`FIELDS_MAX`] fields. Of the body, at most [`BODY_READ`] bytes are read,
//! and the first [`BODY_KEPT`] kept. As many interim answers may come before it as anywhere else ([`InterimCount`]).

use hoop_http::InterimCount;
use std::io;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The longest head of an answer: a generous cookie jar.
const HEAD_MAX: usize = 64 * 1024;

/// The most fields of an answer.
const FIELDS_MAX: usize = 100;

/// What rules can look into: any JSON that reports on an upload, and the top of a page of HTML.
pub const BODY_KEPT: usize = 256 * 1024;

/// How much of a body is read to see its end. After that, the answer is taken as it is.
const BODY_READ: u64 = 16 << 20;

/// The longest line that begins a chunk: a length and its extensions.
const CHUNK_LINE_MAX: usize = 1024;

/// An answer, as much of it as has come.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The status; 0 until the head has come.
    pub status: u16,
    /// The fields in order.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The beginning of the body, without its framing.
    pub body: Vec<u8>,
    /// Whether the body has come to its end.
    pub complete: bool,
}

impl Answer {
    /// The first value of a field.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    }

    /// Whether a head has come.
    pub const fn has_head(&self) -> bool {
        self.status != 0
    }
}

/// No whole answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// It closed without a word.
    #[error("it closed the connection without an answer")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// What came is no HTTP.
    #[error("what it answered is no HTTP: {0}")]
    Garbage(String),
    /// It ended within the answer.
    #[error("its answer was cut off")]
    CutOff,
}

/// Reads an answer into `answer`, so that a caller who gives up sees what had come. Interim answers (1xx) are passed over.
///
/// # Errors
/// If none comes, or none whole. Once the head is there, [`Answer::has_head`].
pub async fn read_answer(stream: &mut (impl AsyncRead + Unpin), answer: &mut Answer) -> Result<(), AnswerError> {
    let mut input = Input { stream, buffer: Vec::new() };
    let interim = InterimCount::default();
    let framing = loop {
        let (status, fields) = read_head(&mut input).await?;
        if status >= 200 {
            let framing = Framing::of(status, &fields)?;
            (answer.status, answer.fields) = (status, fields);
            break framing;
        }
        if status == 101 {
            return Err(AnswerError::Garbage("it switches protocols unasked".to_owned()));
        }
        let bytes = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        if !interim.takes(bytes, Instant::now()) {
            return Err(AnswerError::Garbage("too many interim answers come before it".to_owned()));
        }
    };
    match framing {
        Framing::None => {}
        Framing::Length(len) => copy(&mut input, answer, len).await?,
        Framing::Chunked => read_chunks(&mut input, answer).await?,
        Framing::Close => match copy(&mut input, answer, u64::MAX).await {
            Ok(()) | Err(AnswerError::CutOff) => {}
            Err(error) => return Err(error),
        },
    }
    answer.complete = true;
    Ok(())
}

/// How a body ends (RFC 9112 §6.3).
enum Framing {
    None,
    Length(u64),
    Chunked,
    Close,
}

impl Framing {
    fn of(status: u16, fields: &[(String, Vec<u8>)]) -> Result<Self, AnswerError> {
        if matches!(status, 204 | 304) {
            return Ok(Self::None);
        }
        let values = |name: &'static str| fields.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name));
        if let Some((_, value)) = values("transfer-encoding").next_back() {
            let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
            return Ok(if last.eq_ignore_ascii_case(b"chunked") { Self::Chunked } else { Self::Close });
        }
        let mut lengths = values("content-length").map(|(_, value)| value.trim_ascii());
        let Some(length) = lengths.next() else { return Ok(Self::Close) };
        let garbage = || AnswerError::Garbage("its `Content-Length` means nothing".to_owned());
        if lengths.any(|other| other != length) || !length.iter().all(u8::is_ascii_digit) {
            return Err(garbage());
        }
        let length = std::str::from_utf8(length).ok().and_then(|text| text.parse().ok());
        length.map(Self::Length).ok_or_else(garbage)
    }
}

struct Input<'a, S> {
    stream: &'a mut S,
    buffer: Vec<u8>,
}

impl<S: AsyncRead + Unpin> Input<'_, S> {
    /// Appends what comes next; false at the end.
    async fn more(&mut self) -> io::Result<bool> {
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }
}

type Head = (u16, Vec<(String, Vec<u8>)>);

async fn read_head<S: AsyncRead + Unpin>(input: &mut Input<'_, S>) -> Result<Head, AnswerError> {
    loop {
        if let Some((len, head)) = parse_head(&input.buffer)? {
            input.buffer.drain(..len);
            return Ok(head);
        }
        if input.buffer.len() > HEAD_MAX {
            return Err(AnswerError::Garbage(format!("its head is longer than {HEAD_MAX} bytes")));
        }
        if !input.more().await? {
            return Err(if input.buffer.is_empty() { AnswerError::Closed } else { AnswerError::CutOff });
        }
    }
}

fn parse_head(buffer: &[u8]) -> Result<Option<(usize, Head)>, AnswerError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(buffer) {
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(len)) => {
            let fields = response.headers.iter().map(|field| (field.name.to_owned(), field.value.to_vec())).collect();
            let status = response.code.filter(|code| (100..600).contains(code));
            let status = status.ok_or_else(|| AnswerError::Garbage("its status is none".to_owned()))?;
            Ok(Some((len, (status, fields))))
        }
        Err(error) => Err(AnswerError::Garbage(error.to_string())),
    }
}

/// Moves `len` bytes of body into the answer. Stops early once it has read enough.
async fn copy<S: AsyncRead + Unpin>(
    input: &mut Input<'_, S>,
    answer: &mut Answer,
    len: u64,
) -> Result<(), AnswerError> {
    let mut left = len;
    let mut read = 0;
    while left > 0 && read < BODY_READ {
        if input.buffer.is_empty() && !input.more().await? {
            return Err(AnswerError::CutOff);
        }
        let take = input.buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let keep = take.min(BODY_KEPT - answer.body.len());
        answer.body.extend_from_slice(&input.buffer[..keep]);
        input.buffer.drain(..take);
        left -= take as u64;
        read += take as u64;
    }
    Ok(())
}

/// Chunks (RFC 9112 §7.1); trailers are not looked at.
async fn read_chunks<S: AsyncRead + Unpin>(input: &mut Input<'_, S>, answer: &mut Answer) -> Result<(), AnswerError> {
    let mut read = 0_u64;
    loop {
        let line = read_line(input).await?;
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let len = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
        let len = len.and_then(|text| u64::from_str_radix(text, 16).ok());
        let len = len.ok_or_else(|| AnswerError::Garbage("a chunk has no length".to_owned()))?;
        read = read.saturating_add(len);
        if len == 0 || read > BODY_READ {
            return Ok(());
        }
        copy(input, answer, len).await?;
        if !read_line(input).await?.is_empty() {
            return Err(AnswerError::Garbage("a chunk is longer than it says".to_owned()));
        }
    }
}

async fn read_line<S: AsyncRead + Unpin>(input: &mut Input<'_, S>) -> Result<Vec<u8>, AnswerError> {
    loop {
        if let Some(at) = input.buffer.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = input.buffer.drain(..=at).collect();
            line.truncate(line.trim_ascii_end().len());
            return Ok(line);
        }
        if input.buffer.len() > CHUNK_LINE_MAX {
            return Err(AnswerError::Garbage("a chunk's length is a long line".to_owned()));
        }
        if !input.more().await? {
            return Err(AnswerError::CutOff);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `bytes` in pieces of `cut`.
    async fn read(bytes: &[u8], cut: usize) -> (Answer, Result<(), AnswerError>) {
        use tokio::io::AsyncWriteExt as _;
        let (mut near, mut far) = tokio::io::duplex(cut);
        let bytes = bytes.to_vec();
        let writing = tokio::spawn(async move {
            let _ = far.write_all(&bytes).await;
        });
        let mut answer = Answer::default();
        let result = read_answer(&mut near, &mut answer).await;
        drop(near);
        writing.await.unwrap();
        (answer, result)
    }

    #[tokio::test]
    async fn every_framing_gives_the_same_body_however_it_is_cut() {
        for bytes in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello"[..],
            b"HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nT: 1\r\n\r\n",
            b"HTTP/1.0 200 OK\r\nX: y\r\n\r\nhello",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nL: 1\r\n\r\nHTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 5\r\n\r\nhello",
        ] {
            for cut in [1, 7, 4096] {
                let (answer, result) = read(bytes, cut).await;
                assert!(result.is_ok(), "{result:?}");
                assert_eq!((answer.status, &answer.body[..], answer.complete), (200, &b"hello"[..], true));
                assert_eq!(answer.field("x"), Some(&b"y"[..]));
            }
        }
    }

    #[tokio::test]
    async fn a_status_without_a_body_ends_with_its_head() {
        let (answer, result) = read(b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", 99).await;
        assert!(result.is_ok() && answer.complete && answer.body.is_empty());
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_off_or_garbage_is_told_apart() {
        let of = async |bytes: &[u8]| read(bytes, 4096).await;
        assert!(matches!(of(b"").await.1, Err(AnswerError::Closed)));
        assert!(matches!(of(b"HTTP/1.1 200 O").await.1, Err(AnswerError::CutOff)));
        assert!(matches!(of(b"SSH-2.0-OpenSSH\r\n").await.1, Err(AnswerError::Garbage(_))));
        assert!(matches!(of(b"HTTP/1.1 101 Switching\r\n\r\n").await.1, Err(AnswerError::Garbage(_))));
        assert!(matches!(of(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n").await.1, Err(AnswerError::Garbage(_))));
        assert!(matches!(
            of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").await.1,
            Err(AnswerError::Garbage(_))
        ));
        let (answer, result) = of(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel").await;
        assert!(matches!(result, Err(AnswerError::CutOff)));
        assert!(answer.has_head() && !answer.complete && answer.body == b"hel");
    }

    #[tokio::test]
    async fn interim_answers_without_end_are_no_answer() {
        for (interim, most) in [("HTTP/1.1 100 Continue\r\n\r\n".to_owned(), 64), (long_hint(), 3)] {
            let after = |count: usize| interim.repeat(count) + "HTTP/1.1 204 No Content\r\n\r\n";
            let (answer, result) = read(after(most).as_bytes(), 4096).await;
            assert!(result.is_ok() && answer.complete, "{result:?}");
            // A few more may come as time goes by.
            let (answer, result) = read(after(most + 1_000).as_bytes(), 4096).await;
            assert!(matches!(result, Err(AnswerError::Garbage(_))) && !answer.has_head(), "{result:?}");
        }
    }

    /// It counts as 21.
    fn long_hint() -> String {
        format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "a".repeat(20 << 10))
    }

    #[tokio::test]
    async fn an_endless_head_or_body_ends_at_its_bound() {
        let mut head = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
        head.resize(HEAD_MAX * 2, b'x');
        assert!(matches!(read(&head, 65_536).await.1, Err(AnswerError::Garbage(_))));
        let mut body = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        body.resize(BODY_READ as usize * 2, b'x');
        let (answer, result) = read(&body, 65_536).await;
        assert!(result.is_ok());
        assert_eq!(answer.body.len(), BODY_KEPT);
    }
}
