//! Foreign text that cannot deceive: [`shown`]. Pure.

/// What others wrote, as it may stand in a template, which escapes it. What would turn the text around it over, or is no
/// character at all (a name that reads `gpj.exe` backwards), is replaced.
pub fn shown(raw: &str) -> String {
    let safe = |character: char| match character {
        '\n' | '\t' => ' ',
        character if character.is_control() || turns(character) => '\u{fffd}',
        other => other,
    };
    raw.chars().map(safe).collect()
}

/// Marks, embeddings, overrides and isolates of direction (UAX #9), line ends in disguise, and what shows as nothing.
fn turns(character: char) -> bool {
    matches!(character, '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use maud::html;

    #[test]
    fn no_character_of_what_others_wrote_leaves_its_place() {
        let hostile = "a\"><script>'&\u{202e}gpj.\u{0}exe\nb\u{2066}";
        let page = html! { b title=(shown(hostile)) { (shown(hostile)) } }.into_string();
        let safe = "a&quot;&gt;&lt;script&gt;'&amp;\u{fffd}gpj.\u{fffd}exe b\u{fffd}";
        assert_eq!(page, format!("<b title=\"{safe}\">{safe}</b>"));
    }
}
