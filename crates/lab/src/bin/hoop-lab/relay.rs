//! `hoop-lab relay`: TCP over a thin line, without namespaces.

use crate::cli::Relay as Arguments;
use crate::failure::Failure;
use hoop_lab::{LinkConfig, QueueLimit, Relay, RelayConfig};
use hoop_units::Bitrate;
use std::process::ExitCode;

/// Relays until interrupted.
pub fn main(arguments: Arguments) -> Result<ExitCode, Failure> {
    let direction = |rate: Option<Bitrate>| {
        let link = LinkConfig::new().delay(arguments.delay).queue(QueueLimit::bytes(arguments.queue));
        match rate {
            Some(rate) => link.rate(rate),
            None => link,
        }
    };
    let config = RelayConfig {
        listen: arguments.listen,
        to: arguments.to,
        up: direction(arguments.up),
        down: direction(arguments.down),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::refused("the relay could not start"))?.block_on(async {
        let relay = Relay::bind(config).await?;
        eprintln!("hoop-lab: relaying {} to {}", relay.local_address(), arguments.to);
        let interrupted = async {
            // Without the signal's handler an interrupt ends the process just as well.
            let _ = tokio::signal::ctrl_c().await;
        };
        relay.run(interrupted).await;
        Ok(ExitCode::SUCCESS)
    })
}
