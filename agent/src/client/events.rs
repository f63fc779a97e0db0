//! A drill's server-sent events, as they come.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use serde_json::Value;

use super::{Answer, Client, ClientError};

/// Longest event that is read: beyond this it is none of the daemon's.
const MAX_EVENT: usize = 4 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its number.
    pub id: u64,
    /// `phase`, `window`, `note` or `end`.
    pub kind: String,
    /// What it says.
    pub data: Value,
}

/// A stream that is open.
#[derive(Debug)]
pub struct Events {
    body: Option<Incoming>,
    text: Vec<u8>,
    place: String,
}

impl Client {
    /// Opens the events of a drill behind a number; 0 is from the beginning. The refusal if there is no such drill.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn events(&self, drill: &str, behind: u64) -> Result<Result<Events, Answer>, ClientError> {
        let last = behind.to_string();
        let headers: &[(&str, &str)] = if behind == 0 { &[] } else { &[("last-event-id", &last)] };
        let response = self.send(Method::GET, &format!("/v1/drills/{drill}/events"), headers, String::new()).await?;
        let status = response.status();
        if status.is_success() {
            // 204: all was told.
            let body = (status == StatusCode::OK).then(|| response.into_body());
            return Ok(Ok(Events { body, text: Vec::new(), place: self.describe() }));
        }
        let body = response.into_body().collect().await.map_err(|source| self.broken(source))?.to_bytes();
        Ok(Err(Answer { status, body }))
    }
}

impl Events {
    /// The next event; `None` at the end of the stream, which is the end of the drill only if the last event says so.
    ///
    /// # Errors
    /// When the connection broke.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            while let Some(end) = self.text.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                if let Some(event) = parse(&String::from_utf8_lossy(&block)) {
                    return Ok(Some(event));
                }
            }
            let Some(body) = &mut self.body else { return Ok(None) };
            match body.frame().await {
                Some(Ok(frame)) => self.text.extend(frame.data_ref().map(|data| &data[..]).unwrap_or_default()),
                Some(Err(source)) => return Err(ClientError::Ask { place: self.place.clone(), source }),
                None => return Ok(None),
            }
            if self.text.len() > MAX_EVENT {
                self.body = None;
            }
        }
    }
}

/// One block of lines; `None` for one without data, as comments are that keep the connection open, and for one without a number, as the
/// `state` is that each stream begins with: numbered events say the same.
fn parse(block: &str) -> Option<Event> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let data = serde_json::from_str(field("data")?).ok()?;
    Some(Event { id: field("id")?.parse().ok()?, kind: field("event")?.to_owned(), data })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_block_is_an_event_and_a_comment_is_none() {
        let event = parse("id: 7\nevent: note\ndata: {\"text\": \"x\"}\n\n");
        assert_eq!(event, Some(Event { id: 7, kind: "note".to_owned(), data: json!({ "text": "x" }) }));
        assert_eq!(parse(": \n\n"), None);
        assert_eq!(parse("event: state\ndata: {}\n\n"), None);
        assert_eq!(parse("id: x\nevent: note\ndata: {}\n\n"), None);
    }
}
