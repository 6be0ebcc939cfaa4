//! Text from outside, made safe to show: [`line()`], [`escape`].
//!
//! A gateway, a service, a file's name or a certificate may hold text that commands a terminal (ESC, the C1 controls), turns round what
//! stands beside it (bidirectional controls), hides (zero-width letters, tags), or begins a line of its own that looks like ours. Such
//! letters are shown as `\u001b`: as JSON would write them, so that a JSON document stays one.

use alloc::string::String;
use core::fmt::Write as _;

/// The most letters of one text from outside that are shown: some lines on a terminal. What is longer ends in `…`.
pub const LINE_MAX: usize = 500;

/// Whether a letter does something else than to stand there.
pub fn is_active(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            // Soft hyphen, Arabic letter mark, Mongolian vowel separator.
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            // Zero width, bidirectional marks; line and paragraph separators; embeddings and overrides.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            // Word joiner, invisible operators, isolates, deprecated controls.
            | '\u{2060}'..='\u{206f}'
            // Byte order mark, interlinear annotations, tags.
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Adds a letter to `shown`, escaped if it is [active](is_active).
pub fn push(shown: &mut String, letter: char) {
    if !is_active(letter) {
        shown.push(letter);
        return;
    }
    for unit in letter.encode_utf16(&mut [0; 2]) {
        write!(shown, "\\u{unit:04x}").expect("a string takes all");
    }
}

/// The text in one line of [`LINE_MAX`] letters at most. Doing so again changes nothing.
pub fn line(text: &str) -> String {
    let mut shown = String::new();
    text.chars().take(LINE_MAX + 1).for_each(|letter| push(&mut shown, letter));
    if let Some((end, _)) = shown.char_indices().nth(LINE_MAX) {
        let last = shown[..end].char_indices().next_back().map_or(0, |(last, _)| last);
        shown.truncate(last);
        shown.push('…');
    }
    shown
}

/// The text with its line ends and tabs, and every other active letter escaped.
pub fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => shown.push(letter),
            letter => push(&mut shown, letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// Each with what it does to a reader.
    const HOSTILE: [&str; 14] = [
        "\u{1b}[2J\u{1b}[H", // clears the screen
        "\u{1b}]0;title\u{7}",
        "\u{1b}]52;c;cm0=\u{1b}\\", // writes the clipboard
        "\u{9b}31m",                // C1
        "a\rb",                     // writes over what stands there
        "a\nhoop: you may leave",
        "gpj.\u{202e}exe", // turned round
        "\u{2066}x\u{2069}",
        "ho\u{200b}op",
        "\u{feff}",
        "\u{e0041}\u{e007f}",
        "\u{2028}",
        "\u{8}\u{7f}",
        "\0",
    ];

    #[test]
    fn no_active_letter_is_left_in_a_line() {
        for text in HOSTILE {
            let shown = line(text);
            assert!(!shown.chars().any(is_active), "{shown}");
            assert_eq!(line(&shown), shown, "once is enough");
            let escaped = escape(text);
            assert!(!escaped.chars().any(|letter| is_active(letter) && letter != '\n' && letter != '\t'), "{escaped}");
        }
        assert_eq!(line("a\u{1b}[2Jb\n"), "a\\u001b[2Jb\\u000a");
        assert_eq!(escape("a\tb\nc\u{e0041}"), "a\tb\nc\\udb40\\udc41");
    }

    #[test]
    fn letters_of_all_languages_stay() {
        for text in ["naïve Straße.jpg", "日本語", "שלום", "مرحبا", "👍🏽", "e\u{301}", "`'\"\\<&>"] {
            assert_eq!(line(text), text);
            assert_eq!(escape(text), text);
        }
    }

    #[test]
    fn a_line_has_a_bound_and_says_that_it_was_cut() {
        let full = "ä".repeat(LINE_MAX);
        assert_eq!(line(&full), full);
        let cut = line(&format!("{full}ä"));
        assert!(cut.ends_with("ä…") && cut.chars().count() == LINE_MAX);
        assert_eq!(line(&cut), cut);
        assert_eq!(line(&"\u{1b}".repeat(1_000_000)).chars().count(), LINE_MAX);
    }
}
