use proptest::prelude::*;

use super::*;

/// A message with its header, as the kernel writes them.
fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = encode(kind, 0, 0, body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[test]
fn messages_follow_each_other_until_one_is_cut() {
    let mut bytes = message(24, &[1, 2, 3, 4]);
    bytes.extend(message(25, &[]));
    bytes.extend(&message(26, &[9; 8])[..20]);
    let kinds: Vec<_> = messages(&bytes).map(|message| message.kind).collect();
    assert_eq!(kinds, [24, 25]);
}

#[test]
fn a_request_gets_its_own_answers_alone() {
    let socket = Socket::open(Protocol::Route).unwrap();
    let mut link = [0; 16];
    link[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
    let none = socket.request(libc::RTM_GETLINK, 0, &link, |_| ()).unwrap_err();
    assert_eq!(none.raw_os_error(), Some(libc::ENODEV));
    let mut links = 0;
    let whole = socket.dump(libc::RTM_GETLINK, &[0; 16], |_| links += 1).unwrap();
    assert!(links > 0 && whole == Dump::Consistent);
    link[4..8].copy_from_slice(&1u32.to_ne_bytes());
    let mut answers = 0;
    socket.request(libc::RTM_GETLINK, 0, &link, |_| answers += 1).unwrap();
    assert_eq!(answers, 1);
}

#[test]
fn threads_share_a_socket() {
    let socket = Socket::open(Protocol::Route).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut links = 0;
                    let _ = socket.dump(libc::RTM_GETLINK, &[0; 16], |_| links += 1).unwrap();
                    assert!(links > 0);
                }
            });
        }
    });
}

proptest! {
    #[test]
    fn any_bytes_are_walked_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(messages(&bytes).count() <= bytes.len());
    }
}
