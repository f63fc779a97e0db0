//! haproxy.cfg as lines of words.

use std::ops::Range;

use super::super::Refused;
use super::super::source::Source;

/// A word without its quotes and escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) range: Range<usize>,
}

/// The words of a line, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line(Vec<Word>);

impl Line {
    /// A word by its position; nothing behind the last.
    pub(super) fn word(&self, at: usize) -> &str {
        self.0.get(at).map_or("", |word| &word.text)
    }

    pub(super) fn words(&self) -> &[Word] {
        &self.0
    }

    pub(super) fn range(&self) -> Range<usize> {
        let start = self.0.first().map_or(0, |word| word.range.start);
        start..self.0.last().map_or(start, |word| word.range.end)
    }

    /// Whether the line begins with these words.
    pub(super) fn begins(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(at, word)| self.word(at) == *word)
    }
}

pub(super) fn read(source: &Source<'_>) -> Result<Vec<Line>, Refused> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in source.text().split_inclusive('\n') {
        let words = words(source, line.trim_end_matches(['\n', '\r']), start)?;
        if !words.is_empty() {
            lines.push(Line(words));
        }
        start += line.len();
    }
    Ok(lines)
}

/// Words end at blanks; quotes (within a word too) and backslashes take blanks and `#` into it.
fn words(source: &Source<'_>, line: &str, offset: usize) -> Result<Vec<Word>, Refused> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut quote: Option<(char, usize)> = None;
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        let blank = quote.is_none() && (c.is_whitespace() || c == '#');
        if blank {
            words.extend(word.take());
            if c == '#' {
                break;
            }
            continue;
        }
        let word = word.get_or_insert_with(|| Word { text: String::new(), range: offset + at..offset + at });
        let mut end = at + c.len_utf8();
        match (c, quote) {
            ('"' | '\'', None) => quote = Some((c, at)),
            (c, Some((open, _))) if c == open => quote = None,
            // Single quotes leave backslashes alone.
            ('\\', None | Some(('"', _))) => {
                if let Some((escaped_at, escaped)) = chars.next() {
                    end = escaped_at + escaped.len_utf8();
                    word.text.push(escaped);
                }
            }
            (c, _) => word.text.push(c),
        }
        word.range.end = offset + end;
    }
    if let Some((_, at)) = quote {
        return Err(source.refuse(offset + at..offset + at + 1, "this quote is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<Vec<Vec<String>>, usize> {
        let read = read(&Source::new(0, text)).map_err(|refused| refused.place.start)?;
        Ok(read
            .iter()
            .map(|line| line.words().iter().map(|word| format!("{}={}", word.text, &text[word.range.clone()])).collect())
            .collect())
    }

    #[test]
    fn words_are_what_haproxy_takes_them_for() {
        for (text, words) in [
            ("  retries 3 # why\n", vec![vec!["retries=retries", "3=3"]]),
            ("a \"b c\" 'd # e' f\\ g", vec![vec!["a=a", "b c=\"b c\"", "d # e='d # e'", "f g=f\\ g"]]),
            ("# nothing\n\n\t\n", vec![]),
            ("a \"\"", vec![vec!["a=a", "=\"\""]]),
            ("a#b", vec![vec!["a=a"]]),
            ("x'y'z", vec![vec!["xyz=x'y'z"]]),
        ] {
            let words = words.into_iter().map(|line| line.into_iter().map(str::to_owned).collect()).collect();
            assert_eq!(shown(text), Ok(words), "{text}");
        }
        assert_eq!(shown("ok\na 'b"), Err(5));
    }
}
