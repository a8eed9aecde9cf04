//! [`bypassed`]: what on this host the frames that an XDP program takes do not reach. For messages: nothing is decided
//! by it. What cannot be read may be there, and is named so.

use std::fmt::Display;
use std::io;

use linerate_net::netlink::{Protocol, Socket};
use linerate_net::{Connection, Interface, link, packet_socket, ruleset};

use crate::link::has_tcx_ingress_program;
use crate::program::log_to_tracing;
use crate::xdp::query::{program, program_info};

/// `XFRM_MSG_GETPOLICY`, whose dump needs no body.
const GET_POLICY: u16 = 0x15;

/// What exists here that frames of `interface` pass by when an XDP program takes them: a short phrase for each, such as
/// `IPsec policies`. `perhaps`, and the reason, precede and follow what cannot be read.
pub fn bypassed(interface: &Interface) -> Vec<String> {
    log_to_tracing();
    let (name, index) = (interface.name(), interface.index());
    let mut found = Vec::new();
    for v6 in [false, true] {
        match ruleset::local_filter(name, v6) {
            Ok(chain) => found.extend(chain),
            Err(error) => found.push(perhaps("packet filters", error)),
        }
    }
    found.extend(exists("connection tracking", tracks_connections()));
    found.extend(exists("IPsec policies", has_ipsec()));
    let filters = match has_ingress_qdisc(index) {
        Ok(false) => has_tcx_ingress_program(index).map_err(|error| error.to_string()),
        other => other.map_err(|error| error.to_string()),
    };
    found.extend(exists("tc filters", filters));
    match devices(index) {
        Ok(devices) => found.extend(devices),
        Err(error) => found.push(perhaps("other devices", error)),
    }
    let sockets = packet_socket::all();
    let receives =
        |all: Vec<packet_socket::PacketSocket>| all.iter().any(|one| one.receives_from(index));
    found.extend(exists("packet sockets", sockets.map(receives)));
    match programs() {
        Ok(kinds) => found.extend(kinds),
        Err(error) => found.push(perhaps("BPF programs of other kinds", error)),
    }
    found.dedup();
    found
}

/// The phrase of what exists, or may.
fn exists(what: &str, answer: Result<bool, impl Display>) -> Option<String> {
    match answer {
        Ok(exists) => exists.then(|| what.to_owned()),
        Err(error) => Some(perhaps(what, error)),
    }
}

fn perhaps(what: &str, error: impl Display) -> String {
    format!("perhaps {what} ({error})")
}

fn tracks_connections() -> io::Result<bool> {
    match std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count") {
        Ok(count) => Ok(count.trim() != "0"),
        // A kernel without it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn has_ipsec() -> io::Result<bool> {
    let mut policies = 0;
    let dumped = Socket::open(Protocol::Xfrm)
        .and_then(|socket| socket.dump(GET_POLICY, &[], |_| policies += 1));
    match dumped {
        // A kernel without it.
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => Ok(false),
        result => result.map(|_| policies > 0),
    }
}

fn has_ingress_qdisc(index: u32) -> linerate_net::Result<bool> {
    let qdiscs = Connection::open()?.qdiscs(index)?;
    Ok(qdiscs.iter().any(linerate_net::qdisc::Qdisc::is_ingress))
}

/// The device that the interface is a port of, devices above it, and those of other namespaces.
fn devices(index: u32) -> linerate_net::Result<Vec<String>> {
    let links = link::all()?;
    let own = links.iter().find(|link| link.index == index);
    let master = own.and_then(|link| link.master);
    let is_above = |link: &&link::Link| Some(link.index) == master || link.lower() == Some(index);
    let mut found: Vec<_> = links.iter().filter(is_above).map(|link| link.name.clone()).collect();
    // A macvlan makes the interface receive for its hardware address.
    let is_other = |entry: &linerate_net::neighbour::Neighbour| {
        let address = entry.address.filter(|one| !one.is_multicast() && one.0 != [0; 6]);
        entry.own && address.is_some_and(|one| !links.iter().any(|link| link.address == Some(one)))
    };
    if Connection::open()?.fdb(index)?.iter().any(is_other) {
        found.push("a macvlan in another namespace".to_owned());
    }
    Ok(found)
}

/// Kinds of loaded BPF programs that judge packets above the driver.
fn programs() -> io::Result<Vec<String>> {
    let kinds = [
        (libbpf_sys::BPF_PROG_TYPE_CGROUP_SKB, "filters of control groups"),
        (libbpf_sys::BPF_PROG_TYPE_SK_LOOKUP, "sk_lookup programs"),
        (libbpf_sys::BPF_PROG_TYPE_NETFILTER, "BPF netfilter programs"),
    ];
    let mut loaded = Vec::new();
    let mut id = 0;
    loop {
        // SAFETY: the call writes the next id to `id`.
        let status = unsafe { libbpf_sys::bpf_prog_get_next_id(id, &mut id) };
        match status {
            0.. => {}
            _ if status == -libc::ENOENT => break,
            _ => return Err(io::Error::from_raw_os_error(-status)),
        }
        // One may have gone between the two calls.
        let Ok(fd) = program(id) else { continue };
        let info = program_info(std::os::fd::AsFd::as_fd(&fd), Default::default());
        loaded.extend(info.map(|info| info.type_));
    }
    let is_loaded = |(kind, _): &(u32, _)| loaded.contains(kind);
    Ok(kinds.into_iter().filter(is_loaded).map(|(_, name)| name.to_owned()).collect())
}

#[cfg(test)]
mod tests;
