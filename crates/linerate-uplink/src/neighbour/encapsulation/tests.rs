use super::*;

const MAC: Address = Address([2, 0, 0, 0, 0, 1]);
const PEER: Address = Address([2, 0, 0, 0, 0, 2]);

fn packet(destination: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1];
    packet.extend(destination);
    packet
}

fn buffer(packet: &[u8]) -> Vec<u8> {
    [&[0; ETHERNET_HEADER], packet, &[0; 64]].concat()
}

fn answer(cache: &DestinationCache, destination: [u8; 4], resolution: Resolution) {
    let mut state = cache.lock();
    state.destinations.get_mut(&IpAddr::from(destination)).unwrap().resolution = resolution;
    drop(state);
    cache.changed();
}

#[test]
fn packets_wait_for_their_neighbour_and_go_in_order() {
    let cache = Arc::new(DestinationCache::new(MAC).unwrap());
    let mut encapsulator = Encapsulator::new(Arc::clone(&cache));
    let there = [10, 0, 0, 2];
    for len in [20, 21] {
        let mut buffer = buffer(&packet(there));
        assert_eq!(
            encapsulator.encapsulate(&Header::default(), &mut buffer, len),
            Encapsulated::Pending
        );
    }
    let mut out = vec![0; 100];
    encapsulator.drop_stale();
    assert_eq!(encapsulator.next_pending(&mut out), None, "nothing has changed");
    answer(&cache, there, Resolution::Resolved(PEER));
    encapsulator.drop_stale();
    for len in [20, 21] {
        let frame = Encapsulated::Frame(Header::default());
        assert_eq!(encapsulator.next_pending(&mut out), Some((frame, ETHERNET_HEADER + len)));
        assert_eq!(out[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(out[14..34], packet(there));
    }
    assert_eq!((encapsulator.pending(), encapsulator.bytes), (0, 0));
    // Known now; another address of the neighbour statistics from the next batch on.
    let mut one = buffer(&packet(there));
    assert_eq!(
        encapsulator.encapsulate(&Header::default(), &mut one, 20),
        Encapsulated::Frame(Header::default())
    );
    answer(&cache, there, Resolution::Resolved(Address([2, 0, 0, 0, 0, 3])));
    encapsulator.drop_stale();
    encapsulator.encapsulate(&Header::default(), &mut one, 20);
    assert_eq!(one[..6], [2, 0, 0, 0, 0, 3]);
    cache.set_mac(Address([2, 0, 0, 0, 0, 7]));
    encapsulator.drop_stale();
    encapsulator.encapsulate(&Header::default(), &mut one, 20);
    assert_eq!(one[..12], [2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 7]);
}

#[test]
fn what_waits_is_bounded_and_dropped_where_nobody_answers() {
    let cache = Arc::new(DestinationCache::new(MAC).unwrap());
    let mut encapsulator = Encapsulator::new(Arc::clone(&cache));
    let there = [10, 0, 0, 9];
    let mut one = buffer(&packet(there));
    for _ in 0..MAX_PENDING.0 {
        assert_eq!(
            encapsulator.encapsulate(&Header::default(), &mut one, 20),
            Encapsulated::Pending
        );
    }
    assert_eq!(encapsulator.encapsulate(&Header::default(), &mut one, 20), Encapsulated::Full);
    answer(&cache, there, Resolution::Unreachable);
    encapsulator.drop_stale();
    for _ in 0..MAX_PENDING.0 {
        let lost = Some((Encapsulated::Unreachable, ETHERNET_HEADER + 20));
        assert_eq!(encapsulator.next_pending(&mut one), lost);
        // The packet is there for the error that quotes it.
        assert_eq!(one[ETHERNET_HEADER..][..20], packet(there));
    }
    assert_eq!(encapsulator.next_pending(&mut one), None);
    assert_eq!(
        encapsulator.encapsulate(&Header::default(), &mut one, 20),
        Encapsulated::Unreachable
    );
}

#[test]
fn groups_need_no_neighbour_and_other_bytes_get_none() {
    let cache = Arc::new(DestinationCache::new(MAC).unwrap());
    let mut encapsulator = Encapsulator::new(cache);
    for (to, mac) in
        [([239, 255, 0, 250], [1, 0, 0x5e, 0x7f, 0, 250]), ([255, 255, 255, 255], [0xff; 6])]
    {
        let mut one = buffer(&packet(to));
        let encapsulated = encapsulator.encapsulate(&Header::default(), &mut one, 20);
        assert_eq!(encapsulated, Encapsulated::Frame(Header::default()));
        assert_eq!(one[..6], mac);
    }
    assert_eq!(group("ff02::1:2".parse().unwrap()), Some(Address([0x33, 0x33, 0, 1, 0, 2])));
    for bytes in [&[][..], &[0x45], &[0x45; 19], &[0x60; 39], &[0; 60]] {
        let mut one = buffer(bytes);
        let encapsulated = encapsulator.encapsulate(&Header::default(), &mut one, bytes.len());
        assert_eq!(encapsulated, Encapsulated::Malformed, "{bytes:?}");
    }
}
