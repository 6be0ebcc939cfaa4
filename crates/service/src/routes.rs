//! Which rules hold for which upload: [`Routes`], read from `routes.toml`.
//!
//! ```toml
//! [user]                      # optional: who a user is; see `user`
//! cookies = ["session"]
//!
//! [session]                   # optional: how sessions are kept alive; see `keep_alive`
//! keep_alive = "/me"
//!
//! [[route]]
//! path = "/api/upload"        # every path that begins so
//! method = "POST"             # optional
//! preset = "django"           # optional; default generic
//! on_unknown = "hold"         # or "retry", for uploads that may arrive twice
//! max_bytes = 104857600       # optional
//!
//! [[route.rule]]              # come before the preset's; the first that fits decides
//! then = "rejected"
//! status = [200, "4xx"]
//! json = { pointer = "/ok", equals = false }
//! ```

use crate::keep_alive::{KeepAlive, SessionEntry};
use crate::presets::Preset;
use crate::rules::{Condition, Rule, Verdict};
use crate::user::{UserEntry, UserRule};
use serde::Deserialize;

/// At most so many routes, and so many rules each: a file larger than that is a mistake, and every upload walks it.
const ROUTES_MAX: usize = 256;

/// At most so many fields to drop: each field of each replay is held against them.
const DROP_MAX: usize = 64;

/// What to do when the application may or may not have the upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnknown {
    /// Say so, and never send it again. The default.
    #[default]
    Hold,
    /// Send it again: for applications that honour `Idempotency-Key`, or to which twice is the same as once.
    Retry,
}

/// One route's settings.
#[derive(Clone, PartialEq, Debug)]
pub struct Route {
    path: String,
    method: Option<String>,
    /// What an answer means, in order.
    pub rules: Vec<Rule>,
    /// What to do when the answer was lost.
    pub on_unknown: OnUnknown,
    /// The longest Z, in bytes; the service's limit holds besides.
    pub max_bytes: Option<u64>,
}

/// All routes. The first whose method and path fit an upload holds; after the last, one with every default.
#[derive(Clone, PartialEq, Debug)]
pub struct Routes {
    routes: Vec<Route>,
    /// Names in lower case.
    drop: Vec<String>,
    /// Who a user is.
    pub user: UserRule,
    /// How sessions are kept alive; none: they are not.
    pub keep_alive: Option<KeepAlive>,
}

impl Default for Routes {
    fn default() -> Self {
        Self { routes: vec![Route::fallback()], drop: Vec::new(), user: UserRule::default(), keep_alive: None }
    }
}

/// A routes file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RoutesError {
    /// Not TOML, or a field that is unknown or of another type; the text names the line.
    #[error("{0}")]
    Form(String),
    /// A value that means nothing.
    #[error("{}`{field}` {problem}", if *.route == 0 { String::new() } else { format!("route {}: ", .route) })]
    Value {
        /// Which route, from 1; 0: what stands before all routes.
        route: usize,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl Routes {
    /// Reads the text of a routes file.
    ///
    /// # Errors
    /// If it is not TOML, or has a field that is unknown or means nothing. The message names line or field.
    pub fn parse(text: &str) -> Result<Self, RoutesError> {
        let file: File = toml::from_str(text).map_err(|error| RoutesError::Form(error.to_string()))?;
        if file.route.len() > ROUTES_MAX {
            let problem = format!("stands there {} times; {ROUTES_MAX} is the most", file.route.len());
            return Err(RoutesError::Value { route: ROUTES_MAX + 1, field: "route", problem });
        }
        if file.drop.len() > DROP_MAX {
            let problem = format!("names {} fields; {DROP_MAX} is the most", file.drop.len());
            return Err(RoutesError::Value { route: 0, field: "drop", problem });
        }
        let drop = file.drop.iter().map(|name| name.to_ascii_lowercase()).collect();
        let routes = file.route.into_iter().enumerate().map(|(at, entry)| entry.check(at + 1));
        let mut routes = routes.collect::<Result<Vec<_>, _>>()?;
        routes.push(Route::fallback());
        let user = file.user.map_or(Ok(UserRule::default()), UserEntry::check);
        let user = user.map_err(|(field, problem)| RoutesError::Value { route: 0, field, problem })?;
        let keep_alive = file.session.map(SessionEntry::check).transpose();
        let keep_alive = keep_alive.map_err(|(field, problem)| RoutesError::Value { route: 0, field, problem })?;
        Ok(Self { routes, drop, user, keep_alive })
    }

    /// Whether a field of a sealed head stays behind because the operator says so.
    pub fn drops(&self, name: &str) -> bool {
        self.drop.contains(&name.to_ascii_lowercase())
    }

    /// The route of a method and a path.
    pub fn of(&self, method: &str, path: &str) -> &Route {
        self.routes.iter().find(|route| route.fits(method, path)).expect("the last route fits everything")
    }
}

impl Route {
    fn fallback() -> Self {
        let rules = Preset::Generic.rules();
        Self { path: "/".to_owned(), method: None, rules, on_unknown: OnUnknown::Hold, max_bytes: None }
    }

    fn fits(&self, method: &str, path: &str) -> bool {
        let rest = path.strip_prefix(&self.path);
        // `/upload` is not the beginning of `/uploads`.
        let begins = rest.is_some_and(|rest| self.path.ends_with('/') || rest.is_empty() || rest.starts_with('/'));
        begins && self.method.as_ref().is_none_or(|own| own == method)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    drop: Vec<String>,
    user: Option<UserEntry>,
    session: Option<SessionEntry>,
    #[serde(default)]
    route: Vec<RouteEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteEntry {
    path: String,
    method: Option<String>,
    #[serde(default)]
    preset: Preset,
    #[serde(default)]
    on_unknown: OnUnknown,
    max_bytes: Option<u64>,
    #[serde(default)]
    rule: Vec<RuleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    then: VerdictName,
    status: Option<Vec<StatusEntry>>,
    location: Option<String>,
    sign_in: Option<bool>,
    header: Option<String>,
    no_header: Option<String>,
    json: Option<JsonEntry>,
    body: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum VerdictName {
    Accepted,
    Held,
    Retry,
    Unknown,
    Rejected,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StatusEntry {
    One(u16),
    Span(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonEntry {
    pointer: String,
    equals: serde_json::Value,
}

impl RouteEntry {
    fn check(self, number: usize) -> Result<Route, RoutesError> {
        let wrong = |field, problem: String| RoutesError::Value { route: number, field, problem };
        if !self.path.starts_with('/') {
            return Err(wrong("path", format!("must begin with `/`, not `{}`", self.path)));
        }
        if let Some(method) = self.method.as_deref().filter(|method| !["POST", "PUT", "PATCH"].contains(method)) {
            return Err(wrong("method", format!("must be POST, PUT or PATCH, not `{method}`")));
        }
        if self.rule.len() > ROUTES_MAX {
            return Err(wrong("rule", format!("stands there {} times; {ROUTES_MAX} is the most", self.rule.len())));
        }
        let rules = self.rule.into_iter().map(|rule| rule.check(number));
        let mut rules = rules.collect::<Result<Vec<_>, _>>()?;
        rules.extend(self.preset.rules());
        let (path, method) = (self.path, self.method);
        Ok(Route { path, method, rules, on_unknown: self.on_unknown, max_bytes: self.max_bytes })
    }
}

impl RuleEntry {
    fn check(self, route: usize) -> Result<Rule, RoutesError> {
        let wrong = |field, problem: String| RoutesError::Value { route, field, problem };
        let mut when = Vec::new();
        if let Some(entries) = self.status {
            let spans = entries.iter().map(StatusEntry::span).collect::<Result<_, _>>();
            when.push(Condition::Status(spans.map_err(|problem| wrong("status", problem))?));
        }
        when.extend(self.location.map(Condition::Location));
        match self.sign_in {
            Some(true) => when.push(Condition::SignIn),
            Some(false) => return Err(wrong("sign_in", "can only be true".to_owned())),
            None => {}
        }
        when.extend(self.header.map(|text| match text.split_once(':') {
            Some((name, value)) => Condition::Header(name.trim().to_owned(), Some(value.trim().to_owned())),
            None => Condition::Header(text.trim().to_owned(), None),
        }));
        when.extend(self.no_header.map(|name| Condition::NoHeader(name.trim().to_owned())));
        if let Some(JsonEntry { pointer, equals }) = self.json {
            if !pointer.is_empty() && !pointer.starts_with('/') {
                return Err(wrong("json", format!("has the pointer `{pointer}`, which must begin with `/`")));
            }
            when.push(Condition::Json(pointer, equals));
        }
        when.extend(self.body.map(Condition::Body));
        if when.is_empty() {
            return Err(wrong("rule", "has no condition, so no rule after it could ever hold".to_owned()));
        }
        let then = match self.then {
            VerdictName::Accepted => Verdict::Accepted,
            VerdictName::Held => Verdict::Held,
            VerdictName::Retry => Verdict::Retry,
            VerdictName::Unknown => Verdict::Unknown,
            VerdictName::Rejected => Verdict::Rejected,
        };
        Ok(Rule { when, then })
    }
}

impl StatusEntry {
    /// `201`, `"4xx"` or `"400-403"`, as first and last.
    fn span(&self) -> Result<(u16, u16), String> {
        let (first, last) = match self {
            Self::One(status) => (*status, *status),
            Self::Span(text) => {
                parse_span(text).ok_or_else(|| format!("cannot be `{text}`; try 201, \"4xx\", \"400-403\""))?
            }
        };
        match (100..=599).contains(&first) && (first..=599).contains(&last) {
            true => Ok((first, last)),
            false => Err(format!("must lie within 100 and 599, not at {first}-{last}")),
        }
    }
}

fn parse_span(text: &str) -> Option<(u16, u16)> {
    if let Some(class) = text.strip_suffix("xx") {
        let class: u16 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
        return Some((class * 100, class * 100 + 99));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Seen, judge};

    #[test]
    fn the_first_route_that_fits_holds_and_its_rules_come_before_the_presets() {
        let routes = Routes::parse(
            r#"
            [[route]]
            path = "/api/"
            method = "PUT"
            on_unknown = "retry"
            max_bytes = 1000
            [[route.rule]]
            then = "rejected"
            status = [200, "3xx", "400-403"]
            header = "X-Error"
            [[route.rule]]
            then = "held"
            json = { pointer = "/error/code", equals = 7 }
            no_header = "X-Fine"
            [[route]]
            path = "/api/"
            preset = "django"
            "#,
        )
        .unwrap();
        let put = routes.of("PUT", "/api/files");
        assert_eq!((put.on_unknown, put.max_bytes), (OnUnknown::Retry, Some(1000)));
        let fields = [("x-error".to_owned(), b"1".to_vec())];
        assert_eq!(judge(&put.rules, Seen { status: 200, fields: &fields, body: b"" }), Verdict::Rejected);
        assert_eq!(judge(&put.rules, Seen { status: 200, fields: &[], body: b"" }), Verdict::Accepted);
        let error = br#"{"error":{"code":7}}"#;
        assert_eq!(judge(&put.rules, Seen { status: 200, fields: &[], body: error }), Verdict::Held);
        assert_eq!(routes.of("POST", "/api/files").rules, Preset::Django.rules());
        assert_eq!(*routes.of("POST", "/other"), Route::fallback());
    }

    #[test]
    fn what_is_wrong_in_a_routes_file_is_named_by_line_or_field() {
        for (text, hint) in [
            ("[[route]]\npath = \"/\"\ncolour = 1", "line 3"),
            ("[[route]]\npath = \"/\"\ncolour = 1", "colour"),
            ("[[route]]\npath = 7", "line 2"),
            ("[[route]]\n", "path"),
            ("[[route]]\npath = \"/\"\npreset = \"joomla\"", "joomla"),
            ("[[route]]\npath = \"api\"", "`path` must begin with `/`"),
            ("[[route]]\npath = \"/\"\nmethod = \"GET\"", "`method` must be POST, PUT or PATCH"),
            ("[[route]]\npath = \"/\"\n[[route.rule]]\nthen = \"accepted\"", "no condition"),
            ("[[route]]\npath = \"/\"\n[[route.rule]]\nthen = \"maybe\"\nbody = \"x\"", "maybe"),
            ("[[route]]\npath = \"/\"\n[[route.rule]]\nthen = \"held\"\nstatus = [99]", "`status` must lie within"),
            ("[[route]]\npath = \"/\"\n[[route.rule]]\nthen = \"held\"\nstatus = [\"6xx\"]", "cannot be `6xx`"),
            (
                "[[route]]\npath = \"/\"\n[[route.rule]]\nthen = \"held\"\njson = {pointer = \"a\", equals = 1}",
                "begin with `/`",
            ),
            ("[[route]]\npath = \"/\"\non_unknown = \"sometimes\"", "sometimes"),
            ("[user]\npath = \"/me\"", "`user.json` is missing"),
            ("not toml", "line 1"),
        ] {
            let error = Routes::parse(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{text:?} gave {error:?}, without {hint:?}");
        }
    }

    #[test]
    fn a_route_ends_where_a_segment_does_and_the_operator_can_drop_fields() {
        let routes =
            Routes::parse("drop = [\"X-Company-User\"]\n[[route]]\npath = \"/upload\"\nmax_bytes = 9\n").unwrap();
        assert!(routes.drops("x-company-USER") && !routes.drops("X-Other"));
        for (path, limit) in [("/upload", Some(9)), ("/upload/a", Some(9)), ("/uploads", None), ("/x/upload", None)] {
            assert_eq!(routes.of("POST", path).max_bytes, limit, "{path}");
        }
    }
}
