//! [`Reason`]: why a frame went to the kernel or was dropped; `bpf/reasons.h` in Rust.

linerate_net::reasons! {
    /// Why a frame was not forwarded by the fast path. The number is the index in the map `reasons`.
    Reason "reason":
    Short "short" "The frame ends before its headers do.",
    NotIp "not-ip" "Neither IPv4 nor IPv6: ARP and the like.",
    Tags "tags" "More than two VLAN tags.",
    Multicast "multicast" "Multicast or broadcast, by MAC or by address.",
    Otherhost "otherhost" "Not addressed to the MAC of the interface.",
    Malformed "malformed" "An impossible version, header length, total length or data offset.",
    Checksum "checksum" "A wrong IPv4 header checksum, or a wrong TCP or UDP checksum where conntrack verifies it and `verify-checksums` is set.",
    Options "options" "IPv4 options.",
    Extension "extension" "IPv6 extension headers.",
    Fragment "fragment" "A fragment.",
    Protocol "protocol" "Neither TCP nor UDP.",
    Ttl "ttl" "A TTL or hop limit of 1 or 0.",
    Syn "syn" "TCP with SYN, which ends the session.",
    Fin "fin" "TCP with FIN, which ends the session.",
    Rst "rst" "TCP with RST, which ends the session.",
    Flags "flags" "TCP without ACK.",
    Unknown "unknown" "No session.",
    Stale "stale" "The session was learned before the last change of routes, neighbours or rules.",
    Ended "ended" "The session has ended: its connection closed, or it was flushed or aged out.",
    Revalidate "revalidate" "The session is due for revalidation by the kernel.",
    Busy "busy" "The session is being written.",
    TooBig "too-big" "Larger than the MTU of the output interface.",
    NoPort "no-port" "The output interface is not a port, or not any more.",
    NoHeadroom "no-headroom" "No headroom for the VLAN tags or the Ethernet header that it leaves with.",
    NoDaemon "no-daemon" "The heartbeat of the daemon timed out.",
    Denied "denied" "Dropped: on a deny list.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_that_of_the_header() {
        let there = crate::named::constants(include_str!("bpf/reasons.h"), "reason", "REASON_");
        assert!(there.iter().eq(Reason::ALL.iter().map(|reason| reason.name())), "{there:?}");
        assert!(Reason::ALL.iter().enumerate().all(|(at, reason)| *reason as usize == at));
    }
}
