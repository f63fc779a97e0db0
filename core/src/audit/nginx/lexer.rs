//! nginx.conf as words, braces and semicolons.

use std::ops::Range;

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A word, without quotes and escapes.
    Word(String),
    Open,
    Close,
    Semicolon,
}

/// What stopped the lexer: a quote without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenQuote(pub(super) usize);

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next token and its range; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(Token, Range<usize>)>, OpenQuote> {
        self.skip_blank();
        let start = self.at;
        let Some(first) = self.peek() else {
            return Ok(None);
        };
        let token = match first {
            '{' => Token::Open,
            '}' => Token::Close,
            ';' => Token::Semicolon,
            '"' | '\'' => return self.quoted(first).map(|word| Some((word, start..self.at))),
            _ => return Ok(Some((self.bare(), start..self.at))),
        };
        self.at += 1;
        Ok(Some((token, start..self.at)))
    }

    /// Skips to behind the brace that closes the block whose opening brace was the last token: its content is another language (Lua).
    pub(super) fn skip_block(&mut self) {
        let mut depth = 1_usize;
        while let Some(c) = self.peek() {
            self.at += c.len_utf8();
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                '"' | '\'' => {
                    self.at -= 1;
                    // An apostrophe in a comment has no end: it is a character like any other then.
                    let before = self.at;
                    if self.quoted(c).is_err() || self.text[before..self.at].contains('\n') {
                        self.at = before + 1;
                    }
                }
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let text = rest.trim_start();
            self.at += rest.len() - text.len();
            if !text.starts_with('#') {
                return;
            }
            self.at += text.find('\n').unwrap_or(text.len());
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Token, OpenQuote> {
        let start = self.at;
        let mut word = String::new();
        let mut chars = self.text[start + 1..].char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => {
                    if let Some((_, escaped)) = chars.next() {
                        word.extend(unescape(escaped));
                    }
                }
                c if c == quote => {
                    self.at = start + 1 + at + 1;
                    return Ok(Token::Word(word));
                }
                c => word.push(c),
            }
        }
        Err(OpenQuote(start))
    }

    /// A bare word ends at a blank, a semicolon or a brace, save the brace of `${name}`.
    fn bare(&mut self) -> Token {
        let mut word = String::new();
        let mut before = ' ';
        let mut chars = self.text[self.at..].chars();
        while let Some(c) = chars.next() {
            match c {
                ';' => break,
                '{' if before != '$' => break,
                c if c.is_whitespace() => break,
                '\\' => {
                    self.at += 1;
                    if let Some(escaped) = chars.next() {
                        self.at += escaped.len_utf8();
                        word.extend(unescape(escaped));
                    }
                }
                c => {
                    self.at += c.len_utf8();
                    word.push(c);
                }
            }
            before = c;
        }
        Token::Word(word)
    }
}

fn unescape(c: char) -> impl Iterator<Item = char> {
    let known = match c {
        't' => Some('\t'),
        'r' => Some('\r'),
        'n' => Some('\n'),
        '"' | '\'' | '\\' | ' ' | ';' => Some(c),
        _ => None,
    };
    // Other escapes are for regular expressions, and keep their backslash.
    let slash = known.is_none().then_some('\\');
    slash.into_iter().chain(std::iter::once(known.unwrap_or(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut lexer = Lexer::new(text);
        let mut out = Vec::new();
        loop {
            match lexer.next() {
                Ok(Some((Token::Word(word), _))) => out.push(format!("<{word}>")),
                Ok(Some((_, range))) => out.push(text[range].to_owned()),
                Ok(None) => return out.join(" "),
                Err(OpenQuote(at)) => return format!("open quote at {at}"),
            }
        }
    }

    #[test]
    fn words_are_what_nginx_takes_them_for() {
        for (text, tokens) in [
            ("a b;", "<a> <b> ;"),
            ("a{b c;}", "<a> { <b> <c> ; }"),
            ("a \"b; {c\" 'd\\'e'; # f; \n g;", "<a> <b; {c> <d'e> ; <g> ;"),
            ("proxy_pass http://${name}_x/;", "<proxy_pass> <http://${name}_x/> ;"),
            ("location ~ \\.php$ {", "<location> <~> <\\.php$> {"),
            ("a \\;b \"c\\td\";", "<a> <;b> <c\td> ;"),
            ("a \"b", "open quote at 2"),
            ("a \\", "<a> <>"),
            ("\u{e9}:\u{3000}x;", "<\u{e9}:> <x> ;"),
        ] {
            assert_eq!(shown(text), tokens, "{text}");
        }
    }

    #[test]
    fn lua_is_skipped_with_its_braces_and_quotes() {
        let text = " local x = '}' -- don't\n if y { z } } after;";
        let mut lexer = Lexer::new(text);
        lexer.skip_block();
        assert_eq!(lexer.text[lexer.at..].trim(), "after;");
    }
}
