//! A layer that no file describes, stated in a line: `client=3`, `service=3,on=refused+503,answers=500,timeout=2s`.

use std::time::Duration;

use super::kind::{Kind, Kinds};
use super::layer::{Answers, Layer, Policy, Tries};
use crate::units::{UnitError, duration};

/// Why a text states no layer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatedError {
    /// No `=`, or nothing before it.
    #[error("`{0}` states no layer: write `NAME=TRIES`, as in `client=3` or `service=3,on=refused+503,answers=500`")]
    Shape(String),
    /// The number of tries is none.
    #[error("`{0}` is no number of tries: the first try counts, so the least is 1")]
    Tries(String),
    /// A setting that does not exist.
    #[error("there is no setting `{0}`: the settings are `on`, `answers`, `timeout` and `total`")]
    Setting(String),
    /// A kind of failure that does not exist.
    #[error("`{0}` is no kind of failure: write refused, connect-timeout, reset, timeout, rejected, an HTTP status or a gRPC status")]
    Kind(String),
    /// A duration that is none.
    #[error("{0}: {advice}", advice = .0.advice())]
    Duration(#[from] UnitError),
}

/// Reads a stated layer.
///
/// It retries every kind of failure unless `on` names some, answers anything unless `answers` says what, and has no
/// time limits unless `timeout` (of a try) and `total` (of all tries) give them.
///
/// # Errors
/// When it is not written as the error says.
pub fn stated(text: &str) -> Result<Layer, StatedError> {
    let shape = || StatedError::Shape(crate::wording::excerpt(text));
    let (name, rest) = text.split_once('=').ok_or_else(shape)?;
    let name = name.trim();
    if name.is_empty() {
        return Err(shape());
    }
    let mut settings = rest.split(',');
    let tries = settings.next().unwrap_or_default().trim();
    let tries = tries.parse().ok().filter(|tries| *tries > 0).ok_or_else(|| StatedError::Tries(crate::wording::excerpt(tries)))?;
    let mut policy = Policy::new(format!("{tries} tries, as stated"), None, Answers::Unknown);
    policy.tries = Tries::AtMost(tries);
    policy.retries = Kinds::all();
    policy.words = "any failure".to_owned();
    for setting in settings {
        let (key, value) = setting.split_once('=').ok_or_else(|| StatedError::Setting(crate::wording::excerpt(setting)))?;
        match key.trim() {
            "on" => {
                policy.retries = value.split('+').map(kind).collect::<Result<_, _>>()?;
                policy.words = value.replace('+', " ");
            }
            "answers" => policy.answers = Answers::Always(kind(value)?),
            "timeout" => policy.try_timeout = Some(positive(value)?),
            "total" => policy.total_timeout = Some(positive(value)?),
            other => return Err(StatedError::Setting(crate::wording::excerpt(other))),
        }
    }
    Ok(Layer { name: name.to_owned(), format: None, policies: vec![policy] })
}

fn kind(text: &str) -> Result<Kind, StatedError> {
    Kind::parse(text).ok_or_else(|| StatedError::Kind(crate::wording::excerpt(text)))
}

fn positive(text: &str) -> Result<Duration, StatedError> {
    let read = duration::parse(text)?;
    if read.is_zero() {
        return Err(UnitError::new(text, crate::units::UnitErrorKind::Zero, vec!["1s".to_owned()]).into());
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_stated_layer_retries_everything_unless_it_says_otherwise() {
        let layer = stated("client=3").unwrap();
        assert_eq!((layer.name.as_str(), layer.format), ("client", None));
        assert_eq!(layer.policies[0].tries(Kind::Http(404)), Tries::AtMost(3));
        let layer = stated("svc=4,on=refused+503,answers=500,timeout=2s,total=3s").unwrap();
        let policy = &layer.policies[0];
        assert_eq!(policy.tries(Kind::Http(503)), Tries::AtMost(4));
        assert_eq!(policy.tries(Kind::Http(502)), Tries::AtMost(1));
        assert_eq!(policy.answers.after(Kind::Refused), Some(Kind::Http(500)));
        assert_eq!((policy.try_timeout, policy.total_timeout), (Some(Duration::from_secs(2)), Some(Duration::from_secs(3))));
    }

    #[test]
    fn what_states_no_layer_is_refused_with_what_to_write() {
        for (text, says) in [
            ("client", "write `NAME=TRIES`"),
            ("=3", "write `NAME=TRIES`"),
            ("client=0", "the least is 1"),
            ("client=-1", "the least is 1"),
            ("client=3,on=slow", "refused"),
            ("client=3,off=503", "`on`"),
            ("client=3,timeout=2", "`2s`"),
            ("client=3,total=0s", "`1s`"),
        ] {
            let error = stated(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
