use super::*;

#[test]
fn counts_of_several_handles_are_added() {
    let (shared, _file) = SharedCounters::create().unwrap();
    let one = HandleStatistics {
        handles: 1,
        received: 10,
        delivered: 7,
        bytes: 700,
        read_at: 50,
        drops: [(DropCause::PacketRingFull, 3), (DropCause::PipeClosed, 1)].into(),
    };
    for read_at in [60, 40] {
        let counters = HandleStatistics::counters(&shared, "eth0", "packet").unwrap();
        HandleStatistics { read_at, ..one.clone() }.add_to(counters);
    }
    one.add_to(HandleStatistics::counters(&shared, "interface-of-15", "packet").unwrap());
    shared.row("nonsense").unwrap();
    let sums = HandleStatistics::read(&shared);
    let labels = |name: &str| [name.to_owned(), "packet".to_owned()];
    let both = HandleStatistics {
        handles: 2,
        received: 20,
        delivered: 14,
        bytes: 1400,
        read_at: 60,
        drops: [(DropCause::PacketRingFull, 6), (DropCause::PipeClosed, 2)].into(),
    };
    assert_eq!(sums.len(), 2);
    assert_eq!(sums[&labels("eth0")], both);
    assert_eq!(sums[&labels("interface-of-15")], one);
}
