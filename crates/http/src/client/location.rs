//! Where a redirect leads, as its `Location` says (RFC 9110 §10.2.2): [`is_sign_in`], [`is_elsewhere`].
//!
//! An upload that is answered with a redirect was taken, or not: it was not where the redirect leads to where one signs in, or to another server.

use percent_encoding::percent_decode_str;

/// Path segments that read as sign-in, without an ending such as `.php`: those of Django, Rails and Devise, Laravel, WordPress, MediaWiki,
/// Nextcloud, ASP.NET, oauth2-proxy, Keycloak, SAML and CAS.
const SIGN_IN: [&str; 21] = [
    "login",
    "log-in",
    "log_in",
    "logon",
    "signin",
    "sign_in",
    "sign-in",
    "wp-login",
    "auth",
    "authenticate",
    "authentication",
    "authorize",
    "oauth",
    "oauth2",
    "openid-connect",
    "oidc",
    "sso",
    "saml",
    "saml2",
    "cas",
    "special:userlogin",
];

/// Two segments that together read as sign-in: Rails' resource of sessions.
const NEW_SESSION: [[&str; 2]; 2] = [["session", "new"], ["sessions", "new"]];

/// Whether a `Location`, absolute or relative, leads to where one signs in.
pub fn is_sign_in(location: &[u8]) -> bool {
    let location = String::from_utf8_lossy(location);
    let (_, rest) = authority(&location);
    let whole = rest.split('#').next().unwrap_or_default();
    let (path, query) = whole.split_once('?').unwrap_or((whole, ""));
    // MediaWiki names its pages in a query, too.
    let title = query.split('&').find_map(|pair| pair.strip_prefix("title="));
    let segments: Vec<String> = path.split(['/', '\\']).chain(title).map(plain).collect();
    let is_one = |segment: &String| SIGN_IN.contains(&segment.split('.').next().unwrap_or_default());
    let are_two = |two: &[String]| NEW_SESSION.iter().any(|new| two == *new);
    segments.iter().any(is_one) || segments.windows(2).any(are_two)
}

/// Whether a `Location` leads to another server than these. The scheme makes no difference, as many applications do not know that they are
/// reached by `https`.
pub fn is_elsewhere(location: &[u8], own: [&str; 2]) -> bool {
    let location = String::from_utf8_lossy(location);
    authority(&location).0.is_some_and(|named| !own.iter().any(|own| server(own) == server(named)))
}

/// The authority that a reference names, and what follows it. A browser takes `\` for `/`, and so do we.
fn authority(reference: &str) -> (Option<&str>, &str) {
    let scheme = reference.find(':').filter(|at| reference[..*at].bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let rest = &reference[scheme.map_or(0, |at| at + 1)..];
    let is_slash = |byte: Option<&u8>| matches!(byte, Some(b'/' | b'\\'));
    if !is_slash(rest.as_bytes().first()) || !is_slash(rest.as_bytes().get(1)) {
        return (None, reference);
    }
    let rest = &rest[2..];
    let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
    (Some(&rest[..end]), &rest[end..])
}

/// Name and port of an authority, without user, case, and the ports that go without saying.
fn server(authority: &str) -> String {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_ascii_lowercase();
    let host = host.strip_suffix(":443").or_else(|| host.strip_suffix(":80")).unwrap_or(&host);
    host.to_owned()
}

/// A segment decoded and in lower case.
fn plain(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_is_a_whole_segment_of_the_path() {
        for (location, expected) in [
            ("/session/new", true),
            ("/sessions/new?x", true),
            ("/session/news", false),
            ("/oauth2/authorize?client_id=1", true),
            ("/users/sign_in", true),
            ("/accounts/login/", true),
            ("/wp-login.php?reauth=1", true),
            ("/index.php/Special:UserLogin", true),
            ("/index.php/Special%3AUserLogin", true),
            ("https://h/index.php?title=Special:UserLogin&returnto=Special:Upload", true),
            ("/index.php?title=Special%3aUserLogin", true),
            ("/index.php/File:Login_form.png", false),
            ("\\\\h\\login", true),
            ("%", false),
            ("/%zz/%é", false),
            ("/admin/login/?next=/admin/images/", true),
            ("https://login.example/welcome", false),
            ("https://photos.example/Auth", true),
            ("/accounts/sign-in#form", true),
            ("/blogin/", false),
            ("/images/?from=/login/", false),
            ("login", true),
        ] {
            assert_eq!(is_sign_in(location.as_bytes()), expected, "{location}");
        }
    }

    #[test]
    fn another_server_is_told_from_the_applications_own_names() {
        let own = ["photos.example", "127.0.0.1:8000"];
        for (location, expected) in [
            ("/images/7", false),
            ("images/7", false),
            ("", false),
            ("?page=2", false),
            ("https://photos.example/images/7", false),
            ("http://PHOTOS.example:80/", false),
            ("https://photos.example:443", false),
            ("http://127.0.0.1:8000/images", false),
            ("https://photos.example:8443/realms", true),
            ("https://login.example/authorize", true),
            ("//login.example/x", true),
            ("/\\login.example/x", true),
            ("https:\\\\login.example", true),
            ("https://photos.example@login.example/", true),
            ("https://photos.example.evil.example/", true),
            ("File:A.png", false),
        ] {
            assert_eq!(is_elsewhere(location.as_bytes(), own), expected, "{location}");
        }
    }
}
