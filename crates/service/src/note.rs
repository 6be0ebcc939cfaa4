//! What only the device knows of an upload before it arrives: [`Note`] (`docs/protocol.md` §7, "Notes"). Pure.

use crate::request;
use hoop_http::{Code, Problem};
use serde::{Deserialize, Serialize};

/// The longest note.
pub const NOTE_MAX: usize = 64 * 1024;

/// The files of a note that are kept: more than anybody reads.
const FILES_MAX: usize = 1_000;

/// A note, checked. Members that this version does not know are dropped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// The length of Z.
    pub total: u64,
    /// The files inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<NotedFile>,
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
        let mut note: Self = request::object(body)?;
        // SQLite's numbers, and the longest Z, end there.
        if i64::try_from(note.total).is_err() {
            return Err(wrong("total", &"the total is beyond all uploads"));
        }
        if note.monitor.as_ref().is_some_and(|monitor| !is_page(monitor)) {
            return Err(wrong("monitor", &"the monitor must be an http or https URL"));
        }
        note.files.truncate(FILES_MAX);
        Ok(note)
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
    fn a_note_is_read_with_what_it_has_and_only_its_total_is_needed() {
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
    fn of_very_many_files_a_thousand_are_kept() {
        let files: Vec<_> = (0..1_500).map(|n| serde_json::json!({"name": n.to_string()})).collect();
        let note = Note::parse(serde_json::json!({"total": 1, "files": files}).to_string().as_bytes()).unwrap();
        assert_eq!((note.files.len(), note.files[999].name.as_str()), (1_000, "999"));
    }

    #[test]
    fn what_is_no_note_is_refused_by_its_member() {
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
