//! Where a download goes: [`name`], from its URL.

use percent_encoding::percent_decode_str;
use url::Url;

/// The longest name, in bytes: file systems take 255, and `.part.json` follows it.
const NAME_MAX: usize = 200;

/// The name of the file that a URL is saved as: the last part of its path. Nothing in it leaves the folder, hides the file, or acts on a terminal.
pub fn name(url: &Url) -> String {
    let last = url.path_segments().and_then(|mut segments| segments.next_back()).unwrap_or_default();
    let decoded = percent_decode_str(last).decode_utf8_lossy();
    let plain: String = decoded.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect();
    let plain = plain.trim_start_matches(['.', '-', ' ']).trim_end();
    let end = (0..=plain.len().min(NAME_MAX)).rev().find(|at| plain.is_char_boundary(*at)).unwrap_or(0);
    if end == 0 { "index.html".to_owned() } else { plain[..end].to_owned() }
}

fn is_plain(letter: char) -> bool {
    let mut text = [0; 4];
    letter != '/' && letter != '\\' && hoop_units::plain::line(letter.encode_utf8(&mut text)) == letter.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_folder_and_shows_itself() {
        for (url, expected) in [
            ("http://a.example/b/c.iso", "c.iso"),
            ("http://a.example/b/c.iso?d=/e", "c.iso"),
            ("http://a.example/", "index.html"),
            ("http://a.example", "index.html"),
            ("http://a.example/b/", "index.html"),
            ("http://a.example/..%2f..%2fetc%2fpasswd", "_.._etc_passwd"),
            ("http://a.example/%2e%2e", "index.html"),
            ("http://a.example/.bashrc", "bashrc"),
            ("http://a.example/-rf", "rf"),
            ("http://a.example/a%0ab%1b%5b2J", "a_b_[2J"),
            ("http://a.example/%zz%", "%zz%"),
            ("http://a.example/caf%C3%A9.txt", "café.txt"),
        ] {
            assert_eq!(name(&Url::parse(url).unwrap()), expected, "{url}");
        }
        assert_eq!(name(&Url::parse(&format!("http://a.example/{}é", "a".repeat(199))).unwrap()), "a".repeat(199));
    }
}
