//! `-F` as curl has it: [`parse_part`].
//!
//! ```text
//! name=value                text            name=@file[;type=…][;filename=…]    a file
//! name=value;type=…         text            name=<file[;type=…]                 text from a file
//! ```
//!
//! File names and the values of `type` and `filename` may stand in double quotes, in which `\"` and `\\` are escapes; so
//! may a text that contains `;`. A file `-` is the standard input.

use hoop_client::{Content, Part, content_type_of};
use std::path::Path;

/// One `-F`.
pub fn parse_part(text: &str) -> Result<Part, String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("expected name=value in -F, not `{text}`"))?;
    let (kind, rest) = match value.as_bytes().first() {
        Some(b'@') => (Kind::File, &value[1..]),
        Some(b'<') => (Kind::TextFile, &value[1..]),
        _ => (Kind::Text, value),
    };
    let (content, mut rest) = word(rest);
    let (mut content_type, mut file_name) = (None, None);
    while let Some(option) = rest.strip_prefix(';') {
        let option = option.trim_start();
        let (target, (value, after)) = match (option.strip_prefix("type="), option.strip_prefix("filename=")) {
            (Some(value), _) => (&mut content_type, media_type(value)),
            (None, Some(value)) => (&mut file_name, word(value)),
            (None, None) => return Err(format!("expected type= or filename= after `;` in -F, not `{option}`")),
        };
        *target = Some(value);
        rest = after;
    }
    Ok(match kind {
        Kind::Text => Part { name: name.to_owned(), content: Content::Bytes(content.into()), file_name, content_type },
        Kind::TextFile => Part { name: name.to_owned(), content: file(&content), file_name, content_type },
        Kind::File => {
            let own = Path::new(&content).file_name().map(|own| own.to_string_lossy().into_owned());
            let file_name = file_name.or(own).unwrap_or_else(|| content.clone());
            let content_type = content_type.unwrap_or_else(|| content_type_of(&file_name).to_owned());
            Part {
                name: name.to_owned(),
                content: file(&content),
                file_name: Some(file_name),
                content_type: Some(content_type),
            }
        }
    })
}

enum Kind {
    Text,
    TextFile,
    File,
}

/// What `@` and `<` name.
pub fn file(name: &str) -> Content {
    match name {
        "-" => Content::Stdin,
        name => Content::File(name.into()),
    }
}

/// A word in quotes, or up to the next `;`; and what follows it.
fn word(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let (mut word, mut letters) = (String::new(), quoted.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (word, &quoted[at + 1..]),
            '\\' => word.extend(letters.next().map(|(_, escaped)| escaped)),
            letter => word.push(letter),
        }
    }
    // No closing quote: the quote is part of the text, as for curl.
    let end = text.find(';').unwrap_or(text.len());
    (text[..end].to_owned(), &text[end..])
}

/// A media type with its parameters: it ends where one of our own options begins.
fn media_type(text: &str) -> (String, &str) {
    if text.starts_with('"') {
        return word(text);
    }
    let end = text.find(";filename=").or_else(|| text.find("; filename=")).unwrap_or(text.len());
    (text[..end].to_owned(), &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Content, Option<String>, Option<String>) {
        let part = parse_part(text).unwrap();
        assert_eq!(part.name, "n");
        (part.content, part.file_name, part.content_type)
    }

    #[test]
    fn parts_are_read_as_curl_reads_them() {
        let text = |text: &str| Content::Bytes(text.to_owned().into());
        let some = |text: &str| Some(text.to_owned());
        let path = |path: &str| Content::File(path.into());
        let bytes = some("application/octet-stream");
        for (typed, expected) in [
            ("n=v", (text("v"), None, None)),
            ("n=", (text(""), None, None)),
            ("n=a=b", (text("a=b"), None, None)),
            ("n=v;type=text/x", (text("v"), None, some("text/x"))),
            (r#"n="a;b\"c""#, (text(r#"a;b"c"#), None, None)),
            (r#"n="open"#, (text(r#""open"#), None, None)),
            ("n=@d/a.jpg", (path("d/a.jpg"), some("a.jpg"), some("image/jpeg"))),
            (
                "n=@a;type=text/plain; charset=utf-8;filename=b",
                (path("a"), some("b"), some("text/plain; charset=utf-8")),
            ),
            ("n=@a;filename=b.png;type=x/y", (path("a"), some("b.png"), some("x/y"))),
            (r#"n=@"a;b";filename="c;d""#, (path("a;b"), some("c;d"), bytes.clone())),
            ("n=@-", (Content::Stdin, some("-"), bytes)),
            ("n=<a", (path("a"), None, None)),
        ] {
            assert_eq!(parsed(typed), expected, "{typed}");
        }
    }

    #[test]
    fn a_part_without_a_name_or_with_an_unknown_option_is_refused() {
        assert!(parse_part("value").unwrap_err().contains("name=value"));
        assert!(parse_part("n=@a;headers=x").unwrap_err().contains("headers=x"));
    }
}
