//! How values of options are written, where several verbs have them.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use linerate_net::Interface;
use linerate_ring::Delivery;
use linerate_ring::region::Pages;

/// A parser of words, each with its value. A shell can complete them.
pub(crate) fn named<T: Clone + Send + Sync + 'static>(
    values: impl IntoIterator<Item = (&'static str, T)>,
) -> impl TypedValueParser<Value = T> {
    let values: Vec<_> = values.into_iter().collect();
    let words: Vec<_> = values.iter().map(|(word, _)| *word).collect();
    PossibleValuesParser::new(words).map(move |word| {
        let value = values.iter().find(|(known, _)| *known == word);
        value.expect("one of the words").1.clone()
    })
}

/// The same for a type that parses its words.
pub(crate) fn parse_known<T>(
    words: impl IntoIterator<Item = &'static str>,
) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Display> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words)
        .try_map(|word| word.parse().map_err(|error: T::Err| error.to_string()))
}

/// Numbers of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) Vec<usize>);

/// The size of the kernel's CPU set (`CPU_SETSIZE`).
const MOST_CPUS: usize = 1024;

pub(crate) fn cpus(text: &str) -> Result<Cpus, String> {
    let number = |text: &str| {
        let number = text.trim().parse::<usize>().ok().filter(|number| *number < MOST_CPUS);
        number.ok_or_else(|| format!("CPUs below {MOST_CPUS} are written as `1` or `0,2-3`"))
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => cpus.extend(number(first)?..=number(last)?),
            None => cpus.push(number(part)?),
        }
    }
    Ok(Cpus(cpus))
}

/// The number of a CPU.
pub(crate) fn one_cpu(text: &str) -> Result<usize, String> {
    within(text, 0, MOST_CPUS - 1, "the number of a CPU")
}

/// A name for a new interface, as the kernel allows it (`dev_valid_name`, net/core/dev.c).
pub(crate) fn new_interface(name: &str) -> Result<String, String> {
    let plain = !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
    if (1..=15).contains(&name.len()) && plain && name != "." && name != ".." {
        return Ok(name.to_owned());
    }
    Err("the name of an interface has 1 to 15 bytes without space, slash or colon".into())
}

/// Threads that read one source.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=256) => Ok(number),
        _ => Err("a number of readers from 1 to 256".into()),
    }
}

/// Longest time to poll, in microseconds: a reader that polls does not see that it is to end.
const MAX_MICROSECONDS: u64 = 100_000;

/// A time in microseconds.
pub(crate) fn microseconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(time @ 0..=MAX_MICROSECONDS) => Ok(Duration::from_micros(time)),
        _ => Err(format!("a whole number of microseconds up to {MAX_MICROSECONDS}")),
    }
}

/// A whole number between bounds.
pub(crate) fn within(text: &str, least: usize, most: usize, what: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("a whole number from {least} to {most}: {what}")),
    }
}

/// Bytes, as 8388608, 8192k, 8M, 8MiB or 1G in binary units.
pub(crate) fn bytes(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "" => Some(1),
        "k" | "K" | "KiB" => Some(1 << 10),
        "m" | "M" | "MiB" => Some(1 << 20),
        "g" | "G" | "GiB" => Some(1 << 30),
        _ => None,
    };
    let number = number.parse::<usize>().ok();
    number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor))
        .filter(|bytes| (least..=most).contains(bytes))
        .ok_or_else(|| {
            format!("a number of bytes from {least} to {most}, with k, M or G for binary multiples")
        })
}

/// The size of a capture buffer in KiB. The text is in KiB, as in tcpdump, or has a unit, such as 64M or 64MiB.
pub(crate) fn capture_buffer(text: &str) -> Result<u64, String> {
    let kib = match text.parse::<u64>() {
        Ok(kib) => Some(kib),
        Err(_) => bytes(text, 0, usize::MAX).ok().map(|bytes| bytes.div_ceil(1024) as u64),
    };
    kib.filter(|kib| (1..=MAX_BUFFER_KIB).contains(kib)).ok_or_else(|| {
        format!("a size from 1 to {MAX_BUFFER_KIB} in KiB, as 65536, or with its unit, as 64M or 1G (binary multiples)")
    })
}

/// The largest capture buffer, in KiB.
const MAX_BUFFER_KIB: u64 = 1 << 31;

/// A number above 0 with or without a fraction; not `inf` and not `nan`.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| "a number above 0".to_owned())
}

/// The longest time of an option, in seconds: 100 years, which every clock can add.
const MAX_SECONDS: f64 = 100.0 * 365.0 * 86_400.0;

fn time(seconds: f64) -> Result<Duration, String> {
    let within = (0.0..=MAX_SECONDS).contains(&seconds).then(|| Duration::from_secs_f64(seconds));
    let time = within.filter(|time| !time.is_zero());
    time.ok_or_else(|| "a time has to be above 0, and at most 100 years".to_owned())
}

/// A time in seconds, with or without a fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse().map_err(|_| "a number of seconds above 0".to_owned()).and_then(time)
}

/// A time with its unit: `10s`, `500ms`, `2m`; seconds without.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is written as 10s, 500ms, 2m or 1h".to_owned()),
    };
    let seconds: f64 =
        number.parse().map_err(|_| "a time is written as 10s, 500ms, 2m or 1h".to_owned())?;
    time(seconds * factor)
}

/// The same with the interface of a scope by its number, where it is written by name: `[fe80::1%eth0]:7000`.
fn numbered_scope(text: &str) -> Result<String, String> {
    let scope = text.split_once('%').and_then(|(_, rest)| rest.split_once(']'));
    match scope {
        Some((name, _)) if name.parse::<u32>().is_err() => {
            let interface = Interface::open(name).map_err(|error| error.to_string())?;
            Ok(text.replacen(&format!("%{name}]"), &format!("%{}]", interface.index()), 1))
        }
        _ => Ok(text.to_owned()),
    }
}

/// An address and a port. Names of hosts are not looked up, because a name can have several addresses.
pub(crate) fn endpoint(text: &str) -> Result<SocketAddr, String> {
    numbered_scope(text)?.parse().map_err(|_| {
        let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u64>().ok());
        if let Some(port) = port.filter(|port| *port > u16::MAX.into()) {
            return format!("{port} is not a port: ports end at 65535");
        }
        let v6 = "an IPv6 address stands in brackets, as in [::]:7000";
        match (text.parse::<IpAddr>(), text.matches(':').count()) {
            (Ok(IpAddr::V4(ip)), _) => format!("a port is missing, as in {ip}:7000"),
            (Ok(IpAddr::V6(ip)), _) => format!("a port is missing, as in [{ip}]:7000, or {v6}"),
            (Err(_), 2..) if !text.contains('[') => v6.to_owned(),
            _ => "write an address and a port, as 10.0.0.2:7000, 0.0.0.0:7000 (every address) or \
                  [::]:7000 (every IPv6 address); names are not looked up"
                .to_owned(),
        }
    })
}

/// How XDP delivers frames.
pub(crate) fn deliveries() -> impl TypedValueParser<Value = Delivery> {
    parse_known(["auto", "af-xdp", "ringbuf"])
}

/// Pages of a buffer.
pub(crate) fn pages() -> impl TypedValueParser<Value = Pages> {
    parse_known(["auto", "hugetlb", "hugetlb-1g", "thp", "small"])
}

#[cfg(test)]
mod tests;
