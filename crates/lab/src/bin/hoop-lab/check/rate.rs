//! Rates: how many bytes of IP the far host receives in a second, by the kernel's own count of its interface.

use super::pair::pair;
use super::report::Row;
use crate::failure::Failure;
use hoop_lab::{Lab, LinkConfig};
use hoop_units::Bitrate;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How far a rate may be off.
const TOLERANCE: f64 = 0.02;

/// How long senders run before the measurement: TCP has found the rate by then.
const WARM_UP: Duration = Duration::from_millis(400);

/// How long a measurement takes: at 1.15 Mbit/s one packet more or less is then a quarter of a per cent.
const WINDOW: Duration = Duration::from_secs(2);
const WINDOW_OF_THE_THIN: Duration = Duration::from_secs(4);
const THIN: Bitrate = Bitrate::mbps(10);

/// UDP payload that fills an MTU of 1,500 bytes.
const PAYLOAD_BYTES: usize = 1_472;

/// UDP from the first host to the second, a fifth more than passes.
pub fn udp_up(rate: Bitrate) -> Result<Row, Failure> {
    let lab = pair(LinkConfig::new().rate(rate), LinkConfig::new(), 1)?;
    let sink = lab.in_host("b", || UdpSocket::bind("0.0.0.0:9"));
    let socket = lab.in_host("a", || UdpSocket::bind("0.0.0.0:0"));
    let (_sink, socket) = (sink.map_err(failed)?, socket.map_err(failed)?);
    socket.connect((lab.address("b"), 9)).map_err(failed)?;
    let stop = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        scope.spawn(|| flood(&socket, Bitrate::bps(rate.as_bps() / 5 * 6), &stop));
        let measured = measure(&lab, "b", window(rate));
        stop.store(true, Ordering::Relaxed);
        measured
    });
    Ok(row("rate of UDP, up", rate, measured.map_err(failed)?))
}

/// TCP from the second host to the first.
pub fn tcp_down(rate: Bitrate) -> Result<Row, Failure> {
    let delay = Duration::from_millis(1);
    let lab = pair(LinkConfig::new().delay(delay), LinkConfig::new().delay(delay).rate(rate), 1)?;
    let listener = lab.in_host("b", || TcpListener::bind("0.0.0.0:9")).map_err(failed)?;
    let sink = lab.in_host("a", || TcpStream::connect((lab.address("b"), 9))).map_err(failed)?;
    let (source, _) = listener.accept().map_err(failed)?;
    let measured = thread::scope(|scope| {
        scope.spawn(|| send_until_closed(&source));
        scope.spawn(|| receive_until_closed(&sink));
        let measured = measure(&lab, "a", window(rate));
        // Ends both threads; an error means that they have ended by themselves.
        let _ = source.shutdown(std::net::Shutdown::Both);
        let _ = sink.shutdown(std::net::Shutdown::Both);
        measured
    });
    Ok(row("rate of TCP, down", rate, measured.map_err(failed)?))
}

/// Sends at a rate. A thread that comes late catches up, by at most a burst.
fn flood(socket: &UdpSocket, rate: Bitrate, stop: &AtomicBool) {
    /// Enough for the link to be busy at once, and less than a device's queue.
    const BURST: u64 = 100;
    let packet = [0; PAYLOAD_BYTES];
    let time = rate.time_for(1_500);
    let (start, mut sent) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_nanos() / time.as_nanos().max(1)) as u64 + 10;
        for _ in sent..due.min(sent + BURST) {
            // The device's queue may be full: that is what a flood is for.
            let _ = socket.send(&packet);
        }
        sent = due;
        thread::sleep(Duration::from_millis(1));
    }
}

fn send_until_closed(mut socket: &TcpStream) {
    let chunk = vec![0; 256 * 1024];
    while socket.write_all(&chunk).is_ok() {}
}

fn receive_until_closed(mut socket: &TcpStream) {
    let mut buffer = vec![0; 256 * 1024];
    while matches!(socket.read(&mut buffer), Ok(1..)) {}
}

/// The rate in Mbit/s at which IP comes in at a host.
fn measure(lab: &Lab, host: &str, window: Duration) -> io::Result<f64> {
    lab.in_host(host, || {
        thread::sleep(WARM_UP);
        let (start, before) = (Instant::now(), received_bytes()?);
        thread::sleep(window);
        let (time, after) = (start.elapsed(), received_bytes()?);
        Ok((after - before) as f64 * 8.0 / time.as_secs_f64() / 1e6)
    })
}

/// Bytes of IP that the interface `wire` of the calling thread's host has received, without Ethernet's headers.
fn received_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let count = || -> Option<u64> {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("wire:"))?;
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (bytes, packets) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        bytes.checked_sub(14 * packets)
    };
    count().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/net/dev has no line for `wire`"))
}

fn window(rate: Bitrate) -> Duration {
    if rate < THIN { WINDOW_OF_THE_THIN } else { WINDOW }
}

fn row(quantity: &'static str, rate: Bitrate, measured: f64) -> Row {
    let limits = rate.as_mbps() * (1.0 - TOLERANCE)..=rate.as_mbps() * (1.0 + TOLERANCE);
    Row { quantity, setting: rate.to_string(), unit: "Mbit/s", limits, measured }
}

fn failed(source: io::Error) -> Failure {
    Failure::Refused { doing: "measuring a rate".to_owned(), source }
}
