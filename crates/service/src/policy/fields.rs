//! Decides which fields of a sealed head the application gets: [`fate`], and an operator's own [`Names`]. Pure.
//!
//! A sealed head never passed the web server in front, whose task is to strip the fields by which it says who asks.
//! There are too many of those to list, and each sign-on proxy has its own names. So the list is of what may pass: what
//! browsers say about themselves and the body, what guards forms, and what upload libraries need. An operator adds to
//! it with `keep`, and takes from it with `drop`.

use hoop_http::HOP_BY_HOP;

/// The most names that `keep` or `drop` may have, each: a longer list is a mistake, and each field of each replay is held against it.
pub const NAMES_MAX: usize = 64;

/// Fields that the service writes itself. Every request has some of them or of [`HOP_BY_HOP`], and nobody is told.
const OURS: [&str; 10] = [
    "accept-encoding",
    "authorization",
    "content-length",
    "cookie",
    "cookie2",
    "expect",
    "hoop-token",
    "hoop-version",
    "host",
    "idempotency-key",
];

/// Beginnings of fields that say from where a request comes, or that name another path or method than the one of
/// ticket, route and receipt. No operator can keep them: the service says the first itself, and the second would bypass
/// its rules.
const OF_THE_FRONT: [&str; 14] = [
    "forwarded",
    "proxy", // also `Proxy-Authorization`, and `Proxy`, which CGI takes for the setting HTTP_PROXY
    "via",
    "x-accel-",
    "x-forwarded",
    "x-host",
    "x-http-method",
    "x-method-override",
    "x-middleware-",
    "x-original-",
    "x-real-ip",
    "x-rewrite-",
    "x-script-name",
    "x-sendfile",
];

/// Fields that pass, in lower case, by what they are for. One that ends in `*` stands for all that begin so.
const LISTED: [(&str, &[&str]); 9] = [
    (
        "what a browser says about itself and what it takes",
        &[
            "accept",
            "accept-charset",
            "accept-language",
            "cache-control",
            "device-memory",
            "dnt",
            "downlink",
            "dpr",
            "ect",
            "pragma",
            "priority",
            "rtt",
            "save-data",
            "sec-ch-*",
            "sec-gpc",
            "sec-purpose",
            "upgrade-insecure-requests",
            "user-agent",
            "viewport-width",
            "width",
            "x-requested-with",
        ],
    ),
    (
        "from which page: what an application's own guard against other sites' forms reads",
        &["origin", "referer", "sec-fetch-*"],
    ),
    (
        "a word that only the application's own pages know",
        &[
            "apollo-require-preflight",
            "csrf-token",
            "graphql-preflight",
            "graphql-require-preflight",
            "jenkins-crumb",
            "kbn-xsrf",
            "ocs-apirequest",
            "requesttoken",
            "requestverificationtoken",
            "x-apollo-operation-name",
            "x-atlassian-token",
            "x-csrf-token",
            "x-csrftoken",
            "x-wp-nonce",
            "x-xsrf-token",
            "x-xsrftoken",
            "xsrf-token",
        ],
    ),
    (
        "about the body",
        &[
            "content-description",
            "content-digest",
            "content-disposition",
            "content-encoding",
            "content-id",
            "content-language",
            "content-location",
            "content-md5",
            "content-range",
            "content-transfer-encoding",
            "content-type",
            "digest",
            "mime-version",
            "repr-digest",
            "slug",
            "want-content-digest",
            "want-repr-digest",
            "x-checksum-md5",
            "x-checksum-sha1",
            "x-checksum-sha256",
            "x-content-range",
        ],
    ),
    (
        "on which condition, and what answer is wanted",
        &[
            "if",
            "if-match",
            "if-modified-since",
            "if-none-match",
            "if-unmodified-since",
            "lock-token",
            "overwrite",
            "prefer",
        ],
    ),
    (
        "upload libraries: tus, Uppy, FilePond, Fine Uploader, jQuery File Upload and their like",
        &[
            "tus-resumable",
            "upload-checksum",
            "upload-complete",
            "upload-concat",
            "upload-defer-length",
            "upload-draft-interop-version",
            "upload-incomplete",
            "upload-length",
            "upload-metadata",
            "upload-name",
            "upload-offset",
            "uppy-auth-token",
            "uppy-versions",
            "x-chunk-index",
            "x-chunk-number",
            "x-chunks-number",
            "x-file-date",
            "x-file-id",
            "x-file-last-modified",
            "x-file-name",
            "x-file-size",
            "x-file-type",
            "x-last-modified",
            "x-mime-type",
            "x-total-chunks",
            "x-upload-content-length",
            "x-upload-content-type",
        ],
    ),
    (
        "applications' own uploaders: copyparty, Nextcloud",
        &[
            "ck",
            "life",
            "oc-checksum",
            "oc-chunked",
            "oc-total-length",
            "pw",
            "rand",
            "replace",
            "x-oc-ctime",
            "x-oc-mtime",
            "x-up2k-hash",
            "x-up2k-stat",
            "x-up2k-subc",
            "x-up2k-wark",
        ],
    ),
    (
        "frameworks that send forms by script: htmx, Turbo, Unpoly, Inertia, Livewire, Next.js, SvelteKit, ASP.NET",
        &[
            "hx-boosted",
            "hx-current-url",
            "hx-history-restore-request",
            "hx-prompt",
            "hx-request",
            "hx-target",
            "hx-trigger",
            "hx-trigger-name",
            "next-action",
            "next-router-state-tree",
            "next-url",
            "rsc",
            "turbo-frame",
            "x-inertia",
            "x-inertia-error-bag",
            "x-inertia-partial-component",
            "x-inertia-partial-data",
            "x-inertia-version",
            "x-livewire",
            "x-microsoftajax",
            "x-pjax",
            "x-pjax-container",
            "x-socket-id",
            "x-sveltekit-action",
            "x-turbo-nonce",
            "x-turbo-request-id",
            // Not all that begin so: `X-Up-Subno` is how mobile networks name their customer.
            "x-up-context",
            "x-up-fail-context",
            "x-up-fail-mode",
            "x-up-fail-target",
            "x-up-mode",
            "x-up-target",
            "x-up-validate",
            "x-up-version",
        ],
    ),
    (
        "traces of one request through several programs, that name nobody",
        &["sentry-trace", "traceparent", "tracestate"],
    ),
];

/// What becomes of a field of a sealed head.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    /// The application gets it.
    Goes,
    /// The service writes it itself, or it ends here as at each hop.
    Ours,
    /// Only a web server in front may say that, whatever the operator keeps.
    OfTheFront,
    /// It is not on the list, nor kept.
    Unlisted,
    /// The operator drops it.
    Dropped,
}

impl Fate {
    /// A word for logs and metrics; none of what nobody needs to be told.
    pub const fn told(self) -> Option<&'static str> {
        match self {
            Self::Goes | Self::Ours => None,
            Self::OfTheFront => Some("front"),
            Self::Unlisted => Some("unlisted"),
            Self::Dropped => Some("dropped"),
        }
    }
}

/// What becomes of a field of that name, in whatever case, where the operator says nothing.
pub fn fate(name: &str) -> Fate {
    let name = name.to_ascii_lowercase();
    // Behind CGI and WSGI, `X_Forwarded_For` and `X-Forwarded-For` are the same variable; behind PHP, so is `X-Forwarded.For`.
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    // A front may say by `Proxy-Authorization` who asks.
    if OURS.contains(&name.as_str()) || HOP_BY_HOP.contains(&name.as_str()) && name != "proxy-authorization" {
        return Fate::Ours;
    }
    if !plain || OF_THE_FRONT.iter().any(|start| name.starts_with(start)) {
        return Fate::OfTheFront;
    }
    match LISTED.iter().flat_map(|(_, names)| *names).any(|listed| fits(listed, &name)) {
        true => Fate::Goes,
        false => Fate::Unlisted,
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// Names that an operator lists, some of which may end in `*`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names(Vec<String>);

impl Names {
    /// Those of `drop`: any names.
    ///
    /// # Errors
    /// If there are too many, in words.
    pub fn to_drop(names: &[String]) -> Result<Self, String> {
        Self::few(names)
    }

    /// Those of `keep`: none that stays behind whatever an operator says, and no pattern that lets in half of all.
    ///
    /// # Errors
    /// Which name is wrong, and why, in words.
    pub fn to_keep(names: &[String]) -> Result<Self, String> {
        let kept = Self::few(names)?;
        for name in &kept.0 {
            let (start, is_open) = name.strip_suffix('*').map_or((name.as_str(), false), |start| (start, true));
            if is_open && (!start.ends_with('-') || matches!(start, "-" | "x-" | "http-")) {
                return Err(format!("has `{name}`; what stands before `*` must say more, as in `X-Album-*`"));
            }
            match fate(start) {
                Fate::Ours => {
                    return Err(format!("has `{name}`, which the service writes itself, or ends at each hop"));
                }
                Fate::OfTheFront => {
                    return Err(format!("has `{name}`, which only a web server in front may say, or is no plain name"));
                }
                Fate::Goes | Fate::Unlisted | Fate::Dropped => {}
            }
        }
        Ok(kept)
    }

    fn few(names: &[String]) -> Result<Self, String> {
        match names.len() > NAMES_MAX {
            true => Err(format!("names {} fields; {NAMES_MAX} is the most", names.len())),
            false => Ok(Self(names.iter().map(|name| name.to_ascii_lowercase()).collect())),
        }
    }

    /// Whether a name, in whatever case, is one of these.
    pub fn has(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.0.iter().any(|pattern| fits(pattern, &name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(names: &[&str]) -> Result<Names, String> {
        Names::to_keep(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn every_listed_name_is_plain_and_passes_in_any_case() {
        for name in LISTED.iter().flat_map(|(_, names)| *names) {
            let name = name.replace('*', "x");
            assert_eq!(fate(&name), Fate::Goes, "{name}");
            assert_eq!(fate(&name.to_ascii_uppercase()), Fate::Goes, "{name}");
            assert_ne!(fate(&format!("{name}x")), Fate::Ours, "{name}");
        }
    }

    #[test]
    fn an_unlisted_field_stays_behind_with_a_reason() {
        for (name, expected) in [
            ("Cookie", Fate::Ours),
            ("HOST", Fate::Ours),
            ("X-Forwarded-For", Fate::OfTheFront),
            ("X_Forwarded_For", Fate::OfTheFront),
            ("Content_Length", Fate::OfTheFront),
            ("X-HTTP-Method-Override", Fate::OfTheFront),
            ("Proxy", Fate::OfTheFront),
            ("", Fate::OfTheFront),
            ("X-Auth-User", Fate::Unlisted),
            ("X-Content-Type", Fate::Unlisted),
            ("Acceptance", Fate::Unlisted),
        ] {
            assert_eq!(fate(name), expected, "{name}");
        }
    }

    #[test]
    fn an_operator_keeps_names_but_none_of_a_hop_a_proxy_or_the_session() {
        let kept = keep(&["X-Album", "X-Amz-Meta-*"]).unwrap();
        for (name, is_kept) in
            [("x-album", true), ("X-ALBUM", true), ("X-Album-2", false), ("x-amz-meta-a", true), ("X-Amz-Date", false)]
        {
            assert_eq!(kept.has(name), is_kept, "{name}");
        }
        for never in OURS.iter().chain(&HOP_BY_HOP).chain(&["forwarded", "x-forwarded-prefix", "x-real-ip"]) {
            assert!(keep(&[never]).is_err(), "{never}");
        }
        for wrong in ["*", "X-*", "-*", "X-Al*", "X_Album", "X-Forwarded-*", "X-A*-B", "", "Transfer-Encoding", "a b"] {
            assert!(keep(&[wrong]).is_err(), "{wrong}");
        }
        assert!(keep(&["x"; NAMES_MAX]).is_ok() && keep(&["x"; NAMES_MAX + 1]).is_err());
    }
}
