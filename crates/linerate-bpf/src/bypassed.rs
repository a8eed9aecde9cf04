//! [`bypassed`]: what on this host the frames that an XDP program takes do not reach. For messages: nothing is decided
//! by it, and what could not be read is left out.

use linerate_net::netlink::{Protocol, Socket};
use linerate_net::{Connection, Interface, link, packet_socket, ruleset};

use crate::link::has_tcx_ingress_program;
use crate::program::log_to_tracing;
use crate::xdp::query::{program, program_info};

/// `XFRM_MSG_GETPOLICY`, whose dump needs no body.
const GET_POLICY: u16 = 0x15;

/// What exists here that frames of `interface` pass by when an XDP program takes them: a short phrase for each, such as
/// `IPsec policies`.
pub fn bypassed(interface: &Interface) -> Vec<String> {
    log_to_tracing();
    let (name, index) = (interface.name(), interface.index());
    let mut found = Vec::new();
    for v6 in [false, true] {
        found.extend(ruleset::local_filter(name, v6).ok().flatten());
    }
    if number("/proc/sys/net/netfilter/nf_conntrack_count") > 0 {
        found.push("connection tracking".to_owned());
    }
    if has_ipsec() {
        found.push("IPsec policies".to_owned());
    }
    if has_ingress_qdisc(index) || has_tcx_ingress_program(index).unwrap_or_default() {
        found.push("tc filters".to_owned());
    }
    found.extend(devices(index));
    let sockets = packet_socket::all().unwrap_or_default();
    if sockets.iter().any(|socket| socket.receives_from(index)) {
        found.push("packet sockets".to_owned());
    }
    found.extend(programs());
    found.dedup();
    found
}

/// The number in a file; 0 if there is none.
fn number(path: &str) -> u64 {
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn has_ipsec() -> bool {
    let mut policies = 0;
    let dumped = Socket::open(Protocol::Xfrm)
        .and_then(|socket| socket.dump(GET_POLICY, &[], |_| policies += 1));
    dumped.is_ok() && policies > 0
}

fn has_ingress_qdisc(index: u32) -> bool {
    let qdiscs = Connection::open().and_then(|connection| connection.qdiscs(index));
    qdiscs.unwrap_or_default().iter().any(linerate_net::qdisc::Qdisc::is_ingress)
}

/// The device that the interface is a port of, devices above it, and those of other namespaces.
fn devices(index: u32) -> Vec<String> {
    let links = link::all().unwrap_or_default();
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
    if entries.unwrap_or_default().iter().any(is_other) {
        found.push("a macvlan in another namespace".to_owned());
    }
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
    // SAFETY: the call writes the next id to `id`.
    while unsafe { libbpf_sys::bpf_prog_get_next_id(id, &mut id) } >= 0 {
        // One may have gone between the two calls.
        let Ok(fd) = program(id) else { continue };
        let info = program_info(std::os::fd::AsFd::as_fd(&fd), Default::default());
        loaded.extend(info.map(|info| info.type_));
    }
    let is_loaded = |(kind, _): &(u32, _)| loaded.contains(kind);
    kinds.into_iter().filter(is_loaded).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests;
