//! The page at `/`: files within the program, which ask the API like any other client.
//!
//! They hold nothing secret, so they need no token; what they ask for does. Nothing of other origins is loaded or asked, and no script or
//! style runs that is not one of these files.

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;

use super::App;
use super::body::typed;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, type and text of each.
const FILES: [(&str, &str, &str); 9] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page/page.js", SCRIPT, include_str!("page/page.js")),
    ("/page/api.js", SCRIPT, include_str!("page/api.js")),
    ("/page/view.js", SCRIPT, include_str!("page/view.js")),
    ("/page/plot.js", SCRIPT, include_str!("page/plot.js")),
    ("/page/running.js", SCRIPT, include_str!("page/running.js")),
    ("/page/results.js", SCRIPT, include_str!("page/results.js")),
    ("/page/start.js", SCRIPT, include_str!("page/start.js")),
];

/// Whether a path is one of the page's files.
pub(super) fn is_file(path: &str) -> bool {
    FILES.iter().any(|(file, ..)| *file == path)
}

/// Adds the files.
pub(super) fn routes(router: Router<App>) -> Router<App> {
    FILES.iter().fold(router, |router, (path, media, text)| router.route(path, get(move || async move { file(media, text) })))
}

fn file(media: &'static str, text: &'static str) -> Response {
    let mut response = typed(StatusCode::OK, media, text.to_owned());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
