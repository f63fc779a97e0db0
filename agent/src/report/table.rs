//! Tables that fit the terminal: with columns where every word has room in its own, as a list where that cannot be.

use std::io::IsTerminal as _;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, Table};

/// Columns of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width(pub u16);

impl Width {
    /// For files, pipes and whoever does not say.
    pub const USUAL: Self = Self(120);
    /// No table is worth fewer; a terminal that says so does not know.
    const LEAST: u16 = 20;

    /// Of the terminal that standard output is, else what `COLUMNS` says.
    #[must_use]
    pub fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        let terminal = || ratatui::crossterm::terminal::size().ok().map(|(columns, _)| columns);
        let told = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let columns = if stdout.is_terminal() { terminal() } else { None };
        columns.or_else(told).filter(|columns| *columns > 0).map_or(Self::USUAL, |columns| Self(columns.max(Self::LEAST)))
    }
}

/// Columns beside each cell's text.
const PADDING: usize = 3;
/// A column narrower than this is hard to read where its texts are longer.
const READABLE: usize = 12;

/// A table within a width.
pub(crate) fn table<const N: usize>(heads: &[&str; N], rows: impl IntoIterator<Item = [String; N]>, width: Width) -> String {
    let rows: Vec<[String; N]> = rows.into_iter().collect();
    let least: usize = (0..N).map(|column| least(heads[column], rows.iter().map(|row| row[column].as_str())) + PADDING).sum();
    if least > usize::from(width.0) {
        return list(heads, &rows, usize::from(width.0));
    }
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_width(width.0);
    table.set_header(heads.to_vec());
    for row in rows {
        table.add_row(row.to_vec());
    }
    table.to_string()
}

/// The columns that a column's texts need: those of the longest word, and enough to read longer lines.
fn least<'a>(head: &'a str, cells: impl Iterator<Item = &'a str>) -> usize {
    let texts = std::iter::once(head).chain(cells);
    texts.flat_map(str::lines).map(|line| longest_word(line).max(line.chars().count().min(READABLE))).max().unwrap_or(0)
}

fn longest_word(line: &str) -> usize {
    line.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0)
}

/// One paragraph for each row: its first cell, and below it the others, each behind the head of its column.
fn list<const N: usize>(heads: &[&str; N], rows: &[[String; N]], width: usize) -> String {
    let mut lines = Vec::new();
    for row in rows {
        for (column, (head, cell)) in heads.iter().zip(row).enumerate() {
            // Two things in one cell have two heads.
            for (at, part) in cell.lines().enumerate().filter(|(_, part)| !part.is_empty()) {
                let head = head.lines().nth(at).unwrap_or_default();
                if column == 0 {
                    lines.extend(wrapped(part, width));
                } else {
                    let text = if head.is_empty() { part.to_owned() } else { format!("{head}: {part}") };
                    lines.extend(wrapped(&text, width.saturating_sub(2)).into_iter().map(|line| format!("  {line}")));
                }
            }
        }
        lines.push(String::new());
    }
    lines.pop();
    lines.join("\n")
}

/// A text in lines of at most so many characters, broken between words, and within those that are longer.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + letters.len() > width {
            lines.push(String::new());
            used = 0;
        }
        if used > 0 {
            used += 1;
            lines.last_mut().into_iter().for_each(|line| line.push(' '));
        }
        for (index, letter) in letters.into_iter().enumerate() {
            if used == width && index > 0 {
                lines.push(String::new());
                used = 0;
            }
            used += 1;
            lines.last_mut().into_iter().for_each(|line| line.push(letter));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: [&str; 6] = ["verdict", "expectation", "observed", "limit", "90% interval\nwindows", "why"];

    fn rows() -> Vec<[String; 6]> {
        let why = "200% is above the limit of 20%, and the interval leaves no doubt: 1800 attempts where 600 were before";
        let row = ["fail", "store downstream QPS increase <= 20%", "200%", "20%", "171.2% to 232.9%\n0-11 (fault)", why];
        vec![row.map(str::to_owned), ["pass", "retry ratio <= 20%", "1%", "20%", "0% to 2%\n6-11 (fault)", ""].map(str::to_owned)]
    }

    #[test]
    fn every_width_is_kept_and_no_word_is_broken() {
        for width in [20, 30, 40, 60, 80, 100, 120, 200] {
            let text = table(&HEADS, rows(), Width(width));
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line:?}\n{text}");
            }
            for word in ["expectation", "increase", "(fault)", "attempts", "232.9%"] {
                assert!(text.contains(word) || text.contains("90% interval: ") && word == "expectation", "{width}: {word}\n{text}");
            }
        }
    }

    #[test]
    fn what_is_too_narrow_for_columns_is_a_list() {
        assert!(table(&HEADS, rows(), Width(120)).contains('─'));
        let narrow = table(&HEADS, rows(), Width(40));
        assert!(!narrow.contains('─'));
        let start = "fail\n  expectation: store downstream QPS\n  increase <= 20%\n  observed: 200%\n  limit: 20%\n  90% interval: 171.2% to 232.9%\n  windows: 0-11 (fault)\n  why: 200%";
        assert!(narrow.starts_with(start), "{narrow}");
    }

    #[test]
    fn long_words_are_broken_where_they_must_be() {
        assert_eq!(wrapped("ab cdefgh i", 3), ["ab", "cde", "fgh", "i"]);
        assert_eq!(wrapped("", 3), [""]);
    }
}
