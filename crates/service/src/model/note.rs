//! What only the device knows of an upload before it arrives: [`Note`] (`docs/protocol.md` §7, "Notes"). Pure.

use crate::model::content;
use hoop_http::{Code, Problem};
use serde::{Deserialize, Serialize};

/// The longest note.
pub const NOTE_MAX: usize = 64 * 1024;

/// How many files of a note are kept, and so named in lists and events: as many as anybody reads. Their number is kept,
/// too.
const FILES_MAX: usize = 20;

/// The longest link that is kept: the URL of a gateway's page has a hundred bytes. A longer one is no reason to refuse the note.
const MONITOR_MAX: usize = 2 * 1024;

/// A note, checked. Members that this version does not know are dropped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// The length of Z.
    pub total: u64,
    /// The files inside, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<NotedFile>,
    /// How many files there are.
    #[serde(default)]
    pub file_count: usize,
    /// The user's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caption: Option<String>,
    /// The gateway's page about the upload, http or https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitor: Option<String>,
}

/// A file of a note.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NotedFile {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Its media type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub media: Option<String>,
}

impl Note {
    /// Reads a note.
    ///
    /// # Errors
    /// `request-invalid`, naming the member.
    pub fn parse(body: &[u8]) -> Result<Self, Problem> {
        let wrong =
            |field: &str, detail: &dyn std::fmt::Display| Problem::new(Code::RequestInvalid, detail).field(field);
        let note: Self = content::object(body)?;
        // SQLite's numbers, and the longest Z, end there.
        if i64::try_from(note.total).is_err() {
            return Err(wrong("total", &"the total is beyond all uploads"));
        }
        if note.monitor.as_ref().is_some_and(|monitor| !is_page(monitor)) {
            return Err(wrong("monitor", &"the monitor must be an http or https URL"));
        }
        Ok(note.bounded())
    }

    /// The note within its bounds. One in the index may have been kept under others.
    pub fn bounded(mut self) -> Self {
        self.file_count = self.file_count.max(self.files.len());
        self.files.truncate(FILES_MAX);
        self.monitor = self.monitor.filter(|monitor| monitor.len() <= MONITOR_MAX);
        self
    }

    /// How long its texts are together, in bytes: as JSON it is longer.
    pub fn text_len(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let files: usize = self.files.iter().map(|file| file.name.len() + of(&file.media)).sum();
        files + of(&self.caption) + of(&self.monitor)
    }
}

/// Whether it is a link that a page may show: a `javascript:` URL is none.
fn is_page(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_needs_only_its_total() {
        let full = r#"{"total": 3146021, "files": [{"name": "a.jpg", "size": 3145902, "type": "image/jpeg"}], "caption": "At the lake",
                       "monitor": "http://hoop.local:4667/monitor?ID=1", "of_tomorrow": 1}"#;
        let note = Note::parse(full.as_bytes()).unwrap();
        let kept = serde_json::to_string(&note).unwrap();
        assert!(!kept.contains("of_tomorrow"));
        assert_eq!(Note::parse(kept.as_bytes()).unwrap(), note);
        assert_eq!((note.files[0].size, note.caption.as_deref()), (Some(3_145_902), Some("At the lake")));
        assert_eq!(Note::parse(b"{\"total\":1}").unwrap().files, []);
    }

    #[test]
    fn a_note_keeps_twenty_files_and_counts_all() {
        let files: Vec<_> = (0..1_500).map(|n| serde_json::json!({"name": n.to_string()})).collect();
        let mut sent = serde_json::json!({"total": 1, "files": files});
        let note = Note::parse(sent.to_string().as_bytes()).unwrap();
        assert_eq!((note.files.len(), note.files[19].name.as_str(), note.file_count), (20, "19", 1_500));
        sent["file_count"] = 5_000.into();
        assert_eq!(Note::parse(sent.to_string().as_bytes()).unwrap().file_count, 5_000, "it named only some");
    }

    #[test]
    fn a_link_is_kept_up_to_its_bound() {
        for (extra, kept) in [(0, true), (1, false)] {
            let start = "http://hoop.local/";
            let monitor = format!("{start}{}", "m".repeat(MONITOR_MAX - start.len() + extra));
            let note = Note::parse(serde_json::json!({"total": 1, "monitor": monitor}).to_string().as_bytes()).unwrap();
            assert_eq!(note.monitor.is_some(), kept);
        }
    }

    #[test]
    fn a_bad_note_is_refused_by_the_member_at_fault() {
        for (text, field) in [
            ("", "body"),
            ("[]", "body"),
            ("{}", "body"),
            ("[1]", "body"),
            (r#"{"total": -1}"#, "body"),
            (r#"{"total": 18446744073709551615}"#, "total"),
            (r#"{"total": 1, "files": [{"size": 1}]}"#, "body"),
            (r#"{"total": 1, "monitor": "javascript:alert(1)"}"#, "monitor"),
            (r#"{"total": 1, "monitor": "/monitor"}"#, "monitor"),
        ] {
            assert_eq!(Note::parse(text.as_bytes()).unwrap_err().field.as_deref(), Some(field), "{text}");
        }
    }
}
