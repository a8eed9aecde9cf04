//! Times on the command line.

use anyhow::{Result, anyhow, bail};
use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// A range of time in nanoseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) after: Option<i64>,
    pub(crate) before: Option<i64>,
}

/// A time on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    /// Nanoseconds since 1970 (UTC).
    Instant(i64),
    /// A date and time without an offset.
    Civil(DateTime),
}

impl Time {
    /// Nanoseconds since 1970 (UTC), where this is a time of `zone`.
    pub(crate) fn nanos(self, zone: &TimeZone) -> Result<i64> {
        match self {
            Self::Instant(nanos) => Ok(nanos),
            Self::Civil(civil) => {
                let time = civil.to_zoned(zone.clone())?.timestamp();
                i64::try_from(time.as_nanosecond()).map_err(|_| anyhow!("{civil} is too far away"))
            }
        }
    }
}

/// `2026-11-24T10:00:00Z`, `2026-11-24 10:00`, `2026-11-24`, seconds since 1970, or `-2h`: so long ago.
pub(crate) fn parse(text: &str) -> Result<Time, String> {
    time(text).map_err(|error| error.to_string())
}

/// `local`, an offset such as `+01:00`, or a name of the IANA time zone database, such as `Europe/Berlin`.
pub(crate) fn zone(text: &str) -> Result<TimeZone, String> {
    if text != "local" {
        return DateTimeParser::new().parse_time_zone(text).map_err(|_| {
            "no such time zone: `local`, a name such as Europe/Berlin, or an offset such as +01:00"
                .to_owned()
        });
    }
    let zone =
        TimeZone::try_system().map_err(|error| format!("the time zone of this host: {error}"))?;
    match zone_name(&zone) {
        Some(_) => Ok(zone),
        None => {
            Err("the time zone of this host has no name: give one such as Europe/Berlin".to_owned())
        }
    }
}

/// What Arrow calls a time zone: its name or its offset.
pub(crate) fn zone_name(zone: &TimeZone) -> Option<String> {
    let offset = || zone.to_fixed_offset().ok().map(|offset| offset.to_string());
    zone.iana_name().map(str::to_owned).or_else(offset)
}

fn time(text: &str) -> Result<Time> {
    let nanos = |time: Timestamp| {
        let nanos = i64::try_from(time.as_nanosecond());
        nanos.map(Time::Instant).map_err(|_| anyhow!("{text} is too far away"))
    };
    if let Some(ago) = text.strip_prefix('-') {
        let time = Timestamp::now().checked_sub(duration(ago)?);
        return nanos(time.map_err(|_| anyhow!("{text} is too far away"))?);
    }
    if let Some((whole, fraction)) = seconds(text) {
        let fraction: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        let whole =
            whole.parse::<i64>().ok().and_then(|seconds| seconds.checked_mul(1_000_000_000));
        let time = whole
            .zip(fraction.parse::<i64>().ok())
            .and_then(|(whole, fraction)| whole.checked_add(fraction));
        return time.map(Time::Instant).ok_or_else(|| anyhow!("{text} is too far away"));
    }
    if text.contains('[') {
        bail!(
            "{text:?} names a time zone in brackets: give it as --time-zone, or write its offset, as in \
             2026-11-24T10:00:00+01:00"
        );
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return nanos(time);
    }
    let civil = text.parse().map(Time::Civil).map_err(|_| {
        anyhow!("{text:?} is not a time: 2026-11-24T10:00:00Z, '2026-11-24 10:00', seconds since 1970, or -2h")
    })?;
    civil.nanos(&TimeZone::UTC).map(|_| civil).map_err(|_| anyhow!("{text} is too far away"))
}

/// The digits of a number of seconds, and of its fraction.
fn seconds(text: &str) -> Option<(&str, &str)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (!whole.is_empty() && is_digits(whole) && is_digits(fraction)).then_some((whole, fraction))
}

/// `90s`, `5m`, `2h`, `1h30m`; days have 24 hours.
pub(crate) fn duration(text: &str) -> Result<SignedDuration> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<i64>().ok());
    let parsed = match days {
        Some(days) => days.checked_mul(24).map(SignedDuration::from_hours),
        None => text.parse().ok(),
    };
    parsed
        .filter(|length| length.is_positive())
        .ok_or_else(|| anyhow!("{text:?} is not a duration: 90s, 5m, 2h, 7d"))
}

/// A duration in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Result<i64, String> {
    let length = duration(text).map_err(|error| error.to_string())?;
    i64::try_from(length.as_nanos()).map_err(|_| format!("{text} is too long"))
}

#[cfg(test)]
mod tests;
