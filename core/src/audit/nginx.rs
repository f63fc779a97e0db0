//! nginx.conf, or the output of `nginx -T`, which has every included file.
//!
//! Facts: nginx's documentation of `proxy_next_upstream` and of `upstream`, and `ngx_http_upstream.c`: the tries are the
//! number of the group's servers, cut by `…_next_upstream_tries`; the time limit is looked at between tries only; an
//! answer is passed on as it is once no try is left.

use super::Refused;
use super::layer::Policy;
use super::source::Source;

mod lexer;

mod syntax;

mod dump;

mod upstream;

mod settings;

mod location;

mod rules;

/// Reads every location that passes requests on.
pub(super) fn read(source: &mut Source<'_>) -> Result<Vec<Policy>, Refused> {
    let tree = syntax::parse(source)?;
    let tree = dump::assemble(source, tree);
    Ok(location::policies(source, &tree))
}

/// Whether a text is nginx's: it parses, and has a directive that only nginx has.
pub(super) fn looks_like(text: &str) -> bool {
    const KNOWN: [&str; 8] = ["http", "server", "upstream", "location", "events", "stream", "proxy_next_upstream", "proxy_pass"];
    let Ok(tree) = syntax::parse(&Source::new(0, text)) else {
        // A broken file shall be told what is wrong with it as nginx configuration.
        let has = |word: &str| text.lines().any(|line| line.trim_start().starts_with(word) && line.trim_end().ends_with(['{', ';']));
        return !text.trim_start().starts_with(['{', '[']) && ["proxy_pass ", "upstream ", "location ", "http "].into_iter().any(has);
    };
    tree.iter().any(|directive| KNOWN.contains(&directive.name()))
}
