//! Which backend a receiver takes, and why not a better one.

use linerate_net::Connection;
use linerate_net::qdisc::{INGRESS_FILTERS, Qdisc};
use linerate_net::route::{self, ConfiguredRoutes};
use linerate_net::ruleset;

use crate::backend::Backend;
use crate::options::{Options, Reuseport};
use crate::probe::probe;
use crate::{Error, Result, interface, xdp};

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
            .map(|()| {
                let passed = interface.filter(|_| backend == Backend::Xdp);
                let passed = passed.and_then(|name| bypassed_filter(options, &name));
                (backend, passed.into_iter().collect())
            })
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
    if let Some(reason) = bypassed_filter(options, &interface) {
        return Err(reason);
    }
    match xdp::is_native(&interface) {
        true => Ok(()),
        false => Err(format!("the driver of {interface} has no native XDP")),
    }
}

/// The part of the stack that may drop messages of the receiver and that `xdp` bypasses on `interface`, as a sentence.
fn bypassed_filter(options: &Options, interface: &str) -> Option<String> {
    let versions = options.versions();
    for v6 in [false, true].into_iter().filter(|v6| if *v6 { versions.v6 } else { versions.v4 }) {
        match ruleset::local_filter(interface, v6) {
            Ok(Some(chain)) => {
                return Some(format!(
                    "xdp bypasses the firewall ({chain}), which may filter the port"
                ));
            }
            Ok(None) => {}
            Err(error) => {
                return Some(format!(
                    "xdp bypasses the firewall, whose rules cannot be read ({error})"
                ));
            }
        }
    }
    match ingress_filter(interface) {
        Ok(Some(filter)) => {
            return Some(format!(
                "xdp bypasses {filter} at the ingress of {interface}, which may drop messages"
            ));
        }
        Ok(None) => {}
        Err(error) => {
            return Some(format!(
                "xdp bypasses the tc filters of {interface}, which cannot be read ({error})"
            ));
        }
    }
    let mode = |name: &str| {
        let mode = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        mode.ok().and_then(|mode| mode.trim().parse::<u8>().ok()).unwrap_or(0)
    };
    let mode = if versions.v4 { mode("all").max(mode(interface)) } else { 0 };
    // Loose mode (2): a source needs a route through any interface. A default route is one for every source.
    let has_default = || {
        let index = interface::index(interface).ok();
        index.and_then(|index| route::through(index).ok()) == Some(ConfiguredRoutes::Default)
    };
    (mode == 1 || mode == 2 && !has_default()).then(|| {
        format!("xdp bypasses the reverse-path filter of {interface} (rp_filter={mode}), which may drop messages")
    })
}

/// The tc filter or tcx program at the ingress of `interface`, which sees packets before the stack does.
fn ingress_filter(interface: &str) -> Result<Option<String>> {
    let index = interface::index(interface)?;
    let connection = Connection::open()?;
    // Filters need an ingress or clsact qdisc. Without one the kernel may refuse the request.
    if connection.qdiscs(index)?.iter().any(Qdisc::is_ingress)
        && let Some(filter) = connection.filters(index, INGRESS_FILTERS)?.first()
    {
        return Ok(Some(format!("a tc filter ({})", filter.kind)));
    }
    let has_program = linerate_bpf::link::has_tcx_ingress_program(index)?;
    Ok(has_program.then(|| "a tcx program".to_owned()))
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
