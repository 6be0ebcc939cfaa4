//! A text as a QR code of a terminal's letters: [`lines`].

use qrcodegen::{QrCode, QrCodeEcc};

/// The light border that a reader needs (ISO/IEC 18004), in modules.
const QUIET: i32 = 4;

/// The code's lines, two rows of modules in each; None: no code holds so much (2,953 bytes). What is light is drawn, as most terminals are dark; readers take the other kind, too.
pub fn lines(text: &str) -> Option<Vec<String>> {
    let code = QrCode::encode_text(text, QrCodeEcc::Low).ok()?;
    let across = -QUIET..code.size() + QUIET;
    // What is outside of the code is light.
    let letter = |x, y| match (code.get_module(x, y), code.get_module(x, y + 1)) {
        (false, false) => '█',
        (false, true) => '▀',
        (true, false) => '▄',
        (true, true) => ' ',
    };
    Some(across.clone().step_by(2).map(|y| across.clone().map(|x| letter(x, y)).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letters_are_the_codes_modules_within_a_light_border() {
        let text = "server = \"relay.example:4669\"\n";
        let (lines, code) = (lines(text).unwrap(), QrCode::encode_text(text, QrCodeEcc::Low).unwrap());
        let side = usize::try_from(code.size() + 2 * QUIET).unwrap();
        assert_eq!(lines.len(), side.div_ceil(2));
        for (row, line) in lines.iter().enumerate() {
            let letters: Vec<_> = line.chars().collect();
            assert_eq!(letters.len(), side);
            for (column, letter) in letters.into_iter().enumerate() {
                let (x, y) = (column as i32 - QUIET, 2 * row as i32 - QUIET);
                let is_dark = [matches!(letter, ' ' | '▄'), matches!(letter, ' ' | '▀')];
                assert_eq!(is_dark, [code.get_module(x, y), code.get_module(x, y + 1)], "{x}, {y}");
            }
        }
    }

    #[test]
    fn what_no_code_holds_has_none() {
        assert!(lines(&"x".repeat(2_953)).is_some());
        assert!(lines(&"x".repeat(2_954)).is_none());
    }
}
