//! One task for a device's endpoint of QUIC and its connections: [`Turns`].
//!
//! quinn gives each a task of its own. Then a packet that ends a connection at once, a stateless reset (RFC 9000 §10.3), may wait for the connection's task when the
//! endpoint moves to another socket. The connection hears of both together, ends, and asks its endpoint for something after it has said goodbye; quinn-proto 0.11 panics at that (quinn
//! #1645), and a program ends. In turns nothing waits: whatever the endpoint has for a connection, the connection has handled before anybody moves the endpoint.

use parking_lot::{Mutex, MutexGuard};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::mpsc;

/// What quinn wants to be run.
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What runs a device's endpoint and its connections.
#[derive(Debug)]
pub(crate) struct Turns {
    begun: mpsc::UnboundedSender<Driver>,
    turn: Arc<Mutex<()>>,
}

impl Turns {
    /// Begins, within a tokio runtime. It ends once this is dropped and all that it ran has ended.
    pub(crate) fn begin() -> Arc<Self> {
        let (begun, mut beginning) = mpsc::unbounded_channel();
        let turn = Arc::new(Mutex::new(()));
        let (turns, mut drivers) = (turn.clone(), Vec::new());
        tokio::spawn(poll_fn(move |cx| {
            let _turn = turns.lock();
            take_turns(&mut beginning, &mut drivers, cx)
        }));
        Arc::new(Self { begun, turn })
    }

    /// Until this is dropped, nothing runs; and nothing waits for a connection meanwhile.
    pub(crate) fn pause(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }
}

/// Runs all once. Who was woken is not asked: a device has one or two connections on an endpoint.
fn take_turns(
    beginning: &mut mpsc::UnboundedReceiver<Driver>,
    drivers: &mut Vec<Driver>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let is_over = loop {
        match beginning.poll_recv(cx) {
            Poll::Ready(Some(driver)) => drivers.push(driver),
            Poll::Ready(None) => break true,
            Poll::Pending => break false,
        }
    };
    // The endpoint is the first: what it has for its connections, they handle in the same turn.
    drivers.retain_mut(|driver| driver.as_mut().poll(cx).is_pending());
    if is_over && drivers.is_empty() { Poll::Ready(()) } else { Poll::Pending }
}

impl Runtime for Turns {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, driver: Driver) {
        // Unless the runtime is going down, the other end is there as long as this.
        let _ = self.begun.send(driver);
    }

    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        // As the kernel gives them, which is faster: its server is the user's own.
        TokioRuntime.wrap_udp_socket(socket)
    }
}
