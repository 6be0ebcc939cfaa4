//! A body whose short pieces are joined: [`Joined`].

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A piece of so many bytes or more goes on as it is, without a copy.
const SHORT: usize = 4 << 10;

/// Shorter ones are joined until there are so many bytes.
const JOINED: usize = 16 << 10;

/// hyper hands over one piece at a time, and the next one only after its task had a turn. After so many turns without
/// one, what was joined goes on.
const TURNS_IN_VAIN: usize = 2;

/// The most turns for what is joined.
const TURNS: usize = 64;

/// Another body, of which short pieces that have come already are joined: each piece costs whoever passes it on the
/// same, however short it is. No time is waited for more. All other frames stay where they were among the bytes.
///
/// Bounds: `JOINED` and `SHORT` bytes, and the frame that came after them.
#[derive(Debug)]
pub struct Joined<B: Body> {
    body: B,
    joined: BytesMut,
    turns: usize,
    turns_in_vain: usize,
    /// What has come after what was joined: a long piece, trailers, an error or the end.
    next: Option<Option<Result<Frame<Bytes>, B::Error>>>,
}

impl<B: Body> Joined<B> {
    /// The same body in fewer pieces.
    pub fn new(body: B) -> Self {
        Self { body, joined: BytesMut::new(), turns: 0, turns_in_vain: 0, next: None }
    }

    /// Whether the sender's task has another turn before what was joined goes on.
    fn gives_a_turn(&mut self) -> bool {
        let gives = self.turns < TURNS && self.turns_in_vain < TURNS_IN_VAIN;
        self.turns += 1;
        self.turns_in_vain += 1;
        gives
    }
}

impl<B> Body for Joined<B>
where
    B: Body<Data = Bytes, Error: Unpin> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if let Some(next) = this.next.take() {
            return Poll::Ready(next);
        }
        while this.joined.is_empty() || this.joined.len() < JOINED && !this.body.is_end_stream() {
            let frame = match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(frame) => frame,
                Poll::Pending if this.joined.is_empty() => return Poll::Pending,
                Poll::Pending if this.gives_a_turn() => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => break,
            };
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            match data.filter(|data| data.len() < SHORT) {
                Some(data) => this.joined.extend_from_slice(data),
                None if this.joined.is_empty() => return Poll::Ready(frame),
                None => {
                    this.next = Some(frame);
                    break;
                }
            }
            this.turns_in_vain = 0;
        }
        (this.turns, this.turns_in_vain) = (0, 0);
        Poll::Ready(Some(Ok(Frame::data(this.joined.split().freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.joined.is_empty() && self.next.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.next.iter().flatten().filter_map(|next| next.as_ref().ok()?.data_ref());
        let held = (self.joined.len() + held.map(Bytes::len).sum::<usize>()) as u64;
        let rest = self.body.size_hint();
        let mut all = SizeHint::new();
        all.set_lower(rest.lower().saturating_add(held));
        rest.upper().into_iter().for_each(|upper| all.set_upper(upper.saturating_add(held)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
    use http_body_util::BodyExt as _;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::time::{Duration, Instant, timeout};

    type Came = Result<Frame<Bytes>, &'static str>;

    struct Source(UnboundedReceiver<Came>);

    impl Body for Source {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Came>> {
            self.0.poll_recv(context)
        }
    }

    fn joined() -> (UnboundedSender<Came>, Joined<Source>) {
        let (sender, receiver) = unbounded_channel();
        (sender, Joined::new(Source(receiver)))
    }

    fn data(len: usize) -> Came {
        Ok(Frame::data(vec![7; len].into()))
    }

    /// What comes at once: each frame's length, or what else it is.
    async fn frames(body: &mut Joined<Source>) -> Vec<Result<usize, &'static str>> {
        let (mut frames, begun) = (Vec::new(), Instant::now());
        while let Ok(Some(frame)) = timeout(Duration::from_secs(1), body.frame()).await {
            assert_eq!(Instant::now(), begun, "nothing is waited for");
            frames.push(frame.and_then(|frame| frame.into_data().map(|data| data.len()).map_err(|_| "trailers")));
        }
        frames
    }

    #[tokio::test(start_paused = true)]
    async fn short_pieces_that_are_there_come_out_as_few_and_at_once() {
        let (sender, mut body) = joined();
        for _ in 0..100_000 {
            sender.send(data(1)).unwrap();
        }
        // It is pending after these, and comes to no end.
        let came = frames(&mut body).await;
        assert_eq!(came.iter().flatten().sum::<usize>(), 100_000);
        assert!(came.len() < 20 && came.iter().all(|frame| frame.is_ok_and(|len| len <= JOINED)), "{came:?}");
        sender.send(data(3)).unwrap();
        assert_eq!(frames(&mut body).await, [Ok(3)], "one alone");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_short_piece_keeps_its_place() {
        let (sender, mut body) = joined();
        let trailers = || Ok(Frame::trailers(HeaderMap::new()));
        for frame in [data(1), data(2), data(SHORT), data(3), data(SHORT - 1), trailers(), data(5), Err("broken")] {
            sender.send(frame).unwrap();
        }
        drop(sender);
        let came = frames(&mut body).await;
        assert_eq!(came, [Ok(3), Ok(SHORT), Ok(SHORT + 2), Err("trailers"), Ok(5), Err("broken")]);
    }

    /// As hyper does, which hands over one at a time.
    #[tokio::test]
    async fn pieces_that_come_one_by_one_are_joined_as_long_as_the_next_is_there() {
        let (sender, mut body) = joined();
        let sending = tokio::spawn(async move {
            for _ in 0..1_000 {
                sender.send(data(1)).unwrap();
                tokio::task::yield_now().await;
            }
        });
        let mut came = Vec::new();
        while let Some(frame) = body.frame().await {
            came.push(frame.unwrap().into_data().unwrap().len());
        }
        sending.await.unwrap();
        assert_eq!(came.iter().sum::<usize>(), 1_000);
        assert!((1_000 / TURNS / 2..100).contains(&came.len()), "{came:?}");
    }

    #[tokio::test]
    async fn a_body_with_a_length_has_it_until_its_end() {
        let mut body = Joined::new(http_body_util::Full::new(Bytes::from_static(b"short")));
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(5), false));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "short");
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    }
}
