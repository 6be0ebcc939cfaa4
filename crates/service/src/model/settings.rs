//! Whether a user's uploads are offered to a gateway: [`Settings`] (`docs/protocol.md` §7, "Settings"). Pure.

use super::content::{self, Form};
use hoop_http::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The media types that settings can name: more than a page can show in order.
const TYPES_MAX: usize = 32;

/// The longest media type, as RFC 6838 §4.2 has it: two names of 127 bytes.
const TYPE_MAX: usize = 255;

/// What happens to an upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// It is handed to a gateway.
    Always,
    /// It goes the ordinary way.
    Never,
    /// The user is asked.
    #[default]
    Ask,
}

/// A user's settings, checked.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// For types that `types` does not name.
    pub policy: Offload,
    /// Uploads whose files have fewer bytes go the ordinary way.
    pub min_bytes: u64,
    /// By media type, such as `image/jpeg` or `image/*`, in lower case.
    pub types: BTreeMap<String, Offload>,
}

/// Settings as a page sends them: what is the service's to say is read over.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    #[serde(default)]
    policy: Offload,
    #[serde(default)]
    min_bytes: u64,
    #[serde(default)]
    types: BTreeMap<String, Offload>,
    #[serde(rename = "saved", default)]
    _saved: serde::de::IgnoredAny,
    #[serde(rename = "owner", default)]
    _owner: serde::de::IgnoredAny,
}

impl Settings {
    /// Reads settings.
    ///
    /// # Errors
    /// `request-invalid`, naming the member.
    pub fn parse(body: &[u8]) -> Result<Self, Problem> {
        let sent: Sent = content::object(body)?;
        Self { policy: sent.policy, min_bytes: sent.min_bytes, types: sent.types }.checked()
    }

    /// Reads the form of a page: `policy`, `min_bytes` or `min_megabytes`, and pairs of `type` and `type_policy` in their order; a `type` that
    /// is empty is left out, and so is one without a policy.
    ///
    /// # Errors
    /// `request-invalid`, naming the field.
    pub fn of_form(form: &Form) -> Result<Self, Problem> {
        let policy = |field, text: &str| Offload::by_name(text).ok_or_else(|| wrong(field, &"always, never or ask"));
        let mut settings = Self::default();
        let mut named: Option<&str> = None;
        for (name, value) in form.pairs() {
            let value = value.trim();
            match name {
                "policy" => settings.policy = policy("policy", value)?,
                "min_bytes" if value.is_empty() => {}
                "min_bytes" => {
                    settings.min_bytes = value.parse().map_err(|_| wrong("min_bytes", &"a number of bytes"))?;
                }
                // What people type, also with a comma.
                "min_megabytes" => settings.min_bytes = megabytes(value)?,
                "type" => named = Some(value).filter(|value| !value.is_empty()),
                "type_policy" if value.is_empty() => named = None,
                "type_policy" => {
                    if let Some(media) = named.take() {
                        settings.types.insert(media.to_owned(), policy("type_policy", value)?);
                    }
                }
                _ => {}
            }
        }
        settings.checked()
    }

    fn checked(mut self) -> Result<Self, Problem> {
        if self.types.len() > TYPES_MAX {
            return Err(wrong("types", &format_args!("{} types, and {TYPES_MAX} are the most", self.types.len())));
        }
        // Scripts and SQLite count no further.
        if self.min_bytes >= 1 << 53 {
            return Err(wrong("min_bytes", &"it must be less than 2^53"));
        }
        if self.types.keys().any(|media| !is_media_type(media)) {
            return Err(wrong("types", &"a type must look like `image/jpeg` or `image/*`"));
        }
        self.types = self.types.into_iter().map(|(media, policy)| (media.to_ascii_lowercase(), policy)).collect();
        Ok(self)
    }
}

impl Offload {
    /// The policy of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "always" => Some(Self::Always),
            "never" => Some(Self::Never),
            "ask" => Some(Self::Ask),
            _ => None,
        }
    }
}

/// Bytes, of megabytes as they are typed.
fn megabytes(typed: &str) -> Result<u64, Problem> {
    let typed = if typed.is_empty() { "0" } else { typed };
    let megabytes = typed.replace(',', ".").parse::<f64>().ok().filter(|megabytes| (0.0..1e9).contains(megabytes));
    let megabytes = megabytes.ok_or_else(|| wrong("min_megabytes", &"a number of megabytes"))?;
    Ok((megabytes * 1e6).round() as u64)
}

fn wrong(field: &str, detail: &dyn std::fmt::Display) -> Problem {
    Problem::new(Code::RequestInvalid, detail).field(field)
}

fn is_media_type(text: &str) -> bool {
    let is_name = |name: &str| {
        let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !name.is_empty() && name.bytes().all(is_in_name)
    };
    let parts = text.split_once('/').filter(|_| text.len() <= TYPE_MAX);
    parts.is_some_and(|(main, sub)| is_name(main) && (sub == "*" || is_name(sub)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_settings_take_their_defaults() {
        assert_eq!(Settings::parse(b"{}").unwrap(), Settings::default());
        let text = r#"{"policy":"never","min_bytes":5,"types":{"Image/*":"always"},"saved":true,"owner":null}"#;
        let settings = Settings::parse(text.as_bytes()).unwrap();
        assert_eq!((settings.policy, settings.min_bytes), (Offload::Never, 5));
        assert_eq!(settings.types, [("image/*".to_owned(), Offload::Always)].into());
    }

    #[test]
    fn bad_settings_are_refused_by_the_member_at_fault() {
        let many: BTreeMap<String, &str> = (0..33).map(|n| (format!("a/b{n}"), "ask")).collect();
        let many = serde_json::json!({"types": many}).to_string();
        for (text, field) in [
            ("", "body"),
            ("[]", "body"),
            (r#"{"policy":"sometimes"}"#, "body"),
            (r#"{"min_bytes":-1}"#, "body"),
            (r#"{"min_bytes":9007199254740992}"#, "min_bytes"),
            (r#"{"colour":1}"#, "body"),
            (r#"{"types":{"image":"ask"}}"#, "types"),
            (r#"{"types":{"*/*":"ask"}}"#, "types"),
            (r#"{"types":{"image/<b>":"ask"}}"#, "types"),
            (many.as_str(), "types"),
        ] {
            assert_eq!(Settings::parse(text.as_bytes()).unwrap_err().field.as_deref(), Some(field), "{text}");
        }
    }

    #[test]
    fn a_pages_form_says_the_same_as_json() {
        let form = |text: &str| Settings::of_form(&Form::parse(text.as_bytes()));
        let text = "policy=always&min_bytes=1000&type=image%2F*&type_policy=ask&type=&type_policy=never&type=video/mp4&type_policy=";
        let json = br#"{"policy":"always","min_bytes":1000,"types":{"image/*":"ask"}}"#;
        assert_eq!(form(text).unwrap(), Settings::parse(json).unwrap());
        assert_eq!(form("policy=perhaps").unwrap_err().field.as_deref(), Some("policy"));
        for (typed, bytes) in [("2.5", 2_500_000), ("2%2C5", 2_500_000), ("", 0), ("0", 0), ("0.000001", 1)] {
            assert_eq!(form(&format!("min_megabytes={typed}")).unwrap().min_bytes, bytes, "{typed}");
        }
        for typed in ["-1", "nan", "inf", "1e10", "2.5.1", "much"] {
            let problem = form(&format!("min_megabytes={typed}")).unwrap_err();
            assert_eq!(problem.field.as_deref(), Some("min_megabytes"), "{typed}");
        }
        assert_eq!(form("min_bytes=many").unwrap_err().field.as_deref(), Some("min_bytes"));
    }
}
