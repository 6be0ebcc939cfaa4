//! What has become of the patient uploads under way, for `hoop agent status`: a [`PatientListing`] of them, each told as a [`PatientReport`].
//!
//! It is bounded by those that are taken (`patient::KEPT_MAX` for each origin).

use hoop_units::plain;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use url::{Position, Url};

/// A patient upload, as it is now. As text it is a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PatientReport {
    /// Where it goes, without a query.
    pub url: String,
    /// For how many seconds it has been there.
    pub secs: u64,
    /// How long its body is, as far as it has come from the program, in bytes.
    pub bytes: u64,
    /// How far it is.
    #[serde(flatten)]
    pub stage: PatientStage,
    /// Why it does not get on, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// How far a patient upload is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "lowercase")]
pub enum PatientStage {
    /// Its body comes from the program.
    Coming,
    /// It waits for others to the same service.
    Waiting,
    /// It is sent: so many bytes of it, sealed, of so many. None: it looks for its way.
    Sending {
        /// Bytes so far.
        sent: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A gateway has it that is not relied on, so that it waits until the service has it.
    Stored,
}

impl fmt::Display for PatientReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  upload to {}: for {} s, ", plain::line(&self.url), self.secs)?;
        match self.stage {
            PatientStage::Coming => write!(f, "{} bytes have come from the program", self.bytes)?,
            PatientStage::Waiting => write!(f, "{} bytes, behind others to this service", self.bytes)?,
            PatientStage::Sending { total: 0, .. } => write!(f, "{} bytes, looking for its way", self.bytes)?,
            PatientStage::Sending { sent, total } => write!(f, "{sent} bytes sent of {total}")?,
            PatientStage::Stored => write!(f, "{} bytes, stored, until the service has them", self.bytes)?,
        }
        self.cause.iter().try_for_each(|cause| write!(f, "; {}", plain::line(cause)))?;
        writeln!(f)
    }
}

#[derive(Debug)]
struct Upload {
    url: String,
    since: Instant,
    bytes: u64,
    stage: PatientStage,
    cause: Option<String>,
}

#[derive(Debug, Default)]
struct Known {
    next: u64,
    uploads: BTreeMap<u64, Upload>,
}

/// The patient uploads that are under way.
#[derive(Debug, Default)]
pub(crate) struct PatientListing(Mutex<Known>);

impl PatientListing {
    /// An upload begins.
    pub(crate) fn add(self: &Arc<Self>, url: &Url) -> ListedUpload {
        let mut known = self.0.lock();
        let number = known.next;
        known.next += 1;
        // A query may have a secret.
        let url = url[..Position::AfterPath].to_owned();
        let upload = Upload { url, since: Instant::now(), bytes: 0, stage: PatientStage::Coming, cause: None };
        known.uploads.insert(number, upload);
        ListedUpload { listing: self.clone(), number }
    }

    /// All of them, the oldest first.
    pub(crate) fn reports(&self) -> Vec<PatientReport> {
        let report = |upload: &Upload| PatientReport {
            url: upload.url.clone(),
            secs: upload.since.elapsed().as_secs(),
            bytes: upload.bytes,
            stage: upload.stage,
            cause: upload.cause.clone(),
        };
        self.0.lock().uploads.values().map(report).collect()
    }
}

/// An upload's place among them. It goes with this.
#[derive(Debug)]
pub(crate) struct ListedUpload {
    listing: Arc<PatientListing>,
    number: u64,
}

impl ListedUpload {
    /// So many more bytes have come from the program.
    pub(crate) fn comes(&self, bytes: u64) {
        self.change(|upload| upload.bytes += bytes);
    }

    /// It has got so far.
    pub(crate) fn is(&self, stage: PatientStage) {
        self.change(|upload| (upload.stage, upload.cause) = (stage, None));
    }

    /// Why it does not get on.
    pub(crate) fn waits_since(&self, cause: String) {
        self.change(|upload| upload.cause = Some(cause));
    }

    fn change(&self, change: impl FnOnce(&mut Upload)) {
        self.listing.0.lock().uploads.get_mut(&self.number).map(change);
    }
}

impl Drop for ListedUpload {
    fn drop(&mut self) {
        self.listing.0.lock().uploads.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_told_without_its_query_as_long_as_it_is_under_way() {
        let listing = Arc::<PatientListing>::default();
        let told = || listing.reports().iter().map(ToString::to_string).collect::<String>();
        let listed = listing.add(&"https://photos.example/a.jpg?token=secret".parse().unwrap());
        listed.comes(500);
        listed.comes(500);
        assert_eq!(
            told(),
            "  upload to https://photos.example/a.jpg: for 0 s, 1000 bytes have come from the program\n"
        );
        listed.is(PatientStage::Sending { sent: 0, total: 0 });
        listed.waits_since("no route\u{1b}".to_owned());
        assert!(told().ends_with(" 1000 bytes, looking for its way; no route\\u001b\n"), "{}", told());
        listed.is(PatientStage::Sending { sent: 600, total: 1_064 });
        assert!(told().ends_with(", 600 bytes sent of 1064\n"), "{}", told());
        let json = serde_json::to_value(&listing.reports()[0]).unwrap();
        assert_eq!((&json["stage"], &json["sent"], &json["total"]), (&"sending".into(), &600.into(), &1_064.into()));
        assert_eq!(serde_json::from_value::<PatientReport>(json).unwrap(), listing.reports()[0]);
        drop(listed);
        assert_eq!(told(), "");
    }
}
