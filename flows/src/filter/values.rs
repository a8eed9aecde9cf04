//! Values of filters: numbers, ports, flags, amounts.

use std::fs;

use anyhow::{Context, Error, Result};

use super::Quantity;
use crate::time;

/// TCP flags, from the lowest bit.
pub(crate) const FLAGS: &str = "FSRPAUEC";

/// Reasons of the end of a record, from number 1.
const REASONS: &[&str] = &["idle", "active", "end", "forced", "resources"];

/// A number as libpcap reads it: decimal, hexadecimal after `0x`, octal after `0`.
pub(super) fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix('0') {
        Some("") | None => (text, 10),
        Some(rest) => match rest.strip_prefix(['x', 'X']) {
            Some(digits) => (digits, 16),
            None => (rest, 8),
        },
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

/// `1000-2000`, `domain-http`, or one port.
pub(super) fn ports(value: &str, protocol: Option<u8>) -> Result<(u16, u16)> {
    // A name can have a hyphen, too.
    match value
        .split_once('-')
        .map(|(first, last)| (service(first, protocol), service(last, protocol)))
    {
        Some((Some(first), Some(last))) => Ok((first, last)),
        _ => port(value, protocol).map(|port| (port, port)),
    }
}

/// A number, or a name of /etc/services.
pub(super) fn port(value: &str, protocol: Option<u8>) -> Result<u16> {
    let is_name = !value.bytes().all(|byte| byte.is_ascii_digit());
    let number = number(value).and_then(|number| number.try_into().ok());
    number
        .or_else(|| if is_name { service(value, protocol) } else { None })
        .with_context(|| format!("{value:?} is neither a port nor a service of /etc/services"))
}

/// A decimal number, or a name of /etc/services.
fn service(value: &str, protocol: Option<u8>) -> Option<u16> {
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        return value.parse().ok();
    }
    let protocol = match protocol {
        Some(6) => "tcp",
        Some(17) => "udp",
        // Few services are there for SCTP, and libpcap takes the port of the others.
        _ => "",
    };
    let services = fs::read_to_string("/etc/services").unwrap_or_default();
    let find = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (name, number) = (words.next()?, words.next()?);
        let (port, of) = number.split_once('/')?;
        let named = name == value || words.any(|alias| alias == value);
        (named && (protocol.is_empty() || protocol == of)).then(|| port.parse().ok())?
    };
    services.lines().find_map(find)
}

pub(super) fn flags(word: &str) -> Result<u16> {
    let bit = |letter: char| FLAGS.find(letter).map(|bit| 1 << bit);
    let bits = word.chars().map(bit).try_fold(0, |all, bit| bit.map(|bit| all | bit));
    bits.with_context(|| format!("{word:?} are not TCP flags: letters of {FLAGS}"))
}

pub(super) fn reason(word: &str) -> Result<u8> {
    let name = REASONS.iter().position(|name| *name == word).map(|at| at as u8 + 1);
    let number = || word.parse().ok().filter(|number| (1..=REASONS.len() as u8).contains(number));
    name.or_else(number).with_context(|| format!("{word:?} is no reason: {}", REASONS.join(", ")))
}

/// `1500`, `1.5M` (a thousand is `k`), or a duration.
pub(super) fn amount(quantity: Quantity, word: &str) -> Result<u64> {
    if quantity == Quantity::Duration {
        return time::parse_duration(word).map(i64::unsigned_abs).map_err(Error::msg);
    }
    let (digits, factor) = match word.chars().last() {
        Some('k') => (&word[..word.len() - 1], 1e3),
        Some('M') => (&word[..word.len() - 1], 1e6),
        Some('G') => (&word[..word.len() - 1], 1e9),
        Some('T') => (&word[..word.len() - 1], 1e12),
        _ => (word, 1.0),
    };
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit());
    let number = digits.parse::<f64>().ok().filter(|_| is_number);
    let amount = number.map(|number| number * factor).filter(|amount| *amount < 1e18);
    amount
        .map(|amount| amount.round() as u64)
        .with_context(|| format!("{word:?} is not an amount: 1500, 20k, 1.5M, 10G"))
}
