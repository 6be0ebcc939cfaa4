//! Logs of the servers, on the standard error stream: `HOOP_LOG` filters them: a level, or
//! `target=level` by module, with commas between (`info,hoop_gateway=debug`).

use crate::base::exit::{Exit, Failure};
use crate::base::terminal::Log;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt};

/// What reads packets and frames of strangers: it warns of each that is malformed or not expected, and any number of them may come.
const PACKETS: [&str; 3] = ["quinn_proto", "h2", "hyper_util"];

/// Starts logging: at `info`, unless `HOOP_LOG` says otherwise.
pub fn start(as_json: bool) -> Result<(), Failure> {
    let wanted = std::env::var("HOOP_LOG").unwrap_or_else(|_| "info,mdns_sd=warn".to_owned());
    let filter = filter(&wanted)
        .map_err(|error| Failure::new(Exit::Usage, format!("HOOP_LOG is not a valid filter: `{wanted}`"), error))?;
    // Without colours: what colours a word could be in a name, too, and is shown escaped.
    let layer = fmt::layer().with_ansi(false).with_writer(Log);
    let layer = match as_json {
        true => layer.json().boxed(),
        false => layer.boxed(),
    };
    let started = Registry::default().with(layer.with_filter(filter)).try_init();
    started.map_err(|error| Failure::new(Exit::Unexpected, "cannot start logging", error))
}

/// What is logged. Of each of [`PACKETS`] that is nothing below an error, unless it is named.
fn filter(wanted: &str) -> Result<Targets, ParseError> {
    // `Targets` and not `EnvFilter`: it needs no regular expressions, which on a router would be a tenth of the program.
    let filter: Targets = wanted.parse()?;
    let most = filter.default_level().unwrap_or(LevelFilter::OFF).min(LevelFilter::ERROR);
    let is_named = |packets: &&str| filter.iter().any(|(target, _)| target.split("::").next() == Some(packets));
    let unnamed: Vec<_> =
        PACKETS.into_iter().filter(|packets| !is_named(packets)).map(|packets| (packets, most)).collect();
    Ok(filter.with_targets(unnamed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn packets_of_strangers_are_no_lines_of_a_log_unless_they_are_asked_for() {
        for (wanted, level, is_logged) in [
            ("info,mdns_sd=warn", Level::WARN, false),
            ("info,mdns_sd=warn", Level::ERROR, true),
            ("debug", Level::WARN, false),
            ("hoop_relay=debug,hoop_endpoint=debug", Level::WARN, false),
            ("off,audit=info", Level::ERROR, false),
            ("info,quinn_proto=debug", Level::DEBUG, true),
        ] {
            let filter = filter(wanted).unwrap();
            assert_eq!(filter.would_enable("quinn_proto::connection", &level), is_logged, "{wanted} {level}");
            let is_logged = is_logged && !wanted.contains("quinn");
            assert_eq!(filter.would_enable("h2::proto::ping_pong", &level), is_logged, "{wanted} {level}");
        }
        assert!(filter("info,h2=warn").unwrap().would_enable("h2::proto::ping_pong", &Level::WARN));
        assert!(!filter("hoop_h2=warn,info").unwrap().would_enable("h2::proto::ping_pong", &Level::WARN));
        assert!(filter("info").unwrap().would_enable("hoop_relay", &Level::INFO));
    }
}
