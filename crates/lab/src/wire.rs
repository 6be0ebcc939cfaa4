//! A link in real time: two devices, and a thread that drives the two machines between them.
//!
//! ```text
//!  first host's device ──read──▶ up:   hoop_netem::Link ──write──▶ second host's device
//!                      ◀─write── down: hoop_netem::Link ◀──read───
//! ```
//!
//! A turn reads what came, tells the machines the time, and writes what is due. Then the thread sleeps until a packet
//! comes or the next one is due. After a turn that moved packets it rests for [`REST`] first: packets then move a
//! handful at a time, at a fifth of the cost, and since the machines reckon in exact time a rest makes single packets
//! late but does not change the rate. A link that is [prompt](crate::Link::prompt) does not rest.

use crate::Link as Spec;
use crate::device::ETHERNET_HEADER_BYTES;
use hoop_netem::{Change, Counters, Link, Packet};
use hoop_units::Timestamp;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the thread rests after it has moved packets: a tenth of the millisecond that a link may add, and at
/// 300 Mbit/s the time of two or three packets.
const REST: Duration = Duration::from_micros(100);

/// Most packets that a turn reads from one device before it looks at the other.
const READ_BATCH: usize = 256;

/// Least real-time priority: above all ordinary programs, below whatever the machine thinks urgent.
const PRIORITY: libc::c_int = 1;

/// The lab's clock: the zero of schedules and traces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

/// A frame of a TAP device, which counts as the IP packet in it.
#[derive(Debug)]
struct Frame(Box<[u8]>);

impl Packet for Frame {
    fn size(&self) -> usize {
        self.0.len().saturating_sub(ETHERNET_HEADER_BYTES)
    }
}

/// A running link. Dropping it ends the thread and, with the files, the devices.
#[derive(Debug)]
pub(crate) struct Wire {
    shared: Arc<Shared>,
    waker: UnixStream,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    stop: AtomicBool,
    /// Up and down. The thread holds the lock for a turn, never while it sleeps.
    links: Mutex<[Link<Frame>; 2]>,
}

impl Wire {
    /// Starts the thread. `ends` are the devices of the first host and of the second; `seeds` are for up and down.
    pub(crate) fn start(spec: &Spec, ends: [File; 2], seeds: [u64; 2], clock: Clock) -> io::Result<Self> {
        let configs = [&spec.up, &spec.down];
        let links = [0, 1].map(|at| Link::new(configs[at].clone(), seeds[at], Timestamp::ZERO));
        let shared = Arc::new(Shared { clock, stop: AtomicBool::new(false), links: Mutex::new(links) });
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let buffer = vec![0; FRAME_BYTES_MAX];
        let mut driver = Driver { shared: Arc::clone(&shared), ends, woken, rests: !spec.prompt, buffer };
        let thread = thread::Builder::new().name(format!("link {}", spec.name)).spawn(move || driver.run())?;
        Ok(Self { shared, waker, thread: Some(thread) })
    }

    /// Changes one direction now: 0 is up, 1 is down.
    pub(crate) fn change(&self, direction: usize, change: Change) {
        let mut links = self.shared.links.lock();
        let now = self.shared.clock.now();
        links[direction].change(change, now);
        drop(links);
        self.wake();
    }

    /// The counters of up and down.
    pub(crate) fn counters(&self) -> [Counters; 2] {
        self.shared.links.lock().each_ref().map(Link::counters)
    }

    fn wake(&self) {
        // If the socket is full, the thread has been woken and has yet to look.
        let _ = (&self.waker).write(&[0]);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // If it panicked, it said so, and is gone all the same.
            let _ = thread.join();
        }
    }
}

/// A frame around the longest IP packet.
const FRAME_BYTES_MAX: usize = ETHERNET_HEADER_BYTES + 65_535;

/// What the thread owns.
struct Driver {
    shared: Arc<Shared>,
    ends: [File; 2],
    woken: UnixStream,
    rests: bool,
    buffer: Vec<u8>,
}

impl Driver {
    fn run(&mut self) {
        be_prompt();
        while !self.shared.stop.load(Ordering::Acquire) {
            let (moved, deadline) = self.turn();
            if moved && self.rests {
                thread::sleep(REST);
            } else if !self.wait(deadline) {
                // A program in a host may do this, as one may pull a plug; there is no way to put it in again.
                return tracing::info!("an end of the link was removed");
            }
        }
    }

    /// Moves whatever can be moved now. Says whether anything was, and when something is due next.
    fn turn(&mut self) -> (bool, Option<Timestamp>) {
        let shared = Arc::clone(&self.shared);
        let mut links = shared.links.lock();
        let mut moved = false;
        for (direction, link) in links.iter_mut().enumerate() {
            moved |= self.read(direction, link);
            link.handle_timeout(shared.clock.now());
            moved |= self.write(1 - direction, link);
        }
        (moved, links.iter().filter_map(Link::poll_timeout).min())
    }

    fn read(&mut self, end: usize, link: &mut Link<Frame>) -> bool {
        for count in 0..READ_BATCH {
            // An error other than "nothing there" means that the device is gone, which `wait` will find.
            let Ok(length) = self.ends[end].read(&mut self.buffer) else { return count > 0 };
            link.handle_input(Frame(self.buffer[..length].into()), self.shared.clock.now());
        }
        true
    }

    fn write(&mut self, end: usize, link: &mut Link<Frame>) -> bool {
        let mut moved = false;
        while let Some(delivery) = link.poll_output() {
            moved = true;
            // Refused only if the device is down, that is if a program in the host turned it off.
            if let Err(error) = self.ends[end].write(&delivery.packet.0) {
                tracing::trace!(%error, "a host did not take a packet");
            }
        }
        moved
    }

    /// Sleeps until a packet comes, the deadline is there, or somebody wakes us. Says whether both devices are there.
    fn wait(&mut self, deadline: Option<Timestamp>) -> bool {
        let timeout = deadline.map(|deadline| TimeSpec::from(deadline.since(self.shared.clock.now())));
        let [first, second] = &self.ends;
        let mut files =
            [first.as_fd(), second.as_fd(), self.woken.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        // An interrupted wait is a turn more.
        let _ = ppoll(&mut files, timeout, None);
        let gone = |file: &PollFd| file.revents().is_some_and(|events| events.contains(PollFlags::POLLERR));
        let both_there = !files[..2].iter().any(gone);
        let mut wakes = [0; 64];
        while matches!((&self.woken).read(&mut wakes), Ok(1..)) {}
        both_there
    }
}

/// Asks to be woken on time. A link is a piece of hardware and does not wait for programs; where that is not allowed
/// (in a user namespace), it is as prompt as an ordinary thread.
fn be_prompt() {
    let _ = nix::sys::prctl::set_timerslack(1);
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the pointer is to a structure that lives as long as the call; 0 means the calling thread.
    #[allow(unsafe_code)]
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &parameters) };
    if result == -1 {
        tracing::debug!(error = %io::Error::last_os_error(), "no real-time priority for a link");
    }
}
