//! `hoop-lab check`: is the lab's link what it says?
//!
//! Each measurement builds a lab of two hosts and a link, sends real packets and compares what it sees with what theory
//! says: rates within 2 %, round-trip times within a millisecond, losses within four standard deviations.

mod loss;
mod pair;
mod rate;
mod report;
mod rtt;

use crate::cli::Check;
use crate::failure::Failure;
use hoop_units::Bitrate;
use std::process::ExitCode;
use std::time::Duration;

/// A thin DSL uplink, a WLAN, Fast Ethernet, and more than any uplink that Hoop was made for.
const RATES: [Bitrate; 4] = [Bitrate::kbps(1_150), Bitrate::mbps(30), Bitrate::mbps(100), Bitrate::mbps(300)];

/// One-way delays: none at all, a LAN, DSL, a bad cellular link.
const DELAYS_MS: [u64; 4] = [0, 1, 10, 50];

/// Measures everything, prints it, and ends with 0 if all is within its limits and 1 if not.
pub fn main(arguments: &Check) -> Result<ExitCode, Failure> {
    hoop_lab::enter()?;
    let mut report = report::Report::start(arguments.json);
    for rate in RATES {
        report.add(rate::udp_up(rate)?);
        report.add(rate::tcp_down(rate)?);
    }
    for delay in DELAYS_MS.map(Duration::from_millis) {
        report.add(rtt::udp(delay)?);
    }
    loss::independent(arguments.seed)?.into_iter().for_each(|row| report.add(row));
    loss::bursts(arguments.seed)?.into_iter().for_each(|row| report.add(row));
    Ok(match report.finish() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}
