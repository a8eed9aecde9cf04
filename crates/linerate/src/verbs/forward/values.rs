//! How the values of `linerate forward`'s options are written.

use std::time::Duration;

use clap::builder::TypedValueParser;
use linerate_forward::config::{self, Statistics};
use linerate_forward::table::session::{Sort, State};
use linerate_forward::tuple::Protocol;

use crate::cli::values::{named, parse_known};

pub(super) fn statistics() -> impl TypedValueParser<Value = Statistics> {
    parse_known(Statistics::ALL.iter().map(|one| one.name()))
}

pub(super) fn protocols() -> impl TypedValueParser<Value = Protocol> {
    parse_known(Protocol::ALL.iter().map(|one| one.name()))
}

pub(super) fn sorts() -> impl TypedValueParser<Value = Sort> {
    parse_known(Sort::ALL.iter().map(|sort| sort.name()))
}

pub(super) fn states() -> impl TypedValueParser<Value = State> {
    parse_known(State::ALL.iter().map(|state| state.name()))
}

pub(super) fn instance(name: &str) -> Result<String, String> {
    config::check_instance(name).map(|()| name.to_owned())
}

pub(super) fn yes_or_no() -> impl TypedValueParser<Value = bool> {
    named([("yes", true), ("no", false)])
}

/// A time that is not 0; seconds without a unit, as with the other verbs.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let is_bare = text.ends_with(|last: char| last.is_ascii_digit());
    match config::duration(&if is_bare { format!("{text}s") } else { text.to_owned() })? {
        Duration::ZERO => Err("a time longer than 0s".into()),
        time => Ok(time),
    }
}

/// Longest time between two views.
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// Time between two views. Below a tenth of a second the counters of CPUs do not move.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    match config::duration(text)? {
        time if time < Duration::from_millis(100) || time > MAX_INTERVAL => {
            Err("a time from 100ms to 1h".into())
        }
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        assert!(interval("99ms").is_err() && interval("2h").is_err() && interval("1").is_err());
        assert!(time("0s").is_err());
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
    }
}
