use proptest::prelude::*;

use super::*;

fn entry(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
    let mut bytes = (HEADER + data.len()).to_ne_bytes().to_vec();
    bytes.extend(level.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[test]
fn every_kind_is_read() {
    let bytes = [
        entry(libc::SOL_UDP, UDP_GRO, &64i32.to_ne_bytes()),
        entry(libc::IPPROTO_IP, libc::IP_TOS, &[0x2e]),
        entry(libc::IPPROTO_IP, libc::IP_PKTINFO, &[3, 0, 0, 0, 10, 0, 0, 2, 10, 0, 0, 255]),
    ]
    .concat();
    let control = ControlMessages::parse(&bytes);
    assert_eq!((control.segment_size, control.traffic_class), (Some(64), Some(0x2e)));
    assert_eq!(control.interface_index, Some(u32::from_ne_bytes([3, 0, 0, 0])));
    assert_eq!(control.destination, Some("10.0.0.255".parse().unwrap()));
    assert!(control.broadcast);
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_the_end(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
        ControlMessages::parse(&bytes);
    }
}
