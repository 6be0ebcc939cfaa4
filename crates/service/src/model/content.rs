//! The content of short requests: a JSON [`object`], or a [`Form`]. Pure.

use hoop_http::{Code, Problem};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A JSON object, read. (An array would do for serde.)
///
/// # Errors
/// `request-invalid`.
pub fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let object = serde_json::from_slice(body).and_then(|map: Map<String, Value>| T::deserialize(Value::Object(map)));
    object.map_err(|error| Problem::new(Code::RequestInvalid, error).field("body"))
}

/// The media type of a form that a page sends without script.
pub const FORM: &str = "application/x-www-form-urlencoded";

/// The fields of a form, in their order.
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a form; every text is one (URL, "application/x-www-form-urlencoded parsing").
    pub fn parse(body: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(body).into_owned().collect())
    }

    /// Names and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The first value of a field.
    pub fn field(&self, wanted: &str) -> Option<&str> {
        self.pairs().find(|(name, _)| *name == wanted).map(|(_, value)| value)
    }
}
