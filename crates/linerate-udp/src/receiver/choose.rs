//! Which back end a receiver takes, and why not a better one.

use crate::builder::{Settings, Steering};
use crate::{Backend, Error, Result, probe, xdp};

/// What was asked for, if it can be had; else the best that can.
pub(super) fn choose(settings: &Settings) -> Result<(Backend, Vec<String>)> {
    if let Some(backend) = settings.backend {
        let interface = xdp::interface_of(settings);
        let ip = settings.bind.ip();
        if backend == Backend::Xdp
            && interface.is_none()
            && !ip.is_unspecified()
            && !ip.is_multicast()
        {
            return Err(Error::NotLocal(settings.bind));
        }
        let shared = several(settings).filter(|_| backend == Backend::Xdp).map(str::to_owned);
        return match shared.or_else(|| probe(backend, interface.as_deref())) {
            Some(why) => Err(Error::Backend { backend, why }),
            None => Ok((backend, Vec::new())),
        };
    }
    let mut why = Vec::new();
    match not_xdp(settings) {
        None => Ok((Backend::Xdp, why)),
        Some(reason) => {
            why.push(format!("not xdp: {reason}"));
            let backend = socket_backend(&mut why);
            Ok((backend, why))
        }
    }
}

/// The best of the stock socket.
pub(super) fn socket_backend(why: &mut Vec<String>) -> Backend {
    match probe(Backend::Gro, None) {
        None => Backend::Gro,
        Some(reason) => {
            why.push(format!("not gro: {reason}"));
            Backend::Recvmmsg
        }
    }
}

/// Why the one reader of `xdp` is not enough.
fn several(settings: &Settings) -> Option<&'static str> {
    if settings.steering != Steering::Alone {
        Some("the port is to be shared, and xdp would take the messages of all")
    } else {
        settings.several.then_some("its rings have one reader, and there are to be several")
    }
}

pub(super) fn not_xdp(settings: &Settings) -> Option<String> {
    let Some(interface) = xdp::interface_of(settings) else {
        return Some(xdp::NO_INTERFACE.to_owned());
    };
    if let Some(why) = several(settings) {
        return Some(why.to_owned());
    }
    if has_other(settings.bind.port()) {
        let port = settings.bind.port();
        return Some(format!(
            "another socket is bound to port {port}, and its messages would be taken"
        ));
    }
    if let Some(obstacle) = xdp::probe(&interface) {
        return Some(obstacle);
    }
    (!xdp::is_native(&interface)).then(|| format!("the driver of {interface} has no native XDP"))
}

/// Whether any UDP socket of the namespace is bound to `port`.
fn has_other(port: u16) -> bool {
    port != 0
        && ["udp", "udp6"].iter().any(|table| {
            let table = std::fs::read_to_string(format!("/proc/thread-self/net/{table}"));
            table
                .is_ok_and(|table| table.lines().skip(1).any(|line| local_port(line) == Some(port)))
        })
}

/// The port in a line of `/proc/net/udp`: `SLOT: ADDRESS:PORT ...`.
fn local_port(line: &str) -> Option<u16> {
    let local = line.split_whitespace().nth(1)?;
    u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_port_is_seen() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(has_other(socket.local_addr().unwrap().port()));
        assert!(!has_other(0));
        assert_eq!(local_port("  12: 0100007F:1B58 00000000:0000 07"), Some(7000));
    }
}
