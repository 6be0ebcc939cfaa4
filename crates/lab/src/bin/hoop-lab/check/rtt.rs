//! Round-trip times: a datagram there and back.

use super::pair::pair;
use super::report::Row;
use crate::failure::Failure;
use hoop_lab::LinkConfig;
use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

/// How much the lab may add.
const TOLERANCE_MS: f64 = 1.0;

/// How many datagrams go there and back; the middle one counts.
const PINGS: usize = 31;

/// How long to wait for one before giving up.
const PATIENCE: Duration = Duration::from_secs(2);

/// The median round-trip time over a link with this one-way delay.
pub fn udp(delay: Duration) -> Result<Row, Failure> {
    let link = LinkConfig::new().delay(delay);
    let lab = pair(link.clone(), link, 1)?;
    let bind = |host| lab.in_host(host, || UdpSocket::bind("0.0.0.0:7")).map_err(failed);
    let (ping, pong) = (bind("a")?, bind("b")?);
    for socket in [&ping, &pong] {
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    }
    ping.connect((lab.address("b"), 7)).map_err(failed)?;
    let times = thread::scope(|scope| {
        scope.spawn(|| echo(&pong));
        (0..PINGS).map(|_| round_trip(&ping)).collect::<io::Result<Vec<_>>>()
    });
    let mut times = times.map_err(failed)?;
    times.sort_unstable();
    let least = 2_000.0 * delay.as_secs_f64();
    Ok(Row {
        quantity: "round-trip time",
        setting: format!("2 × {} ms", delay.as_millis()),
        unit: "ms",
        limits: least..=least + TOLERANCE_MS,
        measured: 1_000.0 * times[PINGS / 2].as_secs_f64(),
    })
}

fn echo(socket: &UdpSocket) {
    for _ in 0..PINGS {
        let mut buffer = [0; 64];
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { return };
        if socket.send_to(&buffer[..length], from).is_err() {
            return;
        }
    }
}

fn round_trip(socket: &UdpSocket) -> io::Result<Duration> {
    let start = Instant::now();
    socket.send(&[0; 56])?;
    socket.recv(&mut [0; 64])?;
    Ok(start.elapsed())
}

fn failed(source: io::Error) -> Failure {
    Failure::Refused { doing: "measuring a round-trip time".to_owned(), source }
}
