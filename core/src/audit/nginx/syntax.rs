//! nginx.conf as a tree of directives.

use std::ops::Range;

use super::super::Refused;
use super::super::source::Source;
use super::lexer::{Lexer, OpenQuote, Token};

/// Deeper blocks are in no real configuration.
const MAX_DEPTH: usize = 32;

/// A word and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) range: Range<usize>,
}

/// `name arguments;` or `name arguments { block }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directive {
    /// The name and its arguments; never empty.
    words: Vec<Word>,
    pub(super) block: Option<Vec<Directive>>,
}

impl Directive {
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", |word| &word.text)
    }

    pub(super) fn arguments(&self) -> &[Word] {
        self.words.get(1..).unwrap_or_default()
    }

    /// The first argument, or nothing.
    pub(super) fn argument(&self) -> &str {
        self.arguments().first().map_or("", |word| &word.text)
    }

    pub(super) fn block(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// From the name to the last argument.
    pub(super) fn range(&self) -> Range<usize> {
        let start = self.words.first().map_or(0, |word| word.range.start);
        start..self.words.last().map_or(start, |word| word.range.end)
    }
}

pub(super) fn parse(source: &Source<'_>) -> Result<Vec<Directive>, Refused> {
    let mut lexer = Lexer::new(source.text());
    // The blocks that are open: the directive that each belongs to, and what it has so far.
    let mut open: Vec<(Vec<Word>, Vec<Directive>)> = Vec::new();
    let mut here: Vec<Directive> = Vec::new();
    let mut words: Vec<Word> = Vec::new();
    loop {
        let token = lexer.next().map_err(|OpenQuote(at)| source.refuse(at..at + 1, "this quote is not closed"))?;
        let Some((token, range)) = token else { break };
        match token {
            Token::Word(text) => words.push(Word { text, range }),
            Token::Semicolon if words.is_empty() => return Err(source.refuse(range, "a semicolon ends nothing here")),
            Token::Semicolon => here.push(Directive { words: std::mem::take(&mut words), block: None }),
            Token::Open if words.is_empty() => return Err(source.refuse(range, "a block has no name here")),
            Token::Open if words[0].text.ends_with("_by_lua_block") => {
                lexer.skip_block();
                here.push(Directive { words: std::mem::take(&mut words), block: Some(Vec::new()) });
            }
            Token::Open if open.len() >= MAX_DEPTH => return Err(source.refuse(range, "blocks are nested too deeply")),
            Token::Open => open.push((std::mem::take(&mut words), std::mem::take(&mut here))),
            Token::Close => {
                if let Some(word) = words.first() {
                    return Err(source.refuse(word.range.clone(), format!("`{}` has no semicolon at its end", word.text)));
                }
                let Some((words, outside)) = open.pop() else {
                    return Err(source.refuse(range, "this brace closes nothing"));
                };
                let block = std::mem::replace(&mut here, outside);
                here.push(Directive { words, block: Some(block) });
            }
        }
    }
    if let Some(word) = words.first() {
        return Err(source.refuse(word.range.clone(), format!("`{}` has no semicolon at its end", word.text)));
    }
    if let Some((words, _)) = open.pop() {
        return Err(source.refuse(words.first().map_or(0..0, |word| word.range.clone()), "this block is not closed"));
    }
    Ok(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_where_it_is() {
        for (text, message, at) in [
            ("a {\n b c;\n", "this block is not closed", 0),
            ("a;\n}", "this brace closes nothing", 3),
            ("http { a b }", "`a` has no semicolon at its end", 7),
            ("a b", "`a` has no semicolon at its end", 0),
            ("a;;", "a semicolon ends nothing here", 2),
            ("{ a; }", "a block has no name here", 0),
            ("a 'b;", "this quote is not closed", 2),
        ] {
            let error = parse(&Source::new(0, text)).map_err(|refused| (refused.message, refused.place.start));
            assert_eq!(error, Err((message.to_owned(), at)), "{text}");
        }
        assert!(parse(&Source::new(0, &"a {".repeat(100_000))).is_err());
    }
}
