//! How sessions are kept alive, if the operator says so: [`KeepAlive`], the table `[session]` of `routes.toml`. Pure; `replay::keep_alive` asks.
//!
//! ```toml
//! [session]
//! keep_alive = "/me"       # asked with the user's own Cookie and Authorization …
//! every_minutes = 10       # … so often; default 10
//! ```

use super::paths;
use serde::Deserialize;

/// The longest time between two questions: a day.
const EVERY_MAX_MINUTES: u32 = 24 * 60;

/// How sessions are kept alive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// What to get: a path of the application.
    pub path: String,
    /// How often.
    pub every_secs: u32,
}

/// The table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionEntry {
    keep_alive: String,
    #[serde(default = "ten")]
    every_minutes: u32,
}

const fn ten() -> u32 {
    10
}

impl SessionEntry {
    /// What it means.
    ///
    /// # Errors
    /// The field at fault, and what is wrong with it.
    pub fn check(self) -> Result<KeepAlive, (&'static str, String)> {
        let path = self.keep_alive;
        if !paths::is_target(&path) || path.starts_with("//") {
            let wrong = format!("must be a path that begins with `/`, in visible ASCII, not `{path}`");
            return Err(("session.keep_alive", wrong));
        }
        match (1..=EVERY_MAX_MINUTES).contains(&self.every_minutes) {
            true => Ok(KeepAlive { path, every_secs: self.every_minutes * 60 }),
            false => {
                let wrong = format!("must be 1 to {EVERY_MAX_MINUTES}, not {}", self.every_minutes);
                Err(("session.every_minutes", wrong))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<KeepAlive, (&'static str, String)> {
        toml::from_str::<SessionEntry>(text).unwrap().check()
    }

    #[test]
    fn a_session_rule_has_a_path_and_bounded_minutes() {
        let expected = KeepAlive { path: "/me".into(), every_secs: 600 };
        assert_eq!(rule("keep_alive = \"/me\"").unwrap(), expected);
        for (text, field) in [
            ("keep_alive = \"me\"", "session.keep_alive"),
            ("keep_alive = \"//evil.example/\"", "session.keep_alive"),
            ("keep_alive = \"/me\"\nevery_minutes = 0", "session.every_minutes"),
            ("keep_alive = \"/me\"\nevery_minutes = 1441", "session.every_minutes"),
        ] {
            assert_eq!(rule(text).unwrap_err().0, field, "{text}");
        }
    }
}
