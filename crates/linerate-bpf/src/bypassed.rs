//! [`bypassed`]: what on this host the frames that an XDP program takes do not reach. For messages: nothing is decided
//! by it, and what could not be read is said to be perhaps there.

use std::fmt::Display;
use std::io::{self, ErrorKind};

use linerate_net::netlink::{Protocol, Socket};
use linerate_net::{Connection, Interface, link, packet_socket, ruleset};

use crate::link::has_tcx_ingress_program;
use crate::program::log_to_tracing;
use crate::xdp::query::{program, program_info};

/// `XFRM_MSG_GETPOLICY`, whose dump needs no body.
const GET_POLICY: u16 = 0x15;

/// What exists here that frames of `interface` pass by when an XDP program takes them: a short phrase for each, such as
/// `IPsec policies`, or `perhaps IPsec policies (REASON)` where that cannot be read.
pub fn bypassed(interface: &Interface) -> Vec<String> {
    log_to_tracing();
    let (name, index) = (interface.name(), interface.index());
    let mut found = Vec::new();
    for v6 in [false, true] {
        match ruleset::local_filter(name, v6) {
            Ok(filter) => found.extend(filter),
            Err(error) => found.push(perhaps("packet filters", error)),
        }
    }
    found.extend(phrase("connection tracking", has_connections()));
    found.extend(phrase("IPsec policies", has_ipsec()));
    found.extend(phrase("tc filters", has_ingress_qdisc(index)));
    found.extend(phrase("tc filters", has_tcx_ingress_program(index)));
    found.extend(devices(index));
    let sockets = packet_socket::all();
    let receives = sockets.map(|all| all.iter().any(|socket| socket.receives_from(index)));
    found.extend(phrase("packet sockets", receives));
    found.extend(programs());
    found.dedup();
    found
}

/// The phrase for what is there, or may be.
fn phrase<E: Display>(what: &str, is_there: Result<bool, E>) -> Option<String> {
    match is_there {
        Ok(is_there) => is_there.then(|| what.to_owned()),
        Err(error) => Some(perhaps(what, error)),
    }
}

fn perhaps(what: &str, error: impl Display) -> String {
    format!("perhaps {what} ({error})")
}

/// Whether connections are tracked. A namespace without the file has no connection tracking.
fn has_connections() -> io::Result<bool> {
    match std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count") {
        Ok(text) => Ok(text.trim() != "0"),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn has_ipsec() -> io::Result<bool> {
    let socket = match Socket::open(Protocol::Xfrm) {
        Ok(socket) => socket,
        // The kernel has no IPsec.
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut policies = 0;
    let _ = socket.dump(GET_POLICY, &[], |_| policies += 1)?;
    Ok(policies > 0)
}

fn has_ingress_qdisc(index: u32) -> linerate_net::Result<bool> {
    let qdiscs = Connection::open()?.qdiscs(index)?;
    Ok(qdiscs.iter().any(linerate_net::qdisc::Qdisc::is_ingress))
}

/// The device that the interface is a port of, devices above it, and those of other namespaces.
fn devices(index: u32) -> Vec<String> {
    const OTHERS: &str = "a macvlan in another namespace";
    let links = match link::all() {
        Ok(links) => links,
        Err(error) => return vec![perhaps(&format!("devices above it, or {OTHERS}"), error)],
    };
    let own = links.iter().find(|link| link.index == index);
    let master = own.and_then(|link| link.master);
    let is_above = |link: &&link::Link| Some(link.index) == master || link.lower() == Some(index);
    let mut found: Vec<_> = links.iter().filter(is_above).map(|link| link.name.clone()).collect();
    let entries = Connection::open().and_then(|connection| connection.fdb(index));
    // A macvlan makes the interface receive for its hardware address.
    let is_other = |entry: &linerate_net::neighbour::Neighbour| {
        let address = entry.address.filter(|one| !one.is_multicast() && one.0 != [0; 6]);
        entry.own && address.is_some_and(|one| !links.iter().any(|link| link.address == Some(one)))
    };
    found.extend(phrase(OTHERS, entries.map(|entries| entries.iter().any(is_other))));
    found
}

/// Kinds of loaded BPF programs that judge packets above the driver.
fn programs() -> Vec<String> {
    let kinds = [
        (libbpf_sys::BPF_PROG_TYPE_CGROUP_SKB, "filters of control groups"),
        (libbpf_sys::BPF_PROG_TYPE_SK_LOOKUP, "sk_lookup programs"),
        (libbpf_sys::BPF_PROG_TYPE_NETFILTER, "BPF netfilter programs"),
    ];
    let mut loaded = Vec::new();
    let mut id = 0;
    let end = loop {
        // SAFETY: the call writes the next id to `id`.
        match unsafe { libbpf_sys::bpf_prog_get_next_id(id, &mut id) } {
            0.. => {}
            code if code == -libc::ENOENT => break None,
            code => break Some(io::Error::from_raw_os_error(-code)),
        }
        match program(id) {
            Ok(fd) => {
                let info = program_info(std::os::fd::AsFd::as_fd(&fd), Default::default());
                loaded.extend(info.map(|info| info.type_));
            }
            // It has gone between the two calls.
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {}
            Err(error) => break Some(io::Error::other(error.to_string())),
        }
    };
    let (there, others): (Vec<_>, Vec<_>) =
        kinds.into_iter().partition(|(kind, _)| loaded.contains(kind));
    let mut found: Vec<_> = there.into_iter().map(|(_, name)| name.to_owned()).collect();
    if let Some(error) = end.filter(|_| !others.is_empty()) {
        let names: Vec<_> = others.into_iter().map(|(_, name)| name).collect();
        found.push(perhaps(&linerate_net::text::list(&names), error));
    }
    found
}

#[cfg(test)]
mod tests;
