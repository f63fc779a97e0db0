//! Includes. `nginx -T` prints every file under a comment with its path: there an include is followed, elsewhere it is reported.

use super::super::finding::{Finding, Rule};
use super::super::source::Source;
use super::syntax::Directive;

/// What `nginx -T` prints before each file.
const MARK: &str = "# configuration file ";

/// An include of an include of …: nginx itself has no limit, real configurations have three levels.
const MAX_DEPTH: usize = 8;

/// A file of a dump: its path, and its directives in order.
struct File {
    path: String,
    directives: Vec<Directive>,
}

/// Puts included files where they are included.
pub(super) fn assemble(source: &mut Source<'_>, tree: Vec<Directive>) -> Vec<Directive> {
    let files = split(source.text(), &tree);
    let Some(main) = files.first() else {
        return followed(source, &tree, &[], 0);
    };
    followed(source, &main.directives, &files, 0)
}

fn split(text: &str, tree: &[Directive]) -> Vec<File> {
    let mut marks: Vec<(usize, &str)> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if let Some(path) = line.strip_prefix(MARK) {
            marks.push((at, path.trim_end().trim_end_matches(':')));
        }
        at += line.len();
    }
    let ends = marks.iter().skip(1).map(|(at, _)| *at).chain([usize::MAX]);
    marks
        .iter()
        .zip(ends)
        .map(|((start, path), end)| {
            let inside = |directive: &&Directive| (*start..end).contains(&directive.range().start);
            File { path: (*path).to_owned(), directives: tree.iter().filter(inside).cloned().collect() }
        })
        .collect()
}

fn followed(source: &mut Source<'_>, directives: &[Directive], files: &[File], depth: usize) -> Vec<Directive> {
    let mut out = Vec::new();
    for directive in directives {
        if directive.name() == "include" && directive.block.is_none() {
            out.extend(included(source, directive, files, depth));
        } else {
            let mut directive = directive.clone();
            directive.block = directive.block.map(|block| followed(source, &block, files, depth));
            out.push(directive);
        }
    }
    out
}

fn included(source: &mut Source<'_>, include: &Directive, files: &[File], depth: usize) -> Vec<Directive> {
    let pattern = include.argument();
    let root = files.first().and_then(|main| main.path.rsplit_once('/')).map_or("", |(folder, _)| folder);
    let whole = if pattern.starts_with('/') { pattern.to_owned() } else { format!("{root}/{pattern}") };
    let found: Vec<&File> = files.iter().skip(1).filter(|file| fits(&whole, &file.path)).collect();
    // A pattern that fits no file is none of nginx's errors, so nothing is missing in a dump; nor are there routes in a list of types.
    let harmless = (!files.is_empty() && pattern.contains('*')) || pattern.ends_with("mime.types") || pattern.ends_with("_params");
    if depth >= MAX_DEPTH || (found.is_empty() && !harmless) {
        let place = source.place(include.range());
        source.report(
            Finding::new(Rule::NotFollowed, place, format!("`{}` was not read", crate::wording::excerpt(pattern)))
                .label("servers, upstreams and settings in it are not part of this audit")
                .help("audit the output of `nginx -T`, which has every included file"),
        );
        return Vec::new();
    }
    found.into_iter().flat_map(|file| followed(source, &file.directives, files, depth + 1)).collect()
}

/// Shell patterns with `*` and `?`, neither of which crosses a slash.
fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<char>, Vec<char>) = (pattern.chars().collect(), path.chars().collect());
    // The last star, and where the path went on behind it: on a mismatch it takes one more character.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < path.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some('?') if path[t] != '/' => (p, t) = (p + 1, t + 1),
            Some(c) if *c == path[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, from)) if path[from] != '/' => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                _ => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_a_shell() {
        for (pattern, path, expected) in [
            ("/etc/nginx/conf.d/*.conf", "/etc/nginx/conf.d/a.conf", true),
            ("/etc/nginx/conf.d/*.conf", "/etc/nginx/conf.d/b/a.conf", false),
            ("/etc/*/a?.conf", "/etc/x/ab.conf", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b", "abX", false),
            ("*", "", true),
            ("", "a", false),
        ] {
            assert_eq!(fits(pattern, path), expected, "{pattern} {path}");
        }
    }
}
