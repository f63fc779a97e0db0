//! The rules, each a look at one file's text. What a rule forbids is written here in pieces, so that this file keeps to it.

use super::{Problem, Rule};

/// More than this, besides tests, is more than one subject.
const LONGEST: usize = 500;

/// Places that a clone does not have, and registries: each machine has its own way to those.
const FORBIDDEN_NAMES: [&str; 7] = [
    concat!("/work", "/shared"),
    concat!("../", "shared"),
    concat!("crates", ".io"),
    concat!("deb.", "debian.org"),
    concat!("pypi", ".org"),
    concat!("registry.npmjs", ".org"),
    concat!("static.rust-lang", ".org"),
];

/// What the rules about names leave out: cargo itself writes the registry's name into its lock files.
const NAMED_BY_CARGO: &str = "Cargo.lock";

/// Extensions of files that people write; golden files hold whatever a program prints, or is to complain about.
const WRITTEN: [&str; 9] = ["rs", "toml", "md", "yaml", "yml", "json", "sh", "allow", "service"];

pub(super) fn check_file(file: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut report = |rule, line, text: String| problems.push(Problem { rule: Some(rule), file: file.to_owned(), line, text });
    let extension = file.rsplit('.').next().unwrap_or_default();
    let is_rust = extension == "rs";

    if !file.ends_with(NAMED_BY_CARGO) {
        for (number, line) in numbered(text) {
            for name in FORBIDDEN_NAMES.iter().filter(|name| line.contains(**name)) {
                report(Rule::Name, number, format!("names {name}"));
            }
        }
    }
    if WRITTEN.contains(&extension) && !file.contains("/golden/") {
        for (number, line) in numbered(text) {
            if line.ends_with([' ', '\t', '\r']) {
                report(Rule::Whitespace, number, "blanks at the end of the line".to_owned());
            }
            if line.contains('\t') {
                report(Rule::Whitespace, number, "a tab".to_owned());
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            report(Rule::Whitespace, 0, "no line feed at the end".to_owned());
        }
    }
    if is_rust {
        if !text.starts_with("//!") {
            report(Rule::Header, 1, "does not begin with //! and what the file is for".to_owned());
        }
        let tests = first_test_line(file, text);
        if tests - 1 > LONGEST {
            report(Rule::Length, 0, format!("{} lines besides tests, {LONGEST} at most: split it", tests - 1));
        }
        for (number, line) in numbered(text) {
            let code = line.trim_start();
            if code.starts_with(concat!("#[", "ignore")) {
                report(Rule::Ignore, number, "a test that is left out".to_owned());
            }
            if code.starts_with(concat!("#[", "should_panic")) {
                report(Rule::Panic, number, "a test that passes for whatever panic".to_owned());
            }
            if number >= tests && !code.starts_with("//") && line.contains(concat!("thread::", "sleep")) {
                report(Rule::Sleep, number, "a test that waits for a time".to_owned());
            }
        }
    }
    problems
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split('\n').enumerate().map(|(index, line)| (index + 1, line))
}

/// The line, counted from 1, at which a file's tests begin; one past the last if it has none. All of a file in a folder `tests`, or called
/// `tests.rs`, is tests.
fn first_test_line(file: &str, text: &str) -> usize {
    if file.starts_with("tests/") || file.contains("/tests/") || file.ends_with("/tests.rs") {
        return 1;
    }
    let mut lines = text.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let next_is_module = lines.peek().is_some_and(|(_, next)| next.starts_with("mod ") || next.starts_with("#["));
        if line == "#[cfg(test)]" && next_is_module {
            return index + 1;
        }
    }
    text.lines().count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<(Rule, usize)> {
        check_file(file, text).into_iter().filter_map(|problem| Some((problem.rule?, problem.line))).collect()
    }

    #[test]
    fn a_rust_file_begins_with_what_it_is_for() {
        assert_eq!(found("a/src/x.rs", "use x;\n"), [(Rule::Header, 1)]);
        assert_eq!(found("a/src/x.rs", "//! Why.\nuse x;\n"), []);
        assert_eq!(found("a/README.md", "text\n"), []);
    }

    #[test]
    fn only_lines_besides_tests_count_towards_a_files_length() {
        let code = format!("//! Why.\n{}", "// line\n".repeat(LONGEST));
        assert_eq!(found("a/src/x.rs", &code), [(Rule::Length, 0)]);
        let tested = format!("//! Why.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "// line\n".repeat(LONGEST));
        assert_eq!(found("a/src/x.rs", &tested), []);
        assert_eq!(found("a/tests/x.rs", &code), []);
        assert_eq!(found("a/src/x/tests.rs", &code), []);
    }

    #[test]
    fn blanks_tabs_and_a_missing_line_feed_are_seen_in_written_files_only() {
        assert_eq!(found("x.md", "a \n\tb\nc"), [(Rule::Whitespace, 1), (Rule::Whitespace, 2), (Rule::Whitespace, 0)]);
        assert_eq!(found("x.snap", "a \n\tb"), []);
        assert_eq!(found("a/tests/golden/tab.yaml", "a:\tb\n"), []);
    }

    #[test]
    fn places_that_a_clone_lacks_are_not_named_except_in_lock_files() {
        let text = concat!("see crates", ".io\n");
        assert_eq!(found("x.txt", text), [(Rule::Name, 1)]);
        assert_eq!(found("a/Cargo.lock", text), []);
    }

    #[test]
    fn tests_are_not_left_out_and_do_not_sleep() {
        let text = concat!(
            "//! Why.\nfn wait() { thread::",
            "sleep(x) }\n#[cfg(test)]\nmod tests {\n    #[",
            "ignore]\n    fn a() { thread::",
            "sleep(x) }\n}\n"
        );
        assert_eq!(found("a/src/x.rs", text), [(Rule::Ignore, 5), (Rule::Sleep, 6)]);
        let text = concat!("//! Why.\n#[", "should_panic]\nfn a() { thread::", "sleep(x) }\n");
        assert_eq!(found("a/tests/x.rs", text), [(Rule::Panic, 2), (Rule::Sleep, 3)]);
    }
}
