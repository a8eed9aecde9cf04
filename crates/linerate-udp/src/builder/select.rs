//! Which backend a receiver takes, and why not a better one.

use crate::backend::Backend;
use crate::options::{Options, Reuseport};
use crate::probe::probe;
use crate::{Error, Result, xdp};

/// The requested backend, if it is available, otherwise the best available one. With the reasons why not a
/// better one.
pub(super) fn select(options: &Options) -> Result<(Backend, Vec<String>)> {
    if let Some(backend) = options.backend {
        let interface = xdp::interface_of(options);
        let ip = options.bind.ip();
        if backend == Backend::Xdp
            && interface.is_none()
            && !ip.is_unspecified()
            && !ip.is_multicast()
        {
            return Err(Error::AddressNotAvailable(options.bind));
        }
        let available = match backend {
            Backend::Xdp => one_reader(options),
            _ => Ok(()),
        };
        return available
            .and_then(|()| probe(backend, interface.as_deref()))
            .map(|()| (backend, Vec::new()))
            .map_err(|reason| Error::BackendUnavailable { backend, reason });
    }
    let mut reasons = Vec::new();
    let backend = match probe_xdp(options) {
        Ok(()) => Backend::Xdp,
        Err(reason) => {
            reasons.push(format!("not xdp: {reason}"));
            socket_backend(&mut reasons)
        }
    };
    Ok((backend, reasons))
}

/// The best backend of the stock socket.
pub(super) fn socket_backend(reasons: &mut Vec<String>) -> Backend {
    match probe(Backend::Gro, None) {
        Ok(()) => Backend::Gro,
        Err(reason) => {
            reasons.push(format!("not gro: {reason}"));
            Backend::Recvmmsg
        }
    }
}

/// Refuses several readers, of which `xdp` has one.
fn one_reader(options: &Options) -> std::result::Result<(), String> {
    if options.reuseport != Reuseport::Exclusive {
        Err("the port is to be shared, and xdp would take the messages of all".to_owned())
    } else if options.multiple_readers {
        Err("its rings have one reader, and there are to be several".to_owned())
    } else {
        Ok(())
    }
}

/// Whether `xdp` may be selected automatically; the error is the reason why not.
pub(super) fn probe_xdp(options: &Options) -> std::result::Result<(), String> {
    let interface = xdp::interface_of(options).ok_or(xdp::NO_INTERFACE)?;
    one_reader(options)?;
    let port = options.bind.port();
    if is_bound(port) {
        return Err(format!(
            "another socket is bound to port {port}, and its messages would be taken"
        ));
    }
    xdp::probe(&interface)?;
    match xdp::is_native(&interface) {
        true => Ok(()),
        false => Err(format!("the driver of {interface} has no native XDP")),
    }
}

/// Whether any UDP socket of the namespace is bound to `port`.
fn is_bound(port: u16) -> bool {
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
        assert!(is_bound(socket.local_addr().unwrap().port()));
        assert!(!is_bound(0));
        assert_eq!(local_port("  12: 0100007F:1B58 00000000:0000 07"), Some(7000));
    }
}
