//! Values of options that `linerate receive` and `linerate send` share.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linerate_udp::{MAX_BATCH_SIZE, MAX_MESSAGE_SIZE, Reuseport};

/// An address and a port. Names are not looked up: which of its addresses would be a matter of chance.
pub(in crate::verbs) fn endpoint(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u64>().ok());
        if let Some(port) = port.filter(|port| *port > u16::MAX.into()) {
            return format!("{port} is no port: they end at 65535");
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

/// Messages of a batch.
pub(in crate::verbs) fn batch(text: &str) -> Result<usize, String> {
    within(text, 1, MAX_BATCH_SIZE, "messages in a batch")
}

/// Bytes of the longest message.
pub(super) fn message_size(text: &str) -> Result<usize, String> {
    within(text, 1, MAX_MESSAGE_SIZE, "bytes, which is what a UDP message can have")
}

fn within(text: &str, least: usize, most: usize, what: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("a whole number from {least} to {most}: {what}")),
    }
}

/// Bytes, as 8388608, 8192k, 8M or 1G in binary units.
fn bytes(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "" => Some(1),
        "k" | "K" => Some(1 << 10),
        "m" | "M" => Some(1 << 20),
        "g" | "G" => Some(1 << 30),
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

/// Bytes of a socket's buffer: the kernel takes what it can double in 31 bits.
pub(super) fn buffer(text: &str) -> Result<usize, String> {
    bytes(text, 1, (1 << 30) - 1)
}

/// Bytes of the rings of xdp: what either way takes.
pub(super) fn ring(text: &str) -> Result<usize, String> {
    bytes(text, 256 << 10, 1 << 30)
}

/// Who shares the port, and which of them gets a message.
pub(super) fn steering(text: &str) -> Result<Reuseport, String> {
    let sockets = |number: &str| number.parse().ok().filter(|number| *number > 0);
    let steering = match text.split_once(':') {
        None if text == "flow" => Some(Reuseport::Flow),
        Some(("cpu", number)) => sockets(number).map(|sockets| Reuseport::Cpu { sockets }),
        Some(("spread", number)) => sockets(number).map(|sockets| Reuseport::Spread { sockets }),
        _ => None,
    };
    steering.ok_or_else(|| {
        "write flow, or cpu:N or spread:N with the number of receivers that share the port"
            .to_owned()
    })
}

/// A time with its unit: `10s`, `500ms`, `2m`; seconds without.
pub(in crate::verbs) fn time(text: &str) -> Result<Duration, String> {
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
    match Duration::try_from_secs_f64(seconds * factor) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("a time has to be more than nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_is_none_says_what_to_write() {
        assert_eq!(endpoint("10.0.0.2:7000"), Ok(([10, 0, 0, 2], 7000).into()));
        assert!(endpoint("[fe80::1%3]:7000").is_ok());
        for (text, words) in [
            ("10.0.0.2", "a port is missing, as in 10.0.0.2:7000"),
            ("::1", "a port is missing, as in [::1]:7000"),
            ("fe80::1:ffff:7000", "brackets"),
            ("::1:7000:x", "brackets"),
            ("nowhere:7000", "names are not looked up"),
            ("10.0.0.2:70000", "70000 is no port"),
            ("", "write an address and a port"),
        ] {
            let said = endpoint(text).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        }
    }

    #[test]
    fn sizes_have_bounds() {
        assert_eq!((batch("1"), batch("1048576")), (Ok(1), Ok(1 << 20)));
        assert_eq!(message_size("65507"), Ok(65_507));
        for wrong in ["0", "1048577", "-1", "x", ""] {
            assert!(batch(wrong).unwrap_err().contains("1 to 1048576"), "{wrong}");
        }
        assert!(message_size("65508").unwrap_err().contains("1 to 65507"));
    }

    #[test]
    fn bytes_have_binary_units_and_bounds() {
        assert_eq!((buffer("8M"), buffer("4096")), (Ok(8 << 20), Ok(4096)));
        assert_eq!((ring("256k"), ring("1G")), (Ok(1 << 18), Ok(1 << 30)));
        for wrong in ["0", "3", "3G", "1T", "M", "", "-1", "99999999999999999999G"] {
            assert!(ring(wrong).unwrap_err().contains("from 262144 to 1073741824"), "{wrong}");
        }
        assert!(buffer("1G").is_err());
    }

    #[test]
    fn a_port_is_shared_by_flow_or_by_a_number_of_receivers() {
        assert_eq!(steering("flow"), Ok(Reuseport::Flow));
        assert_eq!(steering("cpu:4"), Ok(Reuseport::Cpu { sockets: 4 }));
        assert_eq!(steering("spread:2"), Ok(Reuseport::Spread { sockets: 2 }));
        for wrong in ["", "cpu", "cpu:0", "spread:-1", "flow:2"] {
            assert!(steering(wrong).unwrap_err().contains("spread:N"), "{wrong}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "0s", "-1s", "1x", "1 day"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
