//! Tickets fetched ahead, so that an upload can be sealed and dropped while the service is out of reach: [`TicketCache`].
//!
//! One file a ticket, readable by its owner alone. A ticket is used once: whoever succeeds in removing its file has it.
//!
//! ```text
//! tickets/{fit, 32 hex}-{expires, 10 digits}-{upload id, 32 hex}.json
//! ```

use crate::private::write_private;
use crate::ticket::{IssuedTicket, TicketRequest, TicketsDocument};
use hoop_http::Origin;
use hoop_units::UnixTime;
use ring::digest::{Context, SHA256};
use std::fs;
use std::io;
use std::path::PathBuf;

/// Tickets kept at once; past it the oldest go. Each is a file of half a kilobyte.
const KEPT_MAX: usize = 256;

/// A ticket is not used in its last minutes: the upload should begin before it ends, and clocks differ.
const MARGIN_SECS: u32 = 300;

/// The folder of tickets.
#[derive(Clone, Debug)]
pub(crate) struct TicketCache(pub(crate) PathBuf);

/// What a ticket is good for: origin, method, path, suite, and whose it is. The credentials are in it as a hash.
pub(crate) fn fit(origin: &Origin, request: &TicketRequest<'_>) -> String {
    let target = request.target.unwrap_or_default();
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let credentials = [&request.credentials.authorization, &request.credentials.cookie];
    let [authorization, cookie] = credentials.map(|value| value.as_ref().map_or(&b""[..], |value| value.as_bytes()));
    let parts = [origin.as_str(), request.method.as_str(), path, request.suite.name()].map(str::as_bytes);
    let mut hash = Context::new(&SHA256);
    for part in parts.into_iter().chain([authorization, cookie]) {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finish().as_ref()[..16])
}

impl TicketCache {
    /// Keeps a ticket for what it fits. Those that fit the same and had ended when this one was issued are removed: by their service's word, since
    /// this device's clock may be wrong.
    pub(crate) fn put(&self, fit: &str, ticket: &IssuedTicket) -> io::Result<()> {
        let bytes = serde_json::to_vec(&TicketsDocument::of(ticket)).expect("a ticket has a JSON form");
        let name = format!("{fit}-{:010}-{}.json", ticket.expires.as_secs(), ticket.id);
        write_private(&self.0, &name, &bytes)?;
        let names = self.names();
        let excess = names.len().saturating_sub(KEPT_MAX);
        for (place, name) in names.iter().enumerate() {
            let has_ended = name.starts_with(fit) && end_of(name) <= ticket.not_before.as_secs();
            if place < excess || has_ended {
                let _ = fs::remove_file(self.0.join(name));
            }
        }
        Ok(())
    }

    /// Takes a ticket that fits and is still good, the one that ends first.
    pub(crate) fn take(&self, fit: &str, now: UnixTime) -> Option<IssuedTicket> {
        for name in self.names() {
            let path = self.0.join(&name);
            if !is_good(&name, fit, now) {
                continue;
            }
            let Ok(bytes) = fs::read(&path) else { continue };
            // Two processes may read it; only one removes it.
            if fs::remove_file(&path).is_err() {
                continue;
            }
            let document = serde_json::from_slice::<TicketsDocument>(&bytes).ok();
            if let Some(ticket) = document.and_then(|document| document.check().ok()?.pop()) {
                return Some(ticket);
            }
        }
        None
    }

    /// How many fit and are still good.
    pub(crate) fn count(&self, fit: &str, now: UnixTime) -> usize {
        self.names().iter().filter(|name| is_good(name, fit, now)).count()
    }

    /// All files, those that end first in front.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.ends_with(".json") && name.is_ascii() && name.len() > 43)
            .collect();
        names.sort_by(|a, b| a[33..].cmp(&b[33..]));
        names
    }
}

/// When the ticket of that name ends.
fn end_of(name: &str) -> u32 {
    name.get(33..43).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn is_good(name: &str, fit: &str, now: UnixTime) -> bool {
    name.starts_with(fit) && end_of(name) > now.as_secs().saturating_add(MARGIN_SECS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Credentials;
    use crate::ticket::tests::issued;
    use hoop_seal::Suite;
    use http::{HeaderValue, Method};

    const NOW: UnixTime = UnixTime(1_795_000_000);

    #[test]
    fn a_ticket_is_taken_once_and_the_one_that_ends_first_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TicketCache(folder.path().join("tickets"));
        let fit = "f".repeat(32);
        cache.put(&fit, &issued(2, NOW.0 + 2000)).unwrap();
        cache.put(&fit, &issued(1, NOW.0 + 1000)).unwrap();
        assert_eq!(cache.count(&fit, NOW), 2);
        let taken = [(); 3].map(|()| cache.take(&fit, NOW).map(|ticket| ticket.id.0[0]));
        assert_eq!(taken, [Some(1), Some(2), None]);
    }

    #[test]
    fn a_ticket_at_its_end_is_not_used_and_outlives_a_clock_that_jumps() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TicketCache(folder.path().to_owned());
        let [fit, other] = ["f", "e"].map(|letter| letter.repeat(32));
        cache.put(&fit, &issued(1, NOW.0 + MARGIN_SECS)).unwrap();
        cache.put(&other, &issued(2, NOW.0 + 1000)).unwrap();
        for days in [0, 40, 4_000] {
            assert!(cache.take(&fit, NOW.plus_secs(days * 86_400)).is_none());
        }
        assert_eq!((cache.names().len(), cache.count(&fit, UnixTime(0))), (2, 1), "a clock alone removes none");
        let later = IssuedTicket { not_before: NOW.plus_secs(2000), ..issued(3, NOW.0 + 9000) };
        cache.put(&fit, &later).unwrap();
        let taken = cache.take(&fit, UnixTime(0)).map(|ticket| ticket.id.0[0]);
        assert_eq!(
            (taken, cache.count(&fit, UnixTime(0))),
            (Some(3), 0),
            "by then the first had ended, at its service"
        );
        assert_eq!(cache.count(&other, UnixTime(0)), 1, "which is nobody to another's");
    }

    #[test]
    fn what_it_fits_depends_on_path_and_credentials_but_not_on_the_query() {
        let origin: Origin = "https://photos.example".parse().unwrap();
        let with = |target: &str, cookie: Option<&'static str>| {
            let credentials = Credentials { cookie: cookie.map(HeaderValue::from_static), ..Credentials::default() };
            let (method, suite) = (&Method::POST, Suite::Aes256Gcm);
            let (credentials, target) = (&credentials, Some(target));
            fit(&origin, &TicketRequest { method, target, count: 1, suite, credentials, key: None, gateway: None })
        };
        assert_eq!(with("/a?j", None), with("/a?k", None));
        assert_ne!(with("/a", None), with("/b", None));
        assert_ne!(with("/a", None), with("/a", Some("s=1")));
        assert_ne!(with("/a", Some("s=2")), with("/a", Some("s=1")));
    }

    #[cfg(unix)]
    #[test]
    fn tickets_are_readable_by_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let cache = TicketCache(folder.path().join("state/tickets"));
        cache.put(&"f".repeat(32), &issued(1, NOW.0)).unwrap();
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&cache.0), 0o700);
        assert_eq!(mode(&cache.0.join(&cache.names()[0])), 0o600);
    }
}
