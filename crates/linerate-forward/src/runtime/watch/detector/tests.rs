use proptest::prelude::*;

use super::*;

fn detect(protocol: Protocol, kind: u16, body: &[u8]) -> Option<Cause> {
    let change = ChangeDetector::default().detect(protocol, Message { kind, flags: 0, body });
    change.map(|change| change.cause)
}

#[test]
fn each_kind_has_its_cause() {
    let route = [2, 24, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    assert_eq!(detect(Protocol::Route, libc::RTM_NEWROUTE, &route), Some(Cause::Route));
    let mut cloned = route;
    cloned[8..].copy_from_slice(&libc::RTM_F_CLONED.to_ne_bytes());
    assert_eq!(detect(Protocol::Route, libc::RTM_NEWROUTE, &cloned), None);
    assert_eq!(detect(Protocol::Route, libc::RTM_DELRULE, &route), Some(Cause::Rule));
    assert_eq!(detect(Protocol::Route, RTM_NEWNEXTHOP, &[0; 8]), Some(Cause::Nexthop));
    assert_eq!(detect(Protocol::Route, libc::RTM_NEWNETCONF, &[2]), Some(Cause::Forwarding));
    assert_eq!(
        detect(Protocol::Route, libc::RTM_NEWTFILTER, &[0; 20]),
        Some(Cause::TrafficControl)
    );
    assert_eq!(detect(Protocol::Netfilter, NEW_GENERATION, &[0; 4]), Some(Cause::Nftables));
    assert_eq!(detect(Protocol::Netfilter, ctnetlink::DELETE, &[0; 4]), Some(Cause::Conntrack));
    assert_eq!(detect(Protocol::Netfilter, ctnetlink::NEW, &[0; 4]), Some(Cause::Conntrack));
    assert_eq!(detect(Protocol::Netfilter, NEW_GENERATION - 1, &[0; 4]), None);
    assert_eq!(detect(Protocol::Xfrm, XFRM_MSG_FLUSHPOLICY, &[]), Some(Cause::Ipsec));
    assert_eq!(detect(Protocol::Xfrm, 24, &[]), None);
}

proptest! {
    #[test]
    fn any_message_is_answered(
        kind in 0u16..130,
        body in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        for protocol in [Protocol::Route, Protocol::Netfilter, Protocol::Xfrm] {
            let _ = detect(protocol, kind, &body);
        }
    }
}
