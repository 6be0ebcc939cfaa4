//! Who was shut out since it was last looked: [`Revocation`].

use crate::introduction::{Devices, Rule};
use hoop_endpoint::DeviceId;
use std::collections::{BTreeMap, BTreeSet};

/// Who was shut out: a device that is in the file no more, or with another key, or that may no longer go to all the places that it might. Its connections end, and those that it still may have it begins anew.
pub(crate) struct Revocation {
    /// Who was known when it was last looked, and may be still.
    known: Known,
    /// Who is missing since then. An editor may empty a file before it writes it anew.
    missing: BTreeSet<DeviceId>,
}

type Known = BTreeMap<DeviceId, Rule>;

impl Revocation {
    pub fn new(devices: &Devices) -> Self {
        Self { known: devices.known(), missing: BTreeSet::new() }
    }

    /// Those to be shut out: who is missing at the second look, or at once if the operator has said that the file is as it is meant to be.
    pub fn gone(&mut self, devices: &Devices, is_sure: bool) -> Vec<DeviceId> {
        // Some may have come and begun something since the last look.
        for (host, rule) in devices.take_earlier() {
            self.known.entry(host).or_insert(rule);
        }
        let now = devices.known();
        let is_kept = |host: &DeviceId, rule: &Rule| now.get(host).is_some_and(|other| other.covers(rule));
        let missing = self.known.iter().filter(|(host, rule)| !is_kept(host, rule)).map(|(host, _)| *host);
        let missing: BTreeSet<_> = missing.collect();
        let (gone, waiting): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|host| is_sure || self.missing.contains(host));
        let waits = |host: &DeviceId| self.known.get(host).map(|rule| (*host, rule.clone()));
        let mut known = now.clone();
        known.extend(waiting.iter().filter_map(waits));
        (self.known, self.missing) = (known, waiting.into_iter().collect());
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_device_is_shut_out_at_the_second_look_or_when_the_operator_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.toml");
        let whole = format!("[devices]\n{} = \"{}\"\n", "01".repeat(20), "09".repeat(32));
        std::fs::write(&path, &whole).unwrap();
        let devices = &Devices::open(&path).unwrap();
        let write = async |text: &str| {
            // Another file each time, as by an editor: what is seen does not hang on the clock's steps.
            std::fs::write(path.with_extension("new"), text).unwrap();
            std::fs::rename(path.with_extension("new"), &path).unwrap();
            devices.look().await;
        };
        let (host, mut revocation) = (DeviceId([1; 20]), Revocation::new(devices));
        write("").await;
        assert_eq!(revocation.gone(devices, false), [], "an editor may have emptied it");
        write(&whole).await;
        assert_eq!(revocation.gone(devices, false), []);
        write("").await;
        assert_eq!(revocation.gone(devices, false), []);
        assert_eq!(revocation.gone(devices, false), [host]);
        assert_eq!(revocation.gone(devices, false), [], "once");
        write(&whole).await;
        assert_eq!(revocation.gone(devices, true), []);
        write(&whole.replace("0909", "0808")).await;
        assert_eq!(revocation.gone(devices, true), [host], "it has another key");
        let only = |networks: &str| format!("{whole}\n[only]\n{} = [{networks}]\n", "01".repeat(20));
        write(&whole).await;
        assert_eq!(revocation.gone(devices, true), [host]);
        for (networks, gone) in [
            ("\"10.0.0.0/8\", \"192.0.2.1\"", true),
            ("\"192.0.2.1\", \"10.0.0.0/8\", \"192.0.2.2\"", false),
            ("\"192.0.2.1\"", true),
        ] {
            write(&only(networks)).await;
            assert_eq!(!revocation.gone(devices, true).is_empty(), gone, "{networks}");
        }
        write(&whole).await;
        assert_eq!(revocation.gone(devices, true), [], "it may go to more");
        let brief = |key: &str| whole.replace(&"01".repeat(20), &"02".repeat(20)).replace("0909", key);
        write(&format!("{whole}{}", brief("0707").split_once('\n').unwrap().1)).await;
        write(&whole).await;
        assert_eq!(revocation.gone(devices, false), [], "at the second look");
        assert_eq!(revocation.gone(devices, false), [DeviceId([2; 20])], "it has come and gone between two looks");
    }
}
