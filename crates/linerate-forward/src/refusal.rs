//! [`Refusal`]: why a session was not learned; `bpf/refusals.h` in Rust.

linerate_net::reasons! {
    /// Why a session was not learned from a packet that left by a port. The number is the index in the map
    /// `refusals`.
    Refusal "refusal":
    Local "local" "Made by this machine: its own traffic, or a tunnel's.",
    Unmarked "unmarked" "Arrived by an interface that is not a port.",
    Indirect "indirect" "Came through a device that is not an upper device of the port, such as a tunnel.",
    NotSession "not-session" "Neither TCP nor UDP, or nothing that the fast path would forward.",
    Flags "flags" "TCP with SYN, FIN or RST, or without ACK.",
    Unreadable "unreadable" "The kernel does not let programs read its packets: it is older than 6.2.",
    PartialChecksum "partial-checksum" "The checksum is partial: the sender is on this machine. TC carries it, where TC may.",
    Datapath "datapath" "Neither XDP nor TC may take it: something has to see its packets (`status`).",
    Tunnel "tunnel" "Encapsulated, encrypted, sent by a VLAN device, or without a forwarding route.",
    Cloned "cloned" "A clone: a bridge may flood copies of it.",
    Hairpin "hairpin" "Leaves by its input interface: the kernel may have to send a redirect.",
    NoPort "no-port" "One of its interfaces is not a port, or not any more.",
    Generation "generation" "Routes, neighbours or rules changed while the packet was in the stack.",
    Unseen "unseen" "No such packet arrived recently: something other than connection tracking rewrote it.",
    Admission "admission" "Too few packets of the session so far.",
    Ttl "ttl" "The TTL or hop limit did not drop by exactly one.",
    Ecn "ecn" "The ECN bits changed.",
    ConntrackUnknown "conntrack-unknown" "The connection or its timeout cannot be read, it is a template, or it is in a zone before Linux 6.11.",
    NotEstablished "not-established" "The connection has no reply yet, is not established, or is closing.",
    Helper "helper" "A conntrack helper or sequence adjustment works on the payload.",
    Rule "rule" "A rule of the packet filter, or the configuration, keeps the session with the kernel (`status` names it).",
    Unreported "unreported" "The connection may end without a report, and cannot be looked up (a conntrack zone).",
    Expiring "expiring" "The connection is about to time out.",
    Busy "busy" "The slot in the table is being written, or has an ended session whose tuple NAT has given to another connection.",
    Full "full" "No free slot in its buckets of the table.",
    Hop "hop" "The table of input links with next hops, or that of IPv6 addresses after NAT, is full.",
    Ended "ended" "The session ended while it was being learned.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_that_of_the_header() {
        let there = crate::named::constants(include_str!("bpf/refusals.h"), "refusal", "REFUSAL_");
        assert!(there.iter().eq(Refusal::ALL.iter().map(|refusal| refusal.name())), "{there:?}");
        assert!(Refusal::ALL.iter().enumerate().all(|(at, refusal)| *refusal as usize == at));
    }
}
