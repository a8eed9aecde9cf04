//! [`Refusal`]: why a session was not learned; `bpf/refusals.h` in Rust.

crate::named::counters! {
    /// Why a session was not learned from a packet that left by a port. The number is the index in the map
    /// `refusals`.
    Refusal:
    Local "local" "Made by this machine: its own traffic, or a tunnel's.",
    Unmarked "unmarked" "Came in elsewhere than by a port.",
    Indirect "indirect" "Came through another interface than the port: a tunnel, or one not known to lie on it.",
    NotSession "not-session" "Neither TCP nor UDP, or not as the fast path would forward it.",
    Flags "flags" "TCP with SYN, FIN or RST, or without ACK.",
    Unreadable "unreadable" "The kernel does not let programs read its packets: it is older than 6.2.",
    Checksum "checksum" "The checksum is not finished: the sender is on this machine.",
    Tunnel "tunnel" "Encapsulated, encrypted, sent by a VLAN device, or on a route that is not one of forwarding.",
    Copy "copy" "Perhaps one of several copies: a bridge floods it.",
    Hairpin "hairpin" "Leaves where it came in: the kernel may have to send a redirect.",
    Port "port" "One of its interfaces is no port any more.",
    Generation "generation" "Routes, neighbours or rules changed while the packet was under way.",
    Unseen "unseen" "No such packet came in lately: rewritten by something else than connection tracking.",
    Admission "admission" "Too few packets of the session so far.",
    Ttl "ttl" "The TTL or hop limit is not what it came with less one.",
    Ecn "ecn" "ECN was changed.",
    ConntrackUnknown "conntrack-unknown" "The connection cannot be read, or is a template.",
    NotEstablished "not-established" "The connection is not answered yet, not established, or ending.",
    Helper "helper" "A helper or a change of sequence numbers works on the payload.",
    Expiring "expiring" "The connection is about to time out.",
    Busy "busy" "The place in the table is being written.",
    Full "full" "No free place in its bucket of the table.",
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
