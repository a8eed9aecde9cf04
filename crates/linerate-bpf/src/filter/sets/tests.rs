use super::*;

#[test]
fn members_are_hosts_or_in_a_network() {
    let net = |text: &str, length| (text.parse::<IpAddr>().unwrap(), length);
    let set = AddressSet::new(
        true,
        [
            net("10.0.0.0", 8),
            net("10.1.0.0", 16),
            net("192.0.2.7", 32),
            net("192.0.2.128", 25),
            net("2001:db8::", 32),
            net("::1", 128),
        ],
    );
    let contains = |text: &str| match text.parse().unwrap() {
        IpAddr::V4(address) => set.contains_v4(address.into()),
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            set.contains_v6([96, 64, 32, 0].map(|shift| (bits >> shift) as u32))
        }
    };
    let inside = [
        "10.0.0.0",
        "10.1.2.3",
        "10.255.255.255",
        "192.0.2.7",
        "192.0.2.255",
        "::1",
        "2001:db8:1::2",
    ];
    let outside = ["9.255.255.255", "11.0.0.0", "192.0.2.8", "192.0.2.127", "::2", "2001:db9::"];
    assert_eq!(inside.map(contains), [true; 7]);
    assert_eq!(outside.map(contains), [false; 6]);
    let all = AddressSet::new(true, [net("0.0.0.0", 0), net("::", 0)]);
    assert!(all.contains_v4(u32::MAX) && all.contains_v6([u32::MAX; 4]));
}
