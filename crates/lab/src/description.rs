//! A topology as a TOML document: [`Topology::from_toml`] and [`Topology::from_file`]. See `docs/lab.md` for an example.
//!
//! Keys that are not known are refused, since a misspelt `delay` would otherwise be a link without one.

use crate::text::{QuantityError, parse_bitrate, parse_bytes, parse_duration, parse_percent};
use crate::topology::{Host, Link, MTU_DEFAULT, Topology};
use hoop_netem::{
    Change, GilbertElliott, LinkConfig, Loss, Probability, QueueLimit, Rate, Schedule, Trace, TraceError,
};
use hoop_units::Bitrate;
use serde::Deserialize;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Largest description, and largest trace file, that is read: 64 MiB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why a text is no description of a topology.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// Not TOML, a key that is not known, or a value that is not of its form; says where.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// Values that do not go together.
    #[error("link `{link}`: {field}: {reason}")]
    Field {
        /// The link.
        link: String,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is no trace.
    #[error("{}: {source}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// Why.
        source: TraceError,
    },
}

impl Topology {
    /// Reads the description in a file; traces are found beside it.
    ///
    /// # Errors
    /// If the file, or a trace that it names, cannot be read or is not of the form.
    pub fn from_file(path: &Path) -> Result<Self, DescriptionError> {
        Self::from_toml(&read(path)?, path.parent().unwrap_or(Path::new("")))
    }

    /// Reads a description; the names of trace files are relative to `folder`.
    ///
    /// # Errors
    /// If the text, or a trace that it names, is not of the form.
    pub fn from_toml(text: &str, folder: &Path) -> Result<Self, DescriptionError> {
        let file: TopologyTable = toml::from_str(text)?;
        let hosts = file.hosts.into_iter().map(HostTable::into_host).collect();
        let links = file.links.into_iter().map(|link| link.into_link(folder)).collect::<Result<_, _>>()?;
        Ok(Self { hosts, links, seed: file.seed.unwrap_or(Self::new().seed) })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyTable {
    seed: Option<u64>,
    hosts: Vec<HostTable>,
    #[serde(default)]
    links: Vec<LinkTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    name: String,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    forwarding: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    name: String,
    between: [String; 2],
    addresses: Option<[Ipv4Addr; 2]>,
    mtu: Option<u32>,
    #[serde(default)]
    prompt: bool,
    #[serde(default)]
    both: DirectionTable,
    #[serde(default)]
    up: DirectionTable,
    #[serde(default)]
    down: DirectionTable,
}

/// What stands under `both`, `up` or `down`.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectionTable {
    rate: Option<RateText>,
    trace: Option<PathBuf>,
    delay: Option<DurationText>,
    jitter: Option<DurationText>,
    reorder: Option<bool>,
    loss: Option<PercentText>,
    loss_burst: Option<f64>,
    queue: Option<BytesText>,
    queue_packets: Option<usize>,
    connected: Option<bool>,
    schedule: Option<Vec<ChangeTable>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeTable {
    at: DurationText,
    rate: Option<RateText>,
    trace: Option<PathBuf>,
    delay: Option<DurationText>,
    jitter: Option<DurationText>,
    loss: Option<PercentText>,
    loss_burst: Option<f64>,
    connected: Option<bool>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct RateText(Bitrate);

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct DurationText(Duration);

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct BytesText(usize);

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct PercentText(Probability);

impl TryFrom<String> for RateText {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, QuantityError> {
        parse_bitrate(&text).map(Self)
    }
}

impl TryFrom<String> for DurationText {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, QuantityError> {
        parse_duration(&text).map(Self)
    }
}

impl TryFrom<String> for BytesText {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, QuantityError> {
        parse_bytes(&text).map(Self)
    }
}

impl TryFrom<String> for PercentText {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, QuantityError> {
        parse_percent(&text).map(Self)
    }
}

impl HostTable {
    fn into_host(self) -> Host {
        Host { name: self.name, names: self.names, forwarding: self.forwarding }
    }
}

impl LinkTable {
    fn into_link(self, folder: &Path) -> Result<Link, DescriptionError> {
        let place = Place { link: &self.name, folder };
        let up = self.up.or(&self.both).into_config(place)?;
        let down = self.down.or(&self.both).into_config(place)?;
        let mtu = self.mtu.unwrap_or(MTU_DEFAULT);
        Ok(Link {
            name: self.name,
            between: self.between,
            addresses: self.addresses,
            up,
            down,
            mtu,
            prompt: self.prompt,
        })
    }
}

impl DirectionTable {
    /// What this does not say, `both` says. A rate or trace replaces either of them, and so does a loss.
    fn or(self, both: &Self) -> Self {
        let own_rate = self.rate.is_some() || self.trace.is_some();
        let own_loss = self.loss.is_some() || self.loss_burst.is_some();
        Self {
            rate: if own_rate { self.rate } else { both.rate },
            trace: if own_rate { self.trace } else { both.trace.clone() },
            delay: self.delay.or(both.delay),
            jitter: self.jitter.or(both.jitter),
            reorder: self.reorder.or(both.reorder),
            loss: if own_loss { self.loss } else { both.loss },
            loss_burst: if own_loss { self.loss_burst } else { both.loss_burst },
            queue: self.queue.or(both.queue),
            queue_packets: self.queue_packets.or(both.queue_packets),
            connected: self.connected.or(both.connected),
            schedule: self.schedule.or(both.schedule.clone()),
        }
    }

    fn into_config(self, place: Place<'_>) -> Result<LinkConfig, DescriptionError> {
        let plain = LinkConfig::new();
        let schedule: Schedule = self
            .schedule
            .unwrap_or_default()
            .into_iter()
            .map(|change| Ok((change.at.0, change.into_change(place)?)))
            .collect::<Result<_, DescriptionError>>()?;
        Ok(LinkConfig {
            rate: place.rate(self.rate, self.trace)?.unwrap_or(plain.rate),
            delay: self.delay.map_or(plain.delay, |text| text.0),
            jitter: self.jitter.map_or(plain.jitter, |text| text.0),
            reorder: self.reorder.unwrap_or(plain.reorder),
            loss: place.loss(self.loss, self.loss_burst)?.unwrap_or(plain.loss),
            queue: queue(self.queue, self.queue_packets),
            connected: self.connected.unwrap_or(plain.connected),
            schedule,
        })
    }
}

impl ChangeTable {
    fn into_change(self, place: Place<'_>) -> Result<Change, DescriptionError> {
        Ok(Change {
            rate: place.rate(self.rate, self.trace)?,
            delay: self.delay.map(|text| text.0),
            jitter: self.jitter.map(|text| text.0),
            loss: place.loss(self.loss, self.loss_burst)?,
            connected: self.connected,
        })
    }
}

/// Bounds that are given hold; if only packets are bounded, bytes are not.
fn queue(bytes: Option<BytesText>, packets: Option<usize>) -> QueueLimit {
    match (bytes, packets) {
        (None, None) => QueueLimit::default(),
        (bytes, packets) => {
            QueueLimit { bytes: bytes.map_or(usize::MAX, |text| text.0), packets: packets.unwrap_or(usize::MAX) }
        }
    }
}

/// Which link is being read, for errors, and where its traces lie.
#[derive(Clone, Copy)]
struct Place<'a> {
    link: &'a str,
    folder: &'a Path,
}

impl Place<'_> {
    fn rate(self, rate: Option<RateText>, trace: Option<PathBuf>) -> Result<Option<Rate>, DescriptionError> {
        match (rate, trace) {
            (None, None) => Ok(None),
            (Some(rate), None) => Ok(Some(Rate::Fixed(rate.0))),
            (None, Some(path)) => {
                let path = self.folder.join(path);
                let trace: Trace = read(&path)?.parse().map_err(|source| DescriptionError::Trace { path, source })?;
                Ok(Some(trace.into()))
            }
            (Some(_), Some(_)) => Err(self.wrong("trace", "a link follows a rate or a trace, not both".to_owned())),
        }
    }

    fn loss(self, mean: Option<PercentText>, burst: Option<f64>) -> Result<Option<Loss>, DescriptionError> {
        match (mean, burst) {
            (None, None) => Ok(None),
            (Some(mean), None) => Ok(Some(Loss::Independent(mean.0))),
            (None, Some(_)) => Err(self.wrong("loss_burst", "needs a `loss` beside it".to_owned())),
            (Some(mean), Some(burst)) => match GilbertElliott::bursts(mean.0.as_f64(), burst) {
                Ok(model) => Ok(Some(Loss::GilbertElliott(model))),
                Err(_) => {
                    let mean = mean.0.as_f64() * 100.0;
                    Err(self.wrong("loss_burst", format!("a loss of {mean:.3} % cannot come in bursts of {burst}")))
                }
            },
        }
    }

    fn wrong(self, field: &'static str, reason: String) -> DescriptionError {
        DescriptionError::Field { link: self.link.to_owned(), field, reason }
    }
}

fn read(path: &Path) -> Result<String, DescriptionError> {
    let result = std::fs::metadata(path).and_then(|metadata| match metadata.len() {
        0..=FILE_BYTES_MAX => std::fs::read_to_string(path),
        _ => Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 64 MiB")),
    });
    result.map_err(|source| DescriptionError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_says_the_same_as_rust() {
        let wlan = LinkConfig::new().rate(Bitrate::mbps(30)).delay(Duration::from_millis(1));
        let dsl = LinkConfig::new().delay(Duration::from_millis(10)).queue(QueueLimit::bytes(65_536));
        let topology = Topology::new()
            .seed(7)
            .host(Host::new("device"))
            .host(Host::new("gateway").forwarding())
            .host(Host::new("service").named("photos.example"))
            .link(Link::new("lan", "device", "gateway").both(wlan))
            .link(
                Link::new("dsl", "gateway", "service")
                    .addresses(Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2))
                    .mtu(1_492)
                    .prompt()
                    .up(dsl
                        .clone()
                        .rate(Bitrate::kbps(1_150))
                        .loss(Loss::GilbertElliott(GilbertElliott::bursts(0.02, 4.0).unwrap()))
                        .at(Duration::from_secs(10), Change::new().connected(false))
                        .at(Duration::from_secs(70), Change::new().connected(true).rate(Bitrate::kbps(64))))
                    .down(dsl.rate(Bitrate::mbps(12))),
            );
        assert_eq!(Topology::from_toml(EXAMPLE, Path::new("")).unwrap(), topology);
    }

    #[test]
    fn a_trace_is_found_beside_the_description() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("lte.trace"), "1\n2\n").unwrap();
        let file = folder.path().join("lab.toml");
        std::fs::write(&file, with_up(r#"trace = "lte.trace""#)).unwrap();
        let topology = Topology::from_file(&file).unwrap();
        assert_eq!(topology.links[0].up.rate, "1\n2\n".parse::<Trace>().unwrap().into());

        std::fs::write(folder.path().join("lte.trace"), "1\nx\n").unwrap();
        let error = Topology::from_file(&file).unwrap_err().to_string();
        assert!(error.contains("lte.trace: line 2"), "{error}");
    }

    #[test]
    fn a_wrong_description_is_refused_and_the_field_named() {
        for (up, words) in [
            ("dealy = \"1 ms\"", "dealy"),
            ("rate = 30", "rate = 30"),
            ("rate = \"30 Mbps\"", "rate = \"30 Mbps\""),
            ("loss = \"101 %\"", "loss = \"101 %\""),
            ("loss_burst = 3.0", "link `x`: loss_burst: needs a `loss`"),
            ("loss = \"90 %\", loss_burst = 2.0", "loss_burst: a loss of 90.000 % cannot come in bursts of 2"),
            ("rate = \"1 Mbit\", trace = \"t\"", "link `x`: trace: a link follows a rate or a trace"),
            ("trace = \"there-is-none\"", "there-is-none"),
            ("schedule = [{ rate = \"1 Mbit\" }]", "missing field `at`"),
        ] {
            let error = Topology::from_toml(&with_up(up), Path::new("/nowhere")).unwrap_err().to_string();
            assert!(error.contains(words), "{up}: {error}");
        }
    }

    fn with_up(up: &str) -> String {
        format!(
            "hosts = [{{ name = \"a\" }}, {{ name = \"b\" }}]\n\
             links = [{{ name = \"x\", between = [\"a\", \"b\"], up = {{ {up} }} }}]\n"
        )
    }

    const EXAMPLE: &str = r#"
seed = 7

[[hosts]]
name = "device"

[[hosts]]
name = "gateway"
forwarding = true

[[hosts]]
name = "service"
names = ["photos.example"]

[[links]]
name = "lan"
between = ["device", "gateway"]
both = { rate = "30 Mbit/s", delay = "1 ms" }

[[links]]
name = "dsl"
between = ["gateway", "service"]
addresses = ["198.18.0.1", "198.18.0.2"]
mtu = 1492
prompt = true
both = { delay = "10 ms", queue = "64 KiB" }
down = { rate = "12 Mbit/s" }

[links.up]
rate = "1.15 Mbit/s"
loss = "2 %"
loss_burst = 4.0
schedule = [
    { at = "10 s", connected = false },
    { at = "70 s", connected = true, rate = "64 kbit/s" },
]
"#;
}
