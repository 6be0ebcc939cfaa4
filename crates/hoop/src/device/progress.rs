//! What a push shows while it runs: a bar on a terminal, a line or two elsewhere, nothing with `--quiet`.

use super::show;
use hoop_client::{Event, GatewayIdentity, Way};
use hoop_http::Origin;
use hoop_units::plain;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where events are shown: on the standard error stream, so that the standard output is the result alone.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    verbose: bool,
    /// Whether nobody need stay any longer.
    may_leave: AtomicBool,
}

impl Progress {
    /// A bar if the standard error stream is a terminal.
    pub fn new(quiet: bool, verbose: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new_spinner().with_message("looking for a gateway · fetching a ticket");
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { bar, quiet, verbose, may_leave: AtomicBool::new(true) }
    }

    /// Shows an event.
    pub fn show(&self, event: &Event) {
        match event {
            Event::Measured { bytes } => self.detail(|| format!("{} to send", show::bytes(*bytes))),
            Event::Ticket { id, ahead } => {
                self.detail(|| {
                    format!("upload {id}{}", if *ahead { ", with a ticket fetched in advance" } else { "" })
                });
                self.phase("waiting for the gateway");
            }
            Event::Way { way, because } => self.way(way, because.as_deref()),
            Event::Progress { sent, total } => {
                if let Some(bar) = &self.bar {
                    if bar.length() != Some(*total) {
                        bar.set_style(sending_style());
                        bar.set_length(*total);
                    }
                    bar.set_position(*sent);
                }
            }
            Event::Broken { reason } => {
                self.say(&format!("{reason}; trying again"));
            }
            Event::Identity { origin, identity, trusted } => self.identity(origin, identity, *trusted),
            Event::Stored { monitor, may_leave } => {
                self.may_leave.store(*may_leave, Ordering::Relaxed);
                if let Some(bar) = &self.bar {
                    bar.set_style(ProgressStyle::default_spinner());
                    self.phase(format!("{} · waiting for the rest", self.leave()));
                }
                if let Some(monitor) = monitor {
                    self.detail(|| format!("stored; follow it at {monitor}"));
                }
            }
            Event::Status(status) => {
                let reason = status.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                let by = if status.is_claim() { ", says the gateway" } else { "" };
                self.phase(format!("{} · {}{by}{reason}", self.leave(), status.state));
                self.detail(|| format!("{}{by}{reason}", status.state));
            }
            Event::Doubt { reason } => self.say(&format!("{reason}: sending what the service lacks by another way")),
            Event::Resumable { id } => self.say(&format!("to continue it later: hoop resume {id}")),
            Event::Forgotten { reason } => {
                self.say(&format!(
                    "`hoop status` will not know this upload, since its record could not be written: {reason}"
                ));
            }
        }
    }

    /// Takes the bar away, for the last word.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn way(&self, way: &Way, because: Option<&str>) {
        let because = because.map(|because| format!(", since {because}")).unwrap_or_default();
        match way {
            Way::Gateway(origin) => {
                self.phase(format!("handing over to {origin}"));
                match because.is_empty() {
                    true => self.detail(|| format!("sealed, to the gateway {origin}")),
                    false => self.say(&format!("sealed, to the gateway {origin}{because}")),
                }
            }
            Way::Direct => self.say(&format!("sealed, to the service directly{because}")),
            Way::Plain => self.say(&format!("as the ordinary request, not sealed{because}")),
        }
    }

    /// Whether to stay.
    fn leave(&self) -> &'static str {
        if self.may_leave.load(Ordering::Relaxed) { "you may leave" } else { "please stay" }
    }

    /// Who the gateway is, and what follows if that is not known.
    fn identity(&self, origin: &Origin, identity: &GatewayIdentity, trusted: bool) {
        let stays = match trusted {
            true => "relying on it, as you asked",
            false => "this push stays until the service has everything, unless you use --trust-new-gateway",
        };
        match identity {
            GatewayIdentity::Listed => self.detail(|| format!("{origin} is a gateway that the service lists")),
            GatewayIdentity::Known => self.detail(|| format!("{origin} is known here")),
            GatewayIdentity::New { name } => {
                self.say(&format!("{origin} is new here: gateway {name}; this device will know it again by its key"));
            }
            GatewayIdentity::Changed { name, known } => {
                let known = known.join(", ");
                self.say(&format!(
                    "WARNING: {origin} is gateway {name}, not the one known here ({known}). Someone may be posing as it: {stays}"
                ));
            }
            GatewayIdentity::Unproven { known } if known.is_empty() => {
                self.say(&format!(
                    "{origin} does not show who it is (an older gateway, one behind a router, or someone else): {stays}"
                ));
            }
            GatewayIdentity::Unproven { known } => {
                let known = known.join(", ");
                self.say(&format!(
                    "WARNING: {origin} does not prove that it is the gateway known here ({known}): {stays}"
                ));
            }
        }
    }

    /// What everybody should know.
    fn say(&self, line: &str) {
        let line = plain::line(line);
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.suspend(|| eprintln!("hoop: {line}")),
            None => eprintln!("hoop: {line}"),
        }
    }

    /// What `--verbose` asks for.
    fn detail(&self, line: impl FnOnce() -> String) {
        if self.verbose {
            self.say(&line());
        }
    }

    fn phase(&self, message: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_message(plain::line(&message.into()));
        }
    }
}

fn sending_style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} · {bytes_per_sec} · {eta} left")
        .expect("the template is ours")
        .progress_chars("━╸ ")
}
