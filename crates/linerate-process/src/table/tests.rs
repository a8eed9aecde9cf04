use super::*;

const LISTENER: u64 = 1;
const SOCKET: u64 = 2;
const OTHER: u64 = 3;

fn flow() -> Flow {
    let end = |port| End { address: 0xffff_7f00_0001, port };
    Flow { netns: 7, protocol: 6, local: end(80), remote: end(40_000) }
}

fn event(kind: EventKind, time: u64, socket: u64, pid: u32) -> Event {
    // No process has such a number: nothing is read from /proc.
    let process = Record { id: 0x7fff_0000 + pid, start: u64::from(pid), ..Record::default() };
    let Flow { netns, protocol, local, remote } = flow();
    let arguments = b"program\0".to_vec();
    Event { kind, time, socket, parent: 0, netns, process, protocol, local, remote, arguments }
}

/// A table after these events: kind, time, socket, process.
fn table(events: &[(EventKind, u64, u64, u32)]) -> Table {
    let mut table = Table::new();
    for &(kind, time, socket, pid) in events {
        table.apply(&event(kind, time, socket, pid));
    }
    table
}

/// Who has the flow at this time; 0 is nobody.
fn at(table: &mut Table, time: u64) -> u32 {
    let holder = table.holder(&flow(), time);
    assert!((holder.from..holder.until).contains(&time), "{holder:?}");
    holder.process.map_or(0, |process| process.id - 0x7fff_0000)
}

use EventKind::{Flow as Seen, Fork, Release, Socket as Made, Use};

#[test]
fn a_flow_is_of_the_process_that_made_its_socket() {
    let mut table = table(&[(Made, 10, SOCKET, 1), (Seen, 20, SOCKET, 0)]);
    assert_eq!([5, 10, 15, 20, 1000].map(|time| at(&mut table, time)), [0, 1, 1, 1, 1]);
    let reverse = Flow { local: flow().remote, remote: flow().local, ..flow() };
    let ([source, destination], _) = table.ends(&reverse, 15);
    assert!(source.process.is_none() && destination.process.is_some());
    let elsewhere = Flow { netns: 8, ..flow() };
    assert!(table.holder(&elsewhere, 15).process.is_none());
}

#[test]
fn a_flow_that_gets_another_socket_changes_its_process_at_that_time() {
    let mut table = table(&[
        (Made, 10, SOCKET, 1),
        (Seen, 20, SOCKET, 0),
        (Release, 30, SOCKET, 0),
        (Made, 40, OTHER, 2),
        (Seen, 50, OTHER, 0),
    ]);
    assert_eq!([20, 35, 40, 60].map(|time| at(&mut table, time)), [1, 1, 2, 2]);
}

#[test]
fn a_child_makes_the_sockets_of_its_parent_unknown_until_one_has_them_alone() {
    let mut table = table(&[(Made, 10, SOCKET, 1), (Seen, 20, SOCKET, 0), (Fork, 30, 0, 1)]);
    assert_eq!([29, 30, 40].map(|time| at(&mut table, time)), [1, 0, 0]);
    assert!(table.wants_holders);
    let holders = |pids: &[u32]| -> Vec<_> {
        pids.iter().map(|pid| event(EventKind::Holder, 0, SOCKET, *pid)).collect()
    };
    table.apply_holders(&holders(&[1, 2]), 50, 51);
    assert_eq!(at(&mut table, 60), 0);
    assert!(!table.wants_holders, "it waits before it looks again");
    assert_eq!(at(&mut table, 51 + RETRY), 0);
    assert!(table.wants_holders);
    table.apply_holders(&holders(&[2]), 2 * RETRY, 2 * RETRY + 1);
    let later = 2 * RETRY + 1;
    assert_eq!([29, 30, later - 1, later].map(|time| at(&mut table, time)), [1, 0, 0, 2]);
    // Without sockets a fork is of no interest.
    table.apply(&event(Fork, later + 5, 0, 9));
    assert_eq!(at(&mut table, later + 9), 2);
}

#[test]
fn a_connection_is_of_the_process_that_accepts_it_from_its_start() {
    let mut table = table(&[
        (Made, 10, LISTENER, 1),
        (Fork, 11, 0, 1),
        // The SYN.
        (Seen, 20, LISTENER, 0),
    ]);
    assert_eq!(at(&mut table, 20), 0);
    table.apply(&Event { parent: LISTENER, ..event(Seen, 30, SOCKET, 0) });
    assert_eq!([20, 30].map(|time| at(&mut table, time)), [0, 0]);
    table.apply(&event(Use, 40, SOCKET, 3));
    assert_eq!([20, 30, 40, 50].map(|time| at(&mut table, time)), [3; 4]);
}

#[test]
fn a_connection_that_is_not_accepted_yet_is_of_the_only_process_that_listens() {
    let mut table = table(&[(Made, 10, LISTENER, 1), (Seen, 20, LISTENER, 0)]);
    assert_eq!(at(&mut table, 20), 1);
    table.apply(&Event { parent: LISTENER, ..event(Seen, 30, SOCKET, 0) });
    assert_eq!([20, 35].map(|time| at(&mut table, time)), [1, 1]);
    // The child may have accepted it.
    table.apply(&event(Fork, 50, 0, 1));
    assert_eq!([45, 55].map(|time| at(&mut table, time)), [1, 0]);
    // Afterwards the parent has the listening socket alone; that says nothing about the connection.
    table.apply_holders(&[event(EventKind::Holder, 0, LISTENER, 1)], 60, 61);
    assert_eq!(at(&mut table, 70), 0);
}

#[test]
fn a_socket_that_another_process_uses_is_of_nobody() {
    let mut table = table(&[(Made, 10, SOCKET, 1), (Seen, 20, SOCKET, 0), (Use, 40, SOCKET, 2)]);
    assert_eq!([30, 50].map(|time| at(&mut table, time)), [0, 0]);
    table.apply_holders(&[event(EventKind::Holder, 0, SOCKET, 2)], 60, 61);
    assert_eq!([50, 61].map(|time| at(&mut table, time)), [0, 2]);
}

#[test]
fn a_number_that_a_later_process_has_is_not_the_earlier_one() {
    let mut table = table(&[(Made, 10, SOCKET, 1), (Seen, 20, SOCKET, 0)]);
    let mut reused = event(Fork, 30, 0, 1);
    reused.process.start = 29;
    table.apply(&reused);
    assert_eq!(at(&mut table, 40), 1);
}

#[test]
fn a_flow_is_of_nobody_some_time_after_its_socket() {
    let mut tcp = table(&[(Made, 10, SOCKET, 1), (Seen, 20, SOCKET, 0), (Release, 30, SOCKET, 0)]);
    assert_eq!([29 + LINGER, 30 + LINGER].map(|time| at(&mut tcp, time)), [1, 0]);
}

/// A table with datagrams: kind, time, socket, process; and who has the flow at some times.
fn datagrams(events: &[(EventKind, u64, u64, u32)], times: &[u64]) -> Vec<u32> {
    let mut table = Table::new();
    for &(kind, time, socket, pid) in events {
        table.apply(&Event { protocol: UDP, ..event(kind, time, socket, pid) });
    }
    let flow = Flow { protocol: UDP, ..flow() };
    let holder =
        |time: &u64| table.holder(&flow, *time).process.map_or(0, |one| one.id - 0x7fff_0000);
    times.iter().map(holder).collect()
}

#[test]
fn datagrams_are_of_a_socket_as_long_as_the_kernel_says_so() {
    let (one, late) = (20 + REPORTED, 3 * REPORTED);
    let events = [(Made, 10, SOCKET, 1), (Seen, 20, SOCKET, 0), (Seen, late, SOCKET, 0)];
    let times = [10, one - 1, one, late - REPORT_DELAY - 1, late - REPORT_DELAY, late];
    assert_eq!(datagrams(&events, &times), [1, 1, 0, 0, 1, 1]);
    let events = [(Made, 10, SOCKET, 1), (Seen, 20, SOCKET, 0), (Release, 30, SOCKET, 0)];
    assert_eq!(datagrams(&events, &[29, 30]), [1, 0]);
}

#[test]
fn datagrams_of_two_sockets_at_a_time_are_of_nobody() {
    let later = 40 + 2 * SETTLED;
    let events = [
        (Made, 10, SOCKET, 1),
        (Made, 11, OTHER, 2),
        (Seen, 20, SOCKET, 0),
        (Seen, 30, OTHER, 0),
        (Seen, 40, SOCKET, 0),
        (Seen, later, OTHER, 0),
    ];
    assert_eq!(datagrams(&events, &[15, 20, 35, 45, later]), [1, 0, 0, 0, 2]);
}

#[test]
fn a_fork_during_a_look_counts_for_the_sockets_that_it_finds() {
    let mut table = table(&[(Fork, 45, 0, 1)]);
    table.apply_holders(&[event(EventKind::Holder, 0, SOCKET, 1)], 40, 50);
    assert_eq!(at(&mut table, 60), 0);
}

#[test]
fn a_look_corrects_what_was_not_seen() {
    let mut table = table(&[(Made, 10, SOCKET, 1), (Seen, 20, SOCKET, 0)]);
    table.apply_holders(&[event(EventKind::Holder, 0, SOCKET, 2)], 40, 50);
    assert_eq!([30, 60].map(|time| at(&mut table, time)), [1, 2]);
    // A use says nothing of a socket that is no new connection.
    table.reset();
    table.apply(&event(Seen, 70, OTHER, 0));
    table.apply(&event(Use, 80, OTHER, 3));
    assert_eq!(at(&mut table, 90), 0);
}

#[test]
fn a_process_has_another_program_from_its_execution_on() {
    let mut table = table(&[(Made, 10, SOCKET, 1), (Seen, 20, SOCKET, 0)]);
    let mut executed = event(EventKind::Process, 50, 0, 1);
    (executed.process.exec, executed.arguments) = (1, b"other\0".to_vec());
    table.apply(&executed);
    let commands =
        [49, 50].map(|time| table.holder(&flow(), time).process.unwrap().command.clone());
    assert_eq!(commands, ["", "other"]);
}

#[test]
fn after_lost_events_a_flow_is_known_again_once_its_socket_is_seen() {
    let mut table = table(&[(Made, 10, SOCKET, 1), (Seen, 20, SOCKET, 0)]);
    table.reset();
    assert_eq!(at(&mut table, 30), 0);
    table.apply_holders(&[event(EventKind::Holder, 0, SOCKET, 1)], 40, 50);
    assert_eq!([30, 49, 50].map(|time| at(&mut table, time)), [0, 0, 1]);
}

#[test]
fn the_table_does_not_grow_without_end() {
    let mut table = Table::new();
    let mut event = event(Seen, 0, 0, 1);
    for number in 0..2 * MAX_FLOWS as u64 {
        event.remote.address = number.into();
        for kind in [Made, Seen, Release] {
            (event.kind, event.time, event.socket) = (kind, number, number);
            table.apply(&event);
        }
    }
    let most = MAX_FLOWS;
    let sizes = [table.flows.len(), table.sockets.len(), table.order.len()];
    assert!(sizes.iter().all(|size| *size <= most), "{sizes:?}");
    // Datagrams of one open socket.
    for number in 0..2 * MAX_FLOWS as u64 {
        event.remote.address = (number + (1 << 40)).into();
        (event.kind, event.time, event.protocol, event.socket) = (Seen, number, UDP, 1);
        table.apply(&event);
    }
    assert!(table.flows.len() <= most && table.order.len() <= most);
}
