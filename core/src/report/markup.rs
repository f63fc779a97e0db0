//! Texts made safe for the place that they are put into. Names, hosts and reasons come from playbooks and kernels.

use crate::wording::acts_unseen;

/// For XML text and attribute values. Control characters, which XML 1.0 forbids, and those that turn the direction of writing become U+FFFD.
#[must_use]
pub(super) fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\u{FFFE}' | '\u{FFFF}' => out.push('\u{FFFD}'),
            c if acts_unseen(c) => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}

/// For a cell of a Markdown table: on one line, and without the power to start markup or HTML.
#[must_use]
pub(super) fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '#' | '~' | '@' => {
                out.push('\\');
                out.push(c);
            }
            c if acts_unseen(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// For a terminal, which obeys control characters and turns the direction of writing: they become U+FFFD.
#[must_use]
pub fn terminal(text: &str) -> String {
    text.chars().map(|c| if acts_unseen(c) { '\u{FFFD}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_its_place() {
        assert_eq!(xml("a<b> & \"c\"\u{0}\n"), "a&lt;b&gt; &amp; &quot;c&quot;\u{FFFD}&#10;");
        assert_eq!(terminal("\u{1b}]0;t\u{7}a\u{0}\u{202e}b\nc ≤ é"), "\u{FFFD}]0;t\u{FFFD}a\u{FFFD}\u{FFFD}b\u{FFFD}c ≤ é");
        assert_eq!(cell("a|b\n<i> `x` ≤ 1"), "a\\|b &lt;i&gt; \\`x\\` ≤ 1");
    }
}
