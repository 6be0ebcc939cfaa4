//! Losses: numbered datagrams over a lossy link, and which of them are missing.

use super::pair::pair;
use super::report::Row;
use crate::failure::Failure;
use hoop_lab::{GilbertElliott, LinkConfig, Loss, Probability};
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

/// Datagrams in a run.
const DATAGRAMS: u32 = 20_000;

/// Datagrams sent in a millisecond: a fiftieth of what a device's queue holds, so that only the link loses any.
const PER_MILLISECOND: u32 = 20;

/// Room for a whole run at the receiver, if the system lets us, by the kernel's way of counting (about 1 KiB each).
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;

/// How long after the last datagram no more will come.
const SILENCE: Duration = Duration::from_millis(200);

/// How many standard deviations a measurement may be off: right links are called wrong once in 16,000 runs.
const SIGMAS: f64 = 4.0;

/// One loss in twenty, each by itself.
pub fn independent(seed: u64) -> Result<[Row; 1], Failure> {
    let (mean, n) = (0.05, f64::from(DATAGRAMS));
    let probability = Probability::new(mean).expect("one in twenty is a probability");
    let lost = run(Loss::Independent(probability), seed)?;
    let sigma = (mean * (1.0 - mean) / n).sqrt();
    Ok([mean_row("loss, independent", "5 %".to_owned(), mean, sigma, &lost)])
}

/// One loss in twenty, in bursts of four.
pub fn bursts(seed: u64) -> Result<[Row; 2], Failure> {
    let (mean, burst, n) = (0.05, 4.0, f64::from(DATAGRAMS));
    let model = GilbertElliott::bursts(mean, burst).expect("one in twenty may come in fours");
    let lost = run(Loss::GilbertElliott(model), seed)?;
    // The states that successive datagrams meet are correlated by 1−p−r, which widens the spread of their mean.
    let rho = 1.0 - model.to_bad.as_f64() - model.to_good.as_f64();
    let sigma = (mean * (1.0 - mean) / n * (1.0 + rho) / (1.0 - rho)).sqrt();
    let setting = "5 %, bursts of 4";
    let mean_row = mean_row("loss, Gilbert–Elliott", setting.to_owned(), mean, sigma, &lost);

    let missing = lost.iter().filter(|lost| **lost).count() as f64;
    let first = usize::from(lost[0]);
    let count = (first + lost.windows(2).filter(|pair| !pair[0] && pair[1]).count()) as f64;
    // Bursts are geometric.
    let sigma = (burst * (burst - 1.0) / count.max(1.0)).sqrt();
    let burst_row = Row {
        quantity: "length of its bursts",
        setting: setting.to_owned(),
        unit: "packets",
        limits: burst - SIGMAS * sigma..=burst + SIGMAS * sigma,
        measured: missing / count.max(1.0),
    };
    Ok([mean_row, burst_row])
}

fn mean_row(quantity: &'static str, setting: String, mean: f64, sigma: f64, lost: &[bool]) -> Row {
    let measured = lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64;
    let limits = 100.0 * (mean - SIGMAS * sigma)..=100.0 * (mean + SIGMAS * sigma);
    Row { quantity, setting, unit: "%", limits, measured: 100.0 * measured }
}

/// Sends datagrams over a link with this loss; for each, whether it was lost.
fn run(loss: Loss, seed: u64) -> Result<Vec<bool>, Failure> {
    let lab = pair(LinkConfig::new().loss(loss), LinkConfig::new(), seed)?;
    let receiver = lab.in_host("b", || UdpSocket::bind("0.0.0.0:9")).map_err(failed)?;
    receiver.set_read_timeout(Some(SILENCE)).map_err(failed)?;
    // Reserved to the machine's root; without it, a receiver that is kept from running for long may lose datagrams.
    let _ = setsockopt(&receiver, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES);
    let sender = lab.in_host("a", || UdpSocket::bind("0.0.0.0:0")).map_err(failed)?;
    sender.connect((lab.address("b"), 9)).map_err(failed)?;
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver));
        for number in 0..DATAGRAMS {
            sender.send(&number.to_be_bytes()).map_err(failed)?;
            if number % PER_MILLISECOND == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(receiving.join().expect("receiving does not panic"))
    })
}

fn receive(socket: &UdpSocket) -> Vec<bool> {
    let mut lost = vec![true; DATAGRAMS as usize];
    let mut buffer = [0; 4];
    while socket.recv(&mut buffer).is_ok() {
        if let Some(place) = lost.get_mut(u32::from_be_bytes(buffer) as usize) {
            *place = false;
        }
    }
    lost
}

fn failed(source: io::Error) -> Failure {
    Failure::Refused { doing: "measuring losses".to_owned(), source }
}
