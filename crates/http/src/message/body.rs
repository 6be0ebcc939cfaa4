//! Message bodies: one boxed [`Body`] type, its makers, and reading one to the end within a bound.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, Empty, Full, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Why a body ended early.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of every message that we send.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// No bytes.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// These bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// How much of a long answer is handed over at a time, in bytes: some of these, and not the whole, wait in a connection whose reader is slow.
const PIECE: usize = 16 * 1024;

/// These bytes, handed over in pieces of `PIECE`. So the body has gone only when little of it is left to be sent, and none of it is kept then.
pub fn in_pieces(bytes: impl Into<Bytes>) -> Body {
    Pieces(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

struct Pieces(Bytes);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let len = self.0.len().min(PIECE);
        let piece = (len > 0).then(|| {
            // A copy: a part of the whole would keep all of it.
            Ok(Frame::data(Bytes::copy_from_slice(&self.0.split_to(len))))
        });
        Poll::Ready(piece)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// What another body yields, as it comes.
pub fn streamed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// A body that holds `guard` until it has gone, or is given up.
pub fn until_gone<G: Send + Unpin + 'static>(body: Body, guard: G) -> Body {
    Guarded { body, _guard: guard }.boxed_unsync()
}

struct Guarded<G> {
    body: Body,
    _guard: G,
}

impl<G: Unpin> http_body::Body for Guarded<G> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer with `value` as JSON, in pieces.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let bytes = serde_json::to_vec(value).expect("our own answers have a JSON form");
    let mut response = Response::new(in_pieces(bytes));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, const { HeaderValue::from_static("application/json") });
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, const { HeaderValue::from_static("nosniff") });
    headers.insert(header::CACHE_CONTROL, const { HeaderValue::from_static("no-store") });
    response
}

/// A body could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is longer than the reader allows.
    #[error("the body is longer than {limit} bytes")]
    TooLong {
        /// The most that the reader takes.
        limit: usize,
    },
    /// It broke off.
    #[error("the body broke off: {0}")]
    Broken(BodyError),
}

/// All of `body`, at most `limit` bytes.
///
/// # Errors
/// If it is longer, or breaks off.
pub async fn read_limited<B>(body: B, limit: usize) -> Result<Bytes, ReadError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BodyError>,
{
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ReadError::TooLong { limit }),
        Err(error) => Err(ReadError::Broken(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;

    #[tokio::test]
    async fn a_long_body_comes_in_pieces_of_its_own_and_whole() {
        for len in [0, 1, PIECE, 3 * PIECE + 7] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut body = in_pieces(bytes.clone());
            let mut came = Vec::new();
            while let Some(frame) = body.frame().await {
                let piece = frame.unwrap().into_data().unwrap();
                assert!(
                    piece.len() <= PIECE && body.size_hint().exact() == Some((len - came.len() - piece.len()) as u64)
                );
                assert!(piece.try_into_mut().is_ok(), "nothing else is kept for it");
                came.extend_from_slice(&bytes[came.len()..(came.len() + PIECE).min(len)]);
            }
            assert!(body.is_end_stream() && came == bytes);
        }
    }
}
