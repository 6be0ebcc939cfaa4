//! Whose an upload is, by the credentials that it came with (`docs/protocol.md` §7, "Owners"). Pure.
//!
//! Promises: no name of a user and no cookie is kept, only a MAC; a name can never give the tag of a cookie.

use super::Policy;
use crate::model::{Credentials, Tag};

/// Stands where a `Cookie` does in the MAC over credentials. No `Cookie` has a NUL.
const USER_DOMAIN: &[u8] = b"\0user";

/// The tags of a user that the application knows by this name, the newest key's first.
pub fn user_tags(policy: &Policy, name: &str) -> Vec<Tag> {
    policy.keys.owner_tags(USER_DOMAIN, name.as_bytes()).collect()
}

/// The tags of credentials as such, the newest key's first; with nothing that makes a user, those of nobody.
pub fn credential_tags(policy: &Policy, credentials: &Credentials) -> Vec<Tag> {
    let (cookie, authorization) = telling(policy, credentials);
    policy.keys.owner_tags(cookie.as_bytes(), authorization.as_bytes()).collect()
}

/// What of credentials makes the user.
pub fn telling<'a>(policy: &Policy, credentials: &'a Credentials) -> (String, &'a str) {
    let cookie = credentials.cookie.as_deref().map_or_else(String::new, |cookie| policy.routes.user.cookies_of(cookie));
    (cookie, credentials.authorization.as_deref().unwrap_or_default())
}

/// Whose an upload with these credentials in its token is.
pub fn of(policy: &Policy, credentials: &Credentials) -> Tag {
    credentials.user.unwrap_or_else(|| credential_tags(policy, credentials)[0])
}

/// Whether that is the tag of nobody: neither user nor credentials.
pub fn is_nobody(policy: &Policy, tag: Tag) -> bool {
    policy.keys.owner_tags(b"", b"").any(|nobody| nobody == tag)
}

/// Whether the application says who its users are, and has not named the one with these credentials.
pub fn is_anonymous(policy: &Policy, credentials: &Credentials) -> bool {
    policy.routes.user.ask.is_some() && credentials.user.is_none()
}
