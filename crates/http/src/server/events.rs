//! Server-sent events (HTML, "Server-sent events"): [`events`] makes the answer, [`Events`] is the pen that writes them.

use crate::message::body::{Body, BodyError, streamed};
use crate::process::shutdown::Shutdown;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, header};
use http_body::Frame;
use serde::Serialize;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

/// How long a stream may be silent before a comment shows that it is alive (`docs/protocol.md` §6, "Events"): shorter than the
/// patience of the proxies and address translators on the way, mostly 30 s or more.
const COMMENT: Duration = Duration::from_secs(15);

/// How long a stream lasts at most: whoever still wants it connects anew, and nobody who has forgotten it holds a connection.
const LIFE: Duration = Duration::from_secs(5 * 60);

/// What is written to a stream of events.
///
/// Events wait for the reader: one is ready while the one before is on its way. A reader that goes away drops the writer in
/// the middle of whatever it awaits.
#[derive(Debug)]
pub struct Events(mpsc::Sender<Bytes>);

/// An event as it stands on the wire: what it was made from need not be kept while it waits for its reader.
#[derive(Debug)]
pub struct Event(Bytes);

impl Event {
    /// An event with `value` as JSON.
    pub fn new(name: &str, value: &impl Serialize) -> Self {
        let mut text = format!("event: {name}\ndata: ").into_bytes();
        // JSON has no line breaks, so that one line is enough.
        serde_json::to_writer(&mut text, value).expect("our own events have a JSON form");
        text.extend_from_slice(b"\n\n");
        Self(text.into())
    }
}

impl Events {
    /// Writes one event. Waits until the reader has taken the one before.
    pub async fn write(&self, event: Event) {
        // It fails only if the stream is over, and then this is dropped.
        let _ = self.0.send(event.0).await;
    }

    /// The same for an event with `value` as JSON.
    pub async fn send(&self, name: &str, value: &impl Serialize) {
        self.write(Event::new(name, value)).await;
    }

    /// Writes the event `end`: nothing more can change, and the reader need not come back. The writer returns after it.
    pub async fn end(self) {
        self.send("end", &()).await;
    }
}

/// An answer that is a stream of events, written by `writer`. It ends when `writer` returns, after 5 minutes, or when the
/// server is told to stop; while nothing is written, a comment goes out every 15 s.
///
/// The writer runs in a task of its own, which ends with the connection: whatever it waits for (a lock, or its turn) it
/// gets and gives back, also while nobody reads. What it owns (a slot among so many readers, say) is given back at its end.
pub fn events<W, F>(shutdown: Shutdown, writer: W) -> Response<Body>
where
    W: FnOnce(Events) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut response = Response::new(streamed(EventBody::new(shutdown, writer, COMMENT, LIFE)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, const { HeaderValue::from_static("text/event-stream") });
    headers.insert(header::CACHE_CONTROL, const { HeaderValue::from_static("no-store") });
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, const { HeaderValue::from_static("nosniff") });
    // nginx, where it stands in front, would collect events before it passes them on.
    headers.insert(const { HeaderName::from_static("x-accel-buffering") }, const { HeaderValue::from_static("no") });
    response
}

struct EventBody {
    /// The writer and what ends it.
    _work: JoinSet<()>,
    written: mpsc::Receiver<Bytes>,
    comment: Duration,
    silence: Pin<Box<Sleep>>,
}

impl EventBody {
    fn new<W, F>(mut shutdown: Shutdown, writer: W, comment: Duration, life: Duration) -> Self
    where
        W: FnOnce(Events) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, written) = mpsc::channel(1);
        let writing = writer(Events(sender));
        let mut work = JoinSet::new();
        work.spawn(async move {
            tokio::select! {
                () = writing => {}
                () = shutdown.requested() => {}
                () = tokio::time::sleep(life) => {}
            }
        });
        Self { _work: work, written, comment, silence: Box::pin(tokio::time::sleep(comment)) }
    }
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let written = match self.written.poll_recv(context) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(event)) => event,
            Poll::Pending => {
                std::task::ready!(self.silence.as_mut().poll(context));
                Bytes::from_static(b": still here\n\n")
            }
        };
        let comment_at = Instant::now() + self.comment;
        self.silence.as_mut().reset(comment_at);
        Poll::Ready(Some(Ok(Frame::data(written))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::shutdown::shutdown;
    use http_body_util::BodyExt as _;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Weak};

    const NEVER: Duration = Duration::from_secs(100_000);

    /// A writer that holds its pen and never writes.
    async fn forever(_events: Events) {
        std::future::pending::<()>().await;
    }

    async fn frame(body: &mut EventBody) -> Option<String> {
        let frame = body.frame().await?.unwrap().into_data().unwrap();
        Some(String::from_utf8(frame.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn an_event_is_a_name_and_a_line_of_json_and_the_last_is_end() {
        let (_stop, shutdown) = shutdown();
        let writer = |events: Events| async move {
            events.send("status", &["two\nlines"]).await;
            events.end().await;
        };
        let mut body = EventBody::new(shutdown, writer, NEVER, NEVER);
        assert_eq!(frame(&mut body).await.unwrap(), "event: status\ndata: [\"two\\nlines\"]\n\n");
        // A browser drops an event without data.
        assert_eq!(frame(&mut body).await.unwrap(), "event: end\ndata: null\n\n");
        assert_eq!(frame(&mut body).await, None);
    }

    #[tokio::test]
    async fn silence_is_filled_with_comments() {
        let (_stop, shutdown) = shutdown();
        let mut body = EventBody::new(shutdown, forever, Duration::from_millis(1), NEVER);
        for _ in 0..3 {
            assert_eq!(frame(&mut body).await.unwrap(), ": still here\n\n");
        }
    }

    #[tokio::test]
    async fn a_stream_ends_when_its_life_is_over_and_when_the_server_stops() {
        let (stop, shutdown) = shutdown();
        let mut old = EventBody::new(shutdown.clone(), forever, NEVER, Duration::from_millis(1));
        assert_eq!(frame(&mut old).await, None);
        let mut body = EventBody::new(shutdown, forever, NEVER, NEVER);
        stop.trigger();
        assert_eq!(frame(&mut body).await, None);
    }

    /// A turn that it gets while hyper does not ask for more would be kept from all others.
    #[tokio::test]
    async fn a_writer_gives_back_what_it_waited_for_while_nobody_reads() {
        let (_stop, shutdown) = shutdown();
        let turns = Arc::new(tokio::sync::Semaphore::new(1));
        let (taken, waits) = (turns.clone().acquire_owned().await.unwrap(), turns.clone());
        let writer = |events: Events| async move {
            events.send("first", &()).await;
            drop(waits.acquire().await);
            events.send("second", &()).await;
        };
        let mut body = EventBody::new(shutdown, writer, NEVER, NEVER);
        assert!(frame(&mut body).await.unwrap().starts_with("event: first"));
        drop(taken);
        let turn = tokio::time::timeout(Duration::from_secs(30), turns.acquire()).await;
        assert!(turn.is_ok(), "it keeps its turn, and nobody reads");
        drop(body);
    }

    #[tokio::test]
    async fn a_writer_runs_no_further_ahead_of_its_reader_than_two_events() {
        let (_stop, shutdown) = shutdown();
        let written = Arc::new(AtomicUsize::new(0));
        let counter = written.clone();
        let writer = |events: Events| async move {
            loop {
                counter.fetch_add(1, Ordering::Relaxed);
                events.send("status", &1).await;
            }
        };
        let mut body = EventBody::new(shutdown, writer, NEVER, NEVER);
        for read in 1..=10 {
            frame(&mut body).await.unwrap();
            assert!(written.load(Ordering::Relaxed) <= read + 2);
        }
    }

    #[tokio::test]
    async fn what_the_writer_holds_is_given_back_when_the_reader_goes() {
        let (_stop, shutdown) = shutdown();
        let slot = Arc::new(());
        let watched: Weak<()> = Arc::downgrade(&slot);
        let writer = |events: Events| async move {
            let _slot = slot;
            events.send("status", &1).await;
            std::future::pending::<()>().await;
        };
        let mut body = EventBody::new(shutdown, writer, NEVER, NEVER);
        frame(&mut body).await.unwrap();
        assert_eq!(watched.strong_count(), 1);
        drop(body);
        let is_given_back = async {
            while watched.strong_count() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), is_given_back).await.expect("the writer's task ends");
    }
}
