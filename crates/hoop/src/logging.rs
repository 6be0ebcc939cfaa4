//! Logs of the servers, on the standard error stream: `HOOP_LOG` filters them: a level, or
//! `target=level` by module, with commas between (`info,hoop_gateway=debug`).

use crate::exit::{Exit, Failure};
use crate::terminal::Log;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt};

/// Starts logging: at `info`, unless `HOOP_LOG` says otherwise.
pub fn start(as_json: bool) -> Result<(), Failure> {
    let wanted = std::env::var("HOOP_LOG").unwrap_or_else(|_| "info,mdns_sd=warn".to_owned());
    // `Targets` and not `EnvFilter`: it needs no regular expressions, which on a router would be a tenth of the program.
    let filter: Targets = wanted
        .parse()
        .map_err(|error| Failure::new(Exit::Usage, format!("HOOP_LOG is no filter: `{wanted}`"), error))?;
    // Without colours: what colours a word could be in a name, too, and is shown escaped.
    let layer = fmt::layer().with_ansi(false).with_writer(Log);
    let layer = match as_json {
        true => layer.json().boxed(),
        false => layer.boxed(),
    };
    let started = Registry::default().with(layer.with_filter(filter)).try_init();
    started.map_err(|error| Failure::new(Exit::Unexpected, "logging cannot be started", error))
}
