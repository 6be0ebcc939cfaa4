//! A UDP socket that gives quinn one datagram at a time: [`Datagrams`].
//!
//! The kernel joins datagrams of one sender (UDP GRO), up to 64 KiB. quinn 0.11 copies these into one buffer, and quinn-proto keeps slices of it where a frame comes before its turn. A byte
//! then holds 64 KiB, and none of QUIC's limits counts more than the byte's packet: whoever has ended a handshake could have a server hold 120 MB for each connection. So each datagram comes
//! with a length of its own here, and quinn copies it into a buffer of its own. Servers alone have it: a device's server is its user's own, and one more copy costs a quarter of what a device
//! takes in on loopback.

use parking_lot::Mutex;
use quinn::udp::{BATCH_SIZE, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime as _, TokioRuntime, UdpPoller};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The longest datagram that may begin with a first packet, in bytes: whoever sends it cannot know what the path carries (RFC 9000 §14.1). quinn reads it with the lock of its endpoint held.
pub(crate) const FIRST_PACKET_MAX: usize = 1_500;

/// The most that the kernel joins, in bytes.
const JOINED_MAX: usize = 64 << 10;

/// What came and was not given to quinn yet. Of its memory the kernel fills, and the system gives, as much as comes at once.
struct Came {
    buffer: Box<[u8]>,
    metas: [RecvMeta; BATCH_SIZE],
    /// Of these metas, so many were filled last.
    count: usize,
    /// The first whose datagrams were not all given, and how many bytes of it were.
    at: usize,
    given: usize,
}

/// A socket whose datagrams are not joined.
pub(crate) struct Datagrams {
    socket: Arc<dyn AsyncUdpSocket>,
    came: Mutex<Came>,
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagrams").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Datagrams {
    /// Within a tokio runtime.
    pub(crate) fn open(socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Self::of(TokioRuntime.wrap_udp_socket(socket)?))
    }

    fn of(socket: Arc<dyn AsyncUdpSocket>) -> Arc<dyn AsyncUdpSocket> {
        let buffer = vec![0; JOINED_MAX * BATCH_SIZE].into();
        let came = Came { buffer, metas: [RecvMeta::default(); BATCH_SIZE], count: 0, at: 0, given: 0 };
        Arc::new(Self { socket, came: Mutex::new(came) })
    }
}

/// Whether it begins with an Initial packet (RFC 9000 §17.2.2).
fn is_first(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0xf0 == 0xc0)
}

impl Came {
    fn fill(&mut self, socket: &dyn AsyncUdpSocket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut buffers = self.buffer.chunks_mut(JOINED_MAX).map(IoSliceMut::new);
        let mut buffers: [_; BATCH_SIZE] = std::array::from_fn(|_| buffers.next().expect("it has one for each"));
        self.count = ready!(socket.poll_recv(cx, &mut buffers, &mut self.metas))?;
        (self.at, self.given) = (0, 0);
        Poll::Ready(Ok(()))
    }

    /// The next datagram.
    fn next(&mut self) -> Option<(&[u8], RecvMeta)> {
        let meta = self.metas[..self.count].get(self.at)?;
        let from = self.at * JOINED_MAX + self.given;
        let len = meta.stride.min(meta.len - self.given);
        self.given += len;
        if self.given >= meta.len || len == 0 {
            (self.at, self.given) = (self.at + 1, 0);
        }
        Some((&self.buffer[from..from + len], RecvMeta { len, stride: len, ..*meta }))
    }
}

impl AsyncUdpSocket for Datagrams {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.socket.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut came = self.came.lock();
        loop {
            let mut count = 0;
            for (buffer, meta) in buffers.iter_mut().zip(&mut *metas) {
                // What has no room there is longer than either end may send.
                let fits = |(bytes, _): &(&[u8], RecvMeta)| {
                    bytes.len() <= if is_first(bytes) { buffer.len().min(FIRST_PACKET_MAX) } else { buffer.len() }
                };
                let (bytes, of) = loop {
                    match came.next() {
                        None => break (&[][..], None),
                        Some(next) if fits(&next) => break (next.0, Some(next.1)),
                        Some(_) => {}
                    }
                };
                let Some(of) = of else { break };
                buffer[..bytes.len()].copy_from_slice(bytes);
                *meta = of;
                count += 1;
            }
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
            ready!(came.fill(&*self.socket, cx))?;
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::task::Waker;

    /// Bytes, and how long each datagram of them is.
    type Batch = Vec<(Vec<u8>, usize)>;

    /// What the kernel gives.
    #[derive(Debug)]
    struct Kernel(Mutex<VecDeque<Batch>>);

    impl AsyncUdpSocket for Kernel {
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            unreachable!("nothing is sent")
        }

        fn try_send(&self, _: &Transmit<'_>) -> io::Result<()> {
            unreachable!("nothing is sent")
        }

        fn poll_recv(
            &self,
            _: &mut Context<'_>,
            buffers: &mut [IoSliceMut<'_>],
            metas: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            let Some(batch) = self.0.lock().pop_front() else { return Poll::Pending };
            for ((bytes, stride), (buffer, meta)) in batch.iter().zip(buffers.iter_mut().zip(metas)) {
                buffer[..bytes.len()].copy_from_slice(bytes);
                *meta = RecvMeta { len: bytes.len(), stride: *stride, ..RecvMeta::default() };
            }
            Poll::Ready(Ok(batch.len()))
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            unreachable!("nobody asks")
        }

        fn max_receive_segments(&self) -> usize {
            64
        }
    }

    #[test]
    fn what_the_kernel_has_joined_is_given_one_by_one() {
        let bytes = |len: usize, first: u8| (0..len).map(|at| first.wrapping_add(at as u8)).collect::<Vec<_>>();
        // 45 datagrams and a shorter one; a single one; one that is too long for quinn among others; an empty one; and first packets, of which one is too long.
        let batches = [
            vec![(bytes(45 * 1_400 + 25, 1), 1_400), (bytes(9, 2), 9)],
            vec![(bytes(4_000, 3), 2_000)],
            vec![(bytes(0, 4), 0), (bytes(7, 5), 7)],
            vec![(bytes(1_501, 0xc3), 1_501), (bytes(1_500, 0xcc), 1_500), (bytes(1_501, 0xd3), 1_501)],
        ];
        let expected = batches.iter().flatten().flat_map(|(bytes, stride)| {
            let most = if bytes.first() == Some(&0xc3) { FIRST_PACKET_MAX } else { 1_600 };
            bytes.chunks((*stride).max(1)).filter(|one| one.len() <= most).map(<[u8]>::to_vec).collect::<Vec<_>>()
        });
        let expected: Vec<_> = expected.collect();
        let socket = Datagrams::of(Arc::new(Kernel(Mutex::new(batches.into()))));
        assert_eq!(socket.max_receive_segments(), 1);
        let (mut came, mut cx) = (Vec::new(), Context::from_waker(Waker::noop()));
        let mut memory = [[0; 1_600]; 8];
        loop {
            let mut buffers = memory.each_mut().map(|one| IoSliceMut::new(one));
            let mut metas = [RecvMeta::default(); 8];
            let Poll::Ready(count) = socket.poll_recv(&mut cx, &mut buffers, &mut metas) else { break };
            for (meta, buffer) in metas.iter().zip(&buffers).take(count.unwrap()) {
                assert_eq!(meta.len, meta.stride);
                came.push(buffer[..meta.len].to_vec());
            }
        }
        came.retain(|one| !one.is_empty());
        assert_eq!(came, expected);
        assert_eq!(came.len(), 50);
    }
}
