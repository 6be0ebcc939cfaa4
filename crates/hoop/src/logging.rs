//! Logs of the servers, on the standard error stream: `HOOP_LOG` filters them as `RUST_LOG` does elsewhere.

use crate::exit::{Exit, Failure};
use tracing_subscriber::EnvFilter;

/// Starts logging: at `info`, unless `HOOP_LOG` says otherwise.
pub fn start(as_json: bool) -> Result<(), Failure> {
    let wanted = std::env::var("HOOP_LOG").unwrap_or_else(|_| "info,mdns_sd=warn".to_owned());
    let filter = EnvFilter::try_new(&wanted)
        .map_err(|error| Failure::new(Exit::Usage, format!("HOOP_LOG is no filter: `{wanted}`"), error))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match as_json {
        true => builder.json().try_init(),
        false => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
    };
    started.map_err(|error| Failure::new(Exit::Unexpected, "logging cannot be started", error))
}
