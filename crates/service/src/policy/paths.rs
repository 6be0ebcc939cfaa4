//! Paths, as rules see them: [`is_target`] says which are taken, [`Place`] when two are the same place. Pure.
//!
//! Whoever seals a request chooses its spelling, and servers read one path in many ways: some decode `%2F` to a slash, some forget `;x` at the
//! end of a segment, some a dot there. A rule for a path must hold for each spelling that may reach the same page. So a path in which
//! decoding, or forgetting, uncovers a dot segment, an empty segment or a control character is refused: readers disagree about where it leads.
//! All others are compared decoded, without what some forget. What is compared is never sent: the application gets the path as it was sealed.

/// The longest target: as much as common servers take in a request line.
const TARGET_MAX: usize = 8 * 1024;

/// Whether a text is a target in origin form (RFC 9112 §3.2.1) that can be written into a request line, and whose path leads to one place
/// whoever reads it.
pub fn is_target(text: &str) -> bool {
    text.starts_with('/')
        && text.len() <= TARGET_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
        && is_plain(text.split_once('?').map_or(text, |(path, _)| path))
}

/// No empty or dot segments and no backslash, also not behind percent-encoding or before `;`; nothing percent-encoded that never need be
/// (RFC 3986 §6.2.2).
fn is_plain(path: &str) -> bool {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let Some(decoded) = decode(path.as_bytes(), |byte| !is_unreserved(byte)) else { return false };
    let mut segments = decoded.split(|byte| *byte == b'/').skip(1).peekable();
    let mut are_plain = true;
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        let name = before_parameters(segment);
        are_plain &= !matches!(name, b"." | b"..") && (is_last || !segment.is_empty());
    }
    are_plain && !decoded.iter().any(|byte| *byte == b'\\' || byte.is_ascii_control())
}

/// The bytes that a percent-encoded text stands for; none if it is not well encoded, or has a byte encoded that may not be.
fn decode(text: &[u8], may_be_encoded: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (mut decoded, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' => {
                let [high, low, after @ ..] = after else { return None };
                let byte = digit(*high)? << 4 | digit(*low)?;
                if !may_be_encoded(byte) {
                    return None;
                }
                decoded.push(byte);
                rest = after;
            }
            other => decoded.push(*other),
        }
    }
    Some(decoded)
}

/// A segment without its parameters (RFC 3986 §3.3), which Java's servers forget.
fn before_parameters(segment: &[u8]) -> &[u8] {
    segment.split(|byte| *byte == b';').next().unwrap_or_default()
}

/// A segment without parameters, and without the dots and spaces at its end that Windows' servers forget.
fn name_of(segment: &[u8]) -> &[u8] {
    let name = before_parameters(segment);
    let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
    // Nothing but dots is a name where it is none to forget.
    if end == 0 { name } else { &name[..end] }
}

/// Where a path leads: its segments, decoded, without what some servers forget, and without empty ones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place(Vec<Vec<u8>>);

impl Place {
    /// Of a path without its query. What is not well encoded stands for itself.
    pub fn of(path: &str) -> Self {
        let decoded = decode(path.as_bytes(), |_| true).unwrap_or_else(|| path.as_bytes().to_vec());
        let names = decoded.split(|byte| *byte == b'/').map(name_of).filter(|name| !name.is_empty());
        Self(names.map(<[u8]>::to_vec).collect())
    }

    /// Whether another place is this one, or below it.
    pub fn holds(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_that_readers_disagree_about_is_refused() {
        for plain in ["/", "/a/b", "/a/", "/a%20b", "/a%2Fb", "/a%2fb", "/~a/b.c?x=//../%61", "/%C3%A9", "/a...b"]
            .into_iter()
            .chain([
                "/wiki/Special:Upload",
                "/wiki/Special%3AUpload",
                "/a;b=1/c",
                "/.../a",
                "/a%3Bb",
                "/100%25",
                "/a%252Fb",
            ])
        {
            assert!(is_target(plain), "{plain}");
        }
        for other in ["", "a", "//a", "/a//b", "/a/../b", "/a/.", "/..", "/%61", "/a%2e%2e/b", "/a%", "/a%2", "/a%zz"]
            .into_iter()
            .chain(["/a%+5", "/a\\b", "/a%5Cb", "/a%5cb", "/a%00", "/a%0d%0ab", "/a%7F", "/a#b", "/a b"])
            .chain(["/a%2F..%2Fb", "/a%2F../b", "/a/..%2Fb", "/a%2F.", "/a%2F%2Fb", "/a/%2Fb", "/%2Fa"])
            .chain(["/a/..;/b", "/a/..;x=1/b", "/a/.;/b", "/..;", "/a%2F..;/b", "/a/..%3B/b"])
        {
            assert!(!is_target(other), "{other}");
        }
    }

    #[test]
    fn a_place_holds_each_spelling_of_itself_and_what_is_below() {
        for (rule, path, is_held) in [
            ("/wiki/Special:Upload", "/wiki/Special%3AUpload", true),
            ("/wiki/Special%3aUpload", "/wiki/Special:Upload", true),
            ("/wiki/Spécial:Téléverser", "/wiki/Sp%C3%A9cial:T%c3%a9l%c3%a9verser", true),
            ("/upload", "/upload/", true),
            ("/upload/", "/upload", true),
            ("/upload", "/upload;v=1/a", true),
            ("/upload", "/upload./a", true),
            ("/upload", "/upload%20", true),
            ("/api/photos", "/api%2Fphotos/7", true),
            ("/", "/anything", true),
            ("/upload", "/uploads", false),
            ("/upload", "/x/upload", false),
            ("/upload", "/Upload", false),
            ("/upload/big", "/upload", false),
            ("/a%2525", "/a%25", false),
            ("/.../a", "/a", false),
        ] {
            assert_eq!(Place::of(rule).holds(&Place::of(path)), is_held, "{rule} {path}");
        }
    }

    /// One way of writing a character of a path.
    fn spelled(letter: char, choice: u8) -> String {
        match (letter.is_ascii_alphanumeric(), choice % 3) {
            (true, _) | (_, 0) => letter.to_string(),
            (_, 1) => format!("%{:02X}", letter as u32),
            _ => format!("%{:02x}", letter as u32),
        }
    }

    proptest! {
        #[test]
        fn no_spelling_of_a_path_escapes_its_rule(
            segments in prop::collection::vec("[a-z][a-z0-9:@!$&'()*+,=]{0,6}", 1..4),
            below in prop::option::of("[a-z]{1,4}"),
            choices in prop::collection::vec(any::<u8>(), 64),
            ends in prop::collection::vec(prop::sample::select(vec!["", "", ";", ";x=1", ".", "..", "%20", ".;a"]), 4),
            joints in prop::collection::vec(prop::sample::select(vec!["/", "%2F", "%2f"]), 4),
        ) {
            let rule = format!("/{}", segments.join("/"));
            let mut path = String::new();
            let mut choice = choices.iter().cycle();
            for (at, segment) in segments.iter().chain(&below).enumerate() {
                path += if at == 0 { "/" } else { joints[at % 4] };
                segment.chars().for_each(|letter| path += &spelled(letter, *choice.next().unwrap()));
                path += ends[at % 4];
            }
            prop_assert!(is_target(&path), "{}", path);
            prop_assert!(Place::of(&rule).holds(&Place::of(&path)), "{} {}", rule, path);
        }

        #[test]
        fn whatever_is_taken_leads_to_one_place(path in "/[a./%2Ff;e5Cc0-]{0,12}") {
            prop_assume!(is_target(&path));
            let decoded = decode(path.as_bytes(), |_| true).unwrap();
            for segment in decoded.split(|byte| *byte == b'/') {
                let name = segment.split(|byte| *byte == b';').next().unwrap();
                prop_assert!(name != b"." && name != b"..", "{}", path);
            }
            prop_assert!(!decoded.contains(&b'\\') && !decoded.contains(&0), "{}", path);
            // A rule for where it leads holds for it, and one for what it is not below does not.
            prop_assert!(Place::of(&path).holds(&Place::of(&path)));
            prop_assert!(!Place::of("/zz").holds(&Place::of(&path)));
        }
    }
}
