//! Which rules hold for which upload: [`Routes`], read from `routes.toml`.
//!
//! ```toml
//! keep = ["X-Album"]          # optional: fields that the application gets besides those of `fields`
//! drop = ["X-WP-Nonce"]       # optional: fields that it does not get
//!
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
//! on_failure = "retry"        # or "hold", for an application that may have stored what it answers 5xx to
//! max_bytes = "100M"           # optional
//! keep = ["X-Amz-Meta-*"]     # optional: more fields, for this route alone
//!
//! [[route.rule]]              # come before the preset's; the first that fits decides
//! then = "rejected"
//! status = [200, "4xx"]
//! json = { pointer = "/ok", equals = false }
//! ```

use crate::policy::csrf::{CSRF_MAX, Csrf, CsrfEntry};
use crate::policy::fields::{Fate, Names, fate};
use crate::policy::paths::Place;
use crate::policy::presets::Preset;
use crate::policy::rules::{Condition, Hold, Outcome, Rule};
use crate::policy::session::{KeepAlive, SessionEntry};
use crate::policy::user::{UserEntry, UserRule};
use hoop_units::Size;
use serde::Deserialize;

/// At most so many routes, and so many rules each: a file larger than that is a mistake, and every upload walks it.
const ROUTES_MAX: usize = 256;

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

/// What to do when the application was sent all of an upload, and says that it failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Send it again, a few times: what failed is not done. The default.
    #[default]
    Retry,
    /// Hold it for its owner: for applications that may have stored it all the same.
    Hold,
}

/// One route's settings.
#[derive(Clone, PartialEq, Debug)]
pub struct Route {
    place: Place,
    method: Option<String>,
    /// What an answer means, in order.
    pub rules: Vec<Rule>,
    /// What to do when the answer was lost.
    pub on_unknown: OnUnknown,
    /// What to do when it failed.
    pub on_failure: OnFailure,
    /// Where a form's token stands, and where a fresh one is found.
    pub csrf: Vec<Csrf>,
    /// The longest Z, in bytes; the service's limit holds besides.
    pub max_bytes: Option<u64>,
    /// Fields that the application gets besides.
    keep: Names,
}

/// All routes. The first whose method and path fit an upload holds; after the last, one with every default.
#[derive(Clone, PartialEq, Debug)]
pub struct Routes {
    routes: Vec<Route>,
    /// Fields that the application gets besides those of the list, or does not get.
    keep: Names,
    drop: Names,
    /// Who a user is.
    pub user: UserRule,
    /// How sessions are kept alive; none: they are not.
    pub keep_alive: Option<KeepAlive>,
}

impl Default for Routes {
    fn default() -> Self {
        let routes = vec![Route::fallback()];
        Self { routes, keep: Names::default(), drop: Names::default(), user: UserRule::default(), keep_alive: None }
    }
}

/// A routes file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RoutesError {
    /// Not TOML, or a field that is unknown or of another type.
    #[error("line {line}: {problem}")]
    Form {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
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
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| hoop_files::line_at(text, span.start));
            RoutesError::Form { line, problem: error.message().to_owned() }
        })?;
        if file.route.len() > ROUTES_MAX {
            let problem = format!("stands there {} times; {ROUTES_MAX} is the most", file.route.len());
            return Err(RoutesError::Value { route: ROUTES_MAX + 1, field: "route", problem });
        }
        let keep = Names::to_keep(&file.keep);
        let keep = keep.map_err(|problem| RoutesError::Value { route: 0, field: "keep", problem })?;
        let drop = Names::to_drop(&file.drop);
        let drop = drop.map_err(|problem| RoutesError::Value { route: 0, field: "drop", problem })?;
        let routes = file.route.into_iter().enumerate().map(|(at, entry)| entry.check(at + 1));
        let mut routes = routes.collect::<Result<Vec<_>, _>>()?;
        routes.push(Route::fallback());
        let user = file.user.map_or(Ok(UserRule::default()), UserEntry::check);
        let user = user.map_err(|(field, problem)| RoutesError::Value { route: 0, field, problem })?;
        let keep_alive = file.session.map(SessionEntry::check).transpose();
        let keep_alive = keep_alive.map_err(|(field, problem)| RoutesError::Value { route: 0, field, problem })?;
        Ok(Self { routes, keep, drop, user, keep_alive })
    }

    /// What becomes of a field of a sealed head that is for this route.
    pub fn fate(&self, route: &Route, name: &str) -> Fate {
        match fate(name) {
            Fate::Goes | Fate::Unlisted if self.drop.has(name) => Fate::Dropped,
            Fate::Unlisted if self.keep.has(name) || route.keep.has(name) || route.has_token_in(name) => Fate::Goes,
            fate => fate,
        }
    }

    /// The route of a method and a path.
    pub fn of(&self, method: &str, path: &str) -> &Route {
        let place = Place::of(path);
        self.routes.iter().find(|route| route.fits(method, &place)).expect("the last route fits everything")
    }
}

impl Route {
    /// Whether the operator says that the form's token stands in a field of that name.
    fn has_token_in(&self, name: &str) -> bool {
        self.csrf.iter().any(|rule| rule.header.as_ref().is_some_and(|header| header.eq_ignore_ascii_case(name)))
    }

    fn fallback() -> Self {
        let rules = Preset::Generic.rules();
        let (on_unknown, on_failure) = (OnUnknown::default(), OnFailure::default());
        let (csrf, keep) = (Vec::new(), Names::default());
        Self { place: Place::of("/"), method: None, rules, on_unknown, on_failure, csrf, max_bytes: None, keep }
    }

    fn fits(&self, method: &str, place: &Place) -> bool {
        self.place.holds(place) && self.method.as_ref().is_none_or(|own| own == method)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    keep: Vec<String>,
    #[serde(default)]
    drop: Vec<String>,
    user: Option<UserEntry>,
    session: Option<SessionEntry>,
    #[serde(default)]
    route: Vec<RouteEntry>,
}

/// A number of bytes, with or without a unit.
fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Value {
        Bytes(u64),
        Text(String),
    }
    let size = match Value::deserialize(deserializer) {
        Ok(Value::Bytes(bytes)) => Ok(Size(bytes)),
        Ok(Value::Text(text)) => text.parse(),
        Err(_) => Err("expected a number of bytes such as 1500, \"64K\" or \"512M\"".to_owned()),
    };
    size.map(|Size(bytes)| Some(bytes)).map_err(serde::de::Error::custom)
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
    #[serde(default)]
    on_failure: OnFailure,
    #[serde(default, deserialize_with = "size")]
    max_bytes: Option<u64>,
    #[serde(default)]
    keep: Vec<String>,
    #[serde(default)]
    rule: Vec<RuleEntry>,
    #[serde(default)]
    csrf: Vec<CsrfEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    then: OutcomeName,
    because: Option<HoldName>,
    status: Option<Vec<StatusEntry>>,
    location: Option<String>,
    sign_in: Option<bool>,
    elsewhere: Option<bool>,
    header: Option<String>,
    no_header: Option<String>,
    json: Option<JsonEntry>,
    body: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum OutcomeName {
    Accepted,
    Held,
    Retry,
    Failed,
    Unknown,
    Rejected,
}

/// What of its owner a held upload waits for; without a word, a 401 or a redirect means the session.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HoldName {
    Session,
    Token,
    Permission,
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
        if self.path.contains(['?', '#']) {
            return Err(wrong("path", format!("is `{}`; a query does not count", self.path)));
        }
        if let Some(method) = self.method.as_deref().filter(|method| !["POST", "PUT", "PATCH"].contains(method)) {
            return Err(wrong("method", format!("must be POST, PUT or PATCH, not `{method}`")));
        }
        if self.rule.len() > ROUTES_MAX {
            return Err(wrong("rule", format!("stands there {} times; {ROUTES_MAX} is the most", self.rule.len())));
        }
        let keep = Names::to_keep(&self.keep).map_err(|problem| wrong("keep", problem))?;
        let rules = self.rule.into_iter().map(|rule| rule.check(number));
        let mut rules = rules.collect::<Result<Vec<_>, _>>()?;
        rules.extend(self.preset.rules());
        if self.csrf.len() > CSRF_MAX {
            return Err(wrong("csrf", format!("stands there {} times; {CSRF_MAX} is the most", self.csrf.len())));
        }
        let own = self.csrf.into_iter().map(|entry| entry.check().map_err(|(field, problem)| wrong(field, problem)));
        let own = own.collect::<Result<Vec<_>, _>>()?;
        // The operator's own take the place of the preset's.
        let csrf = if own.is_empty() { self.preset.csrf() } else { own };
        let (place, method) = (Place::of(&self.path), self.method);
        let (on_unknown, on_failure, max_bytes) = (self.on_unknown, self.on_failure, self.max_bytes);
        Ok(Route { place, method, rules, on_unknown, on_failure, csrf, max_bytes, keep })
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
        let flags = [("sign_in", self.sign_in, Condition::SignIn), ("elsewhere", self.elsewhere, Condition::Elsewhere)];
        for (field, flag, condition) in flags {
            match flag {
                Some(true) => when.push(condition),
                Some(false) => return Err(wrong(field, "can only be true".to_owned())),
                None => {}
            }
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
        if self.because.is_some() && !matches!(self.then, OutcomeName::Held) {
            return Err(wrong("because", "says what a held upload waits for, and this is not held".to_owned()));
        }
        let then = match self.then {
            OutcomeName::Accepted => Outcome::Accepted,
            OutcomeName::Held => Outcome::Held(match self.because {
                Some(HoldName::Session) => Hold::Session,
                Some(HoldName::Token) => Hold::Token,
                Some(HoldName::Permission) => Hold::Permission,
                None => Hold::of(&when),
            }),
            OutcomeName::Failed => Outcome::Failed,
            OutcomeName::Retry => Outcome::Retry,
            OutcomeName::Unknown => Outcome::Unknown,
            OutcomeName::Rejected => Outcome::Rejected,
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
    use crate::policy::rules::judge;

    fn seen<'a>(status: u16, fields: &'a [(String, Vec<u8>)], body: &'a [u8]) -> crate::policy::rules::Seen<'a> {
        crate::policy::rules::Seen { status, fields, body, own: ["photos.example", "127.0.0.1:8000"] }
    }

    #[test]
    fn the_first_route_that_fits_holds_and_its_rules_come_before_the_presets() {
        let routes = Routes::parse(
            r#"
            [[route]]
            path = "/api/"
            method = "PUT"
            on_unknown = "retry"
            max_bytes = "2K"
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
        assert_eq!((put.on_unknown, put.max_bytes), (OnUnknown::Retry, Some(2048)));
        let fields = [("x-error".to_owned(), b"1".to_vec())];
        assert_eq!(judge(&put.rules, seen(200, &fields, b"")), Outcome::Rejected);
        assert_eq!(judge(&put.rules, seen(200, &[], b"")), Outcome::Accepted);
        let error = br#"{"error":{"code":7}}"#;
        assert_eq!(judge(&put.rules, seen(200, &[], error)), Outcome::Held(Hold::Permission));
        assert_eq!(routes.of("POST", "/api/files").rules, Preset::Django.rules());
        assert_eq!(*routes.of("POST", "/other"), Route::fallback());
    }

    #[test]
    fn an_error_in_a_routes_file_names_its_line_or_field() {
        for (text, hint) in [
            ("[[route]]\npath = \"/\"\ncolour = 1", "line 3"),
            ("[[route]]\npath = \"/\"\ncolour = 1", "colour"),
            ("[[route]]\npath = 7", "line 2"),
            ("[[route]]\n", "path"),
            ("[[route]]\npath = \"/\"\npreset = \"joomla\"", "joomla"),
            ("[[route]]\npath = \"api\"", "`path` must begin with `/`"),
            ("[[route]]\npath = \"/index.php?title=Special:Upload\"", "a query does not count"),
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
            ("[[route]]\npath = \"/\"\non_failure = \"never\"", "never"),
            ("[[route]]\npath = \"/\"\n[[route.csrf]]\nfield = \"t\"", "names no `cookie`"),
            (
                "[[route]]\npath = \"/\"\n[[route.rule]]\nthen = \"retry\"\nbecause = \"token\"\nbody = \"x\"",
                "`because`",
            ),
            ("[user]\npath = \"/me\"", "`user.json` is missing"),
            ("not toml", "line 1"),
        ] {
            let error = Routes::parse(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{text:?} gave {error:?}, without {hint:?}");
        }
    }

    #[test]
    fn a_route_ends_where_a_segment_does() {
        let routes = Routes::parse("[[route]]\npath = \"/upload\"\nmax_bytes = 9\n").unwrap();
        for (path, limit) in [("/upload", Some(9)), ("/upload/a", Some(9)), ("/uploads", None), ("/x/upload", None)]
            .into_iter()
            .chain([("/upload%2Fa", Some(9)), ("/upload;x=1", Some(9)), ("/upload.", Some(9))])
        {
            assert_eq!(routes.of("POST", path).max_bytes, limit, "{path}");
        }
    }

    #[test]
    fn the_operator_keeps_more_fields_for_all_routes_or_one_and_drops_some() {
        let routes = Routes::parse(
            r#"
            keep = ["X-Album", "X-Both"]
            drop = ["X-WP-Nonce", "x-both"]
            [[route]]
            path = "/s3"
            keep = ["X-Amz-Meta-*"]
            "#,
        )
        .unwrap();
        let fate = |path: &str, name: &str| routes.fate(routes.of("POST", path), name);
        for (path, name, expected) in [
            ("/s3/a", "X-AMZ-Meta-Camera", Fate::Goes),
            ("/other", "X-AMZ-Meta-Camera", Fate::Unlisted),
            ("/s3/a", "X-ALBUM", Fate::Goes),
            ("/other", "X-Album", Fate::Goes),
            ("/other", "X-Both", Fate::Dropped),
            ("/other", "X-Wp-Nonce", Fate::Dropped),
            ("/other", "X-CSRF-Token", Fate::Goes),
            ("/s3", "X-Auth-User", Fate::Unlisted),
            ("/s3", "X-Forwarded-User", Fate::OfTheFront),
        ] {
            assert_eq!(fate(path, name), expected, "{path} {name}");
        }
        for (text, hint) in [
            ("keep = [\"Cookie\"]", "`keep` has `cookie`"),
            ("[[route]]\npath = \"/\"\nkeep = [\"X-Forwarded-For\"]", "route 1: `keep` has `x-forwarded-for`"),
            ("keep = [\"*\"]", "must say more"),
        ] {
            let error = Routes::parse(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{text:?} gave {error:?}, without {hint:?}");
        }
    }
}
