//! Who a user is, as far as the operator can say: [`UserRule`], the table `[user]` of `routes.toml`. Pure.
//!
//! ```toml
//! [user]
//! path = "/me"             # asked with the user's own Cookie and Authorization …
//! json = "/id"             # … this part of its JSON (RFC 6901), a string or a number, names the user
//! cookies = ["session"]    # otherwise: the cookies that make the user; default all
//! sign_in = "/login"       # where people sign in
//! required = true          # no tickets for whoever is not signed in
//! ```

use serde::Deserialize;
use serde_json::Value;

/// The most cookies that can be named: an application has one or two that make a session.
const COOKIES_MAX: usize = 16;

/// How users are known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserRule {
    /// What to ask the application, if it can be asked.
    pub ask: Option<Ask>,
    /// The cookies that make the user where the application does not say; empty: all.
    cookies: Vec<String>,
    /// Where people sign in: a path of the application.
    pub sign_in: Option<String>,
    /// Tickets are for users only: the application would send anybody else to sign in, after they have gone.
    pub required: bool,
}

/// A question that the application answers with its user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The path to get.
    pub path: String,
    /// Where in its JSON the user stands.
    pointer: String,
}

impl Ask {
    /// The user in an answer's body; none if it names nobody.
    pub fn identify(&self, body: &[u8]) -> Option<String> {
        let document: Value = serde_json::from_slice(body).ok()?;
        match document.pointer(&self.pointer)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

impl UserRule {
    /// What of a `Cookie` makes the user: all, or the named cookies in the order of their naming.
    pub fn cookies_of(&self, cookie: &str) -> String {
        if self.cookies.is_empty() {
            return cookie.to_owned();
        }
        let pairs = || cookie.split(';').map(str::trim);
        let name = |pair: &str| pair.split_once('=').map_or("", |(name, _)| name).to_owned();
        let named = self.cookies.iter().flat_map(|wanted| pairs().filter(move |pair| name(pair) == *wanted));
        named.collect::<Vec<_>>().join("; ")
    }
}

/// The table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserEntry {
    path: Option<String>,
    json: Option<String>,
    #[serde(default)]
    cookies: Vec<String>,
    sign_in: Option<String>,
    #[serde(default)]
    required: bool,
}

impl UserEntry {
    /// The rule that it means.
    ///
    /// # Errors
    /// The field at fault, and what is wrong with it.
    pub fn check(self) -> Result<UserRule, (&'static str, String)> {
        for (field, path) in [("user.path", &self.path), ("user.sign_in", &self.sign_in)] {
            // Two slashes begin the name of another server.
            if let Some(path) =
                path.as_ref().filter(|path| !crate::policy::paths::is_target(path) || path.starts_with("//"))
            {
                return Err((field, format!("must be a path that begins with `/`, in visible ASCII, not `{path}`")));
            }
        }
        if let Some(pointer) = self.json.as_ref().filter(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
            return Err(("user.json", format!("is the pointer `{pointer}`, which must begin with `/`")));
        }
        if self.cookies.len() > COOKIES_MAX {
            return Err(("user.cookies", format!("names {} cookies; {COOKIES_MAX} is the most", self.cookies.len())));
        }
        if let Some(name) = self.cookies.iter().find(|name| name.is_empty() || name.contains([' ', '=', ';', ','])) {
            return Err(("user.cookies", format!("has `{name}`, which is no cookie's name")));
        }
        let ask = match (self.path, self.json) {
            (Some(path), Some(pointer)) => Some(Ask { path, pointer }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(("user.json", "is missing: it says where in the answer the user stands".into()));
            }
            (None, Some(_)) => return Err(("user.path", "is missing: `json` is about its answer".into())),
        };
        Ok(UserRule { ask, cookies: self.cookies, sign_in: self.sign_in, required: self.required })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<UserRule, (&'static str, String)> {
        toml::from_str::<UserEntry>(text).unwrap().check()
    }

    #[test]
    fn only_a_string_or_a_number_in_an_answer_names_a_user() {
        let ask = rule("path = \"/me\"\njson = \"/user/id\"").unwrap().ask.unwrap();
        let of = |body: &str| ask.identify(body.as_bytes());
        assert_eq!(of(r#"{"user":{"id":"alice"}}"#).as_deref(), Some("alice"));
        assert_eq!(of(r#"{"user":{"id":7}}"#).as_deref(), Some("7"));
        for nobody in [
            r#"{"user":{"id":""}}"#,
            r#"{"user":{"id":null}}"#,
            r#"{"user":{"id":true}}"#,
            r#"{"user":1}"#,
            "<html>",
            "",
        ] {
            assert_eq!(of(nobody), None, "{nobody}");
        }
    }

    #[test]
    fn only_the_named_cookies_make_the_user_in_any_order() {
        let named = rule("cookies = [\"session\", \"realm\"]").unwrap();
        assert_eq!(named.cookies_of("theme=dark; realm=a; session=1"), "session=1; realm=a");
        assert_eq!(named.cookies_of("session=1;realm=a"), "session=1; realm=a");
        assert_eq!(named.cookies_of("theme=dark; sessions=1; session"), "");
        assert_eq!(UserRule::default().cookies_of("theme=dark; a=b"), "theme=dark; a=b");
    }

    #[test]
    fn a_bad_user_table_is_refused_by_the_field_at_fault() {
        for (text, field) in [
            ("path = \"me\"\njson = \"/id\"", "user.path"),
            ("path = \"//evil.example/me\"\njson = \"/id\"", "user.path"),
            ("path = \"/me\"", "user.json"),
            ("path = \"/me\"\njson = \"id\"", "user.json"),
            ("json = \"/id\"", "user.path"),
            ("sign_in = \"https://evil.example/\"", "user.sign_in"),
            ("cookies = [\"a=b\"]", "user.cookies"),
        ] {
            assert_eq!(rule(text).unwrap_err().0, field, "{text}");
        }
    }
}
