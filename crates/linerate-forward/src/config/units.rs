//! How times and numbers are written, in the file and on the command line alike.

use std::time::Duration;

/// Units of time, the longest first, in milliseconds.
const TIMES: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Parses a time: whole numbers with `d`, `h`, `m`, `s` or `ms`, one after the other.
///
/// # Errors
/// What is wrong and how to write it.
///
/// ```
/// use std::time::Duration;
/// use linerate_forward::config::duration;
/// assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
/// assert!(duration("90").is_err());
/// ```
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("{text:?} is not a time: write a number and its unit, as 500ms, 30s, 10m, 1h or 1d")
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    if rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "{text:?} lacks its unit: write {rest}s for seconds, {rest}ms, {rest}m or {rest}h"
        ));
    }
    let mut milliseconds = 0u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (_, unit) =
            TIMES.iter().find(|(name, _)| *name == &rest[..letters]).ok_or_else(wrong)?;
        rest = &rest[letters..];
        let part = number.checked_mul(*unit).ok_or_else(wrong)?;
        milliseconds = milliseconds.checked_add(part).ok_or_else(wrong)?;
    }
    Ok(Duration::from_millis(milliseconds))
}

/// Writes a time as [`duration`] reads it, to the millisecond.
pub fn write_duration(time: Duration) -> String {
    let mut rest = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (name, unit) in TIMES {
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Parses a number with `k`, `M` or `G` for thousands, millions and thousands of millions; `_` may separate
/// digits.
///
/// # Errors
/// What is wrong and how to write it.
///
/// ```
/// use linerate_forward::config::count;
/// assert_eq!(count("2M"), Ok(2_000_000));
/// ```
pub fn count(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a number: write it as 65536, 500k or 2M");
    let (digits, unit) = match text.trim() {
        plain if plain.ends_with(['k', 'K']) => (&plain[..plain.len() - 1], 1000),
        plain if plain.ends_with('M') => (&plain[..plain.len() - 1], 1_000_000),
        plain if plain.ends_with('G') => (&plain[..plain.len() - 1], 1_000_000_000),
        plain => (plain, 1),
    };
    if !digits.starts_with(|digit: char| digit.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = digits.replace('_', "").parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests;
