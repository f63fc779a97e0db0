//! A line of an expectation as words with their places. Case is dropped, and an underscore is a space.

use std::ops::Range;

/// A word, in lower case, or a run of comparison signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) range: Range<usize>,
}

/// Splits a line. Comparison signs end a word, so that `ratio<=20%` needs no spaces.
pub(super) fn split(line: &str) -> Vec<Word> {
    #[derive(PartialEq, Clone, Copy)]
    enum Class {
        Space,
        Sign,
        Letter,
    }
    let class = |c: char| match c {
        '_' => Class::Space,
        c if c.is_whitespace() => Class::Space,
        '<' | '>' | '=' | '!' | '≤' | '≥' => Class::Sign,
        _ => Class::Letter,
    };
    let mut words: Vec<Word> = Vec::new();
    let mut last = Class::Space;
    for (at, c) in line.char_indices() {
        let now = class(c);
        let end = at + c.len_utf8();
        match words.last_mut() {
            Some(word) if now == last && now != Class::Space => {
                word.text.extend(c.to_lowercase());
                word.range.end = end;
            }
            _ if now != Class::Space => {
                words.push(Word { text: c.to_lowercase().collect(), range: at..end });
            }
            _ => {}
        }
        last = now;
    }
    words
}

impl Word {
    /// Whether it consists of comparison signs.
    pub(super) fn is_sign(&self) -> bool {
        self.text.starts_with(['<', '>', '=', '!', '≤', '≥'])
    }

    /// Whether it starts as a quantity does.
    pub(super) fn is_quantity(&self) -> bool {
        self.text.trim_start_matches(['-', '+', '.']).starts_with(|c: char| c.is_ascii_digit())
    }
}
