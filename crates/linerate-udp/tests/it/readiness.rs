//! The descriptor is readable whenever messages wait: from the start, for level- and edge-triggered readers.

use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::support::{Cable, HERE, Kind, TIMEOUT, address, kinds, soon};
use linerate_testkit::{root_or_skip, test_name};
use linerate_udp::{Options, Receiver, Sender, SenderOptions};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

/// An epoll instance of a server, which watches a receiver.
struct Epoll(OwnedFd);

impl Epoll {
    fn of(receiver: &Receiver, flags: EventFlags) -> Self {
        let instance = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
        let data = EventData::new_u64(7);
        epoll::add(&instance, receiver.as_fd(), data, EventFlags::IN | flags).expect("watched");
        Self(instance)
    }

    /// Whether there is an event within `time`.
    fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a short time");
            let mut events =
                [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
            match epoll::wait(&self.0, &mut events[..], Some(&left)) {
                Ok(count) => return count > 0,
                Err(Errno::INTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn send(sender: &mut Sender, numbers: std::ops::Range<u8>) {
    for number in numbers {
        sender.message(1).expect("room").fill(number);
    }
    sender.flush().expect("sent");
}

/// The numbers in the next batch.
fn batch(receiver: &mut Receiver) -> Vec<u8> {
    let mut batch = receiver.try_receive().expect("messages");
    let mut numbers = Vec::new();
    while let Some(message) = batch.next() {
        numbers.push(message.payload[0]);
    }
    numbers
}

#[test]
fn a_receiver_is_readable_before_the_first_call_and_on_any_thread() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        for flags in [EventFlags::empty(), EventFlags::ET] {
            let to = address(HERE, 7000);
            // The thread that builds it ends.
            let mut receiver = std::thread::scope(|scope| {
                let build = || cable.receive_by(Options::new(to), kind).expect("a receiver");
                scope.spawn(build).join().expect("a thread")
            });
            let epoll = Epoll::of(&receiver, flags);
            assert!(!epoll.wait(Duration::ZERO), "{kind}: readable without a message");
            let mut sender = cable.send(SenderOptions::new(to));
            for round in 0..3 {
                // A thread that reads ends, too.
                let mut read = || {
                    send(&mut sender, round..round + 1);
                    assert!(epoll.wait(TIMEOUT), "{kind} is not readable in round {round}");
                    let (mut came, end) = (Vec::new(), Instant::now() + TIMEOUT);
                    while came.is_empty() && Instant::now() < end {
                        came = batch(&mut receiver);
                    }
                    assert_eq!(came, [round], "{kind}");
                    assert!(batch(&mut receiver).is_empty(), "{kind}");
                };
                std::thread::scope(|scope| scope.spawn(&mut read).join().expect("a thread"));
            }
        }
    }
}

#[test]
fn messages_that_wait_when_a_descriptor_is_first_watched_are_seen() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        for flags in [EventFlags::empty(), EventFlags::ET] {
            let to = address(HERE, 7000);
            let mut receiver = cable.receive_by(Options::new(to), kind).expect("a receiver");
            cable.fill(to, 5);
            let epoll = Epoll::of(&receiver, flags);
            assert!(epoll.wait(TIMEOUT), "{kind}");
            assert_eq!(batch(&mut receiver), [1; 5], "{kind}");
        }
    }
}

/// A level-triggered reader may take one batch a turn. An edge-triggered one reads until a batch is empty.
fn serve(kind: Kind, cable: &Cable, flags: EventFlags) {
    const MESSAGES: usize = 3000;
    let to = address(HERE, 7000);
    // Fewer than are sent at a time, and so few that io_uring runs out of buffers.
    let options = Options { batch: 8, ..Options::new(to) };
    let mut receiver = cable.receive_by(options, kind).expect("a receiver");
    let epoll = Epoll::of(&receiver, flags);
    std::thread::scope(|scope| {
        let mut sender =
            cable.send(SenderOptions { batch: 32, rate: Some(20_000.0), ..SenderOptions::new(to) });
        scope.spawn(move || {
            for number in 0..MESSAGES {
                sender.message(1).expect("room").fill(number as u8);
                if number % 50 == 49 {
                    sender.flush().expect("sent");
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
            sender.flush().expect("sent");
        });
        let mut came = Vec::new();
        while came.len() < MESSAGES {
            assert!(epoll.wait(TIMEOUT), "{kind} is silent after {} ({flags:?})", came.len());
            loop {
                let numbers = batch(&mut receiver);
                came.extend_from_slice(&numbers);
                if numbers.is_empty() || !flags.contains(EventFlags::ET) {
                    break;
                }
            }
        }
        assert!((0..MESSAGES).map(|number| number as u8).eq(came), "{kind}");
    });
}

#[test]
fn level_and_edge_triggered_readers_get_every_message() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        for flags in [EventFlags::empty(), EventFlags::ET] {
            serve(kind, &cable, flags);
        }
    }
}

/// `shutdown(2)` from another thread ends a wait, as it ends a plain `recv`: with nothing.
#[test]
fn a_shutdown_ends_a_wait() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        let mut receiver = cable.receive_by(Options::new(address(HERE, 7000)), kind).unwrap();
        let other = UdpSocket::from(receiver.socket().try_clone_to_owned().unwrap());
        let (done, ended) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            for _ in 0..3 {
                let batch = receiver.receive(soon(TIMEOUT)).map(|batch| batch.is_empty());
                done.send(batch).unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        // The socket is not connected, which the answer says; it is shut down all the same.
        let _ = nix::sys::socket::shutdown(other.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        for _ in 0..3 {
            let answer = ended.recv_timeout(TIMEOUT / 2);
            let answer = answer.unwrap_or_else(|_| panic!("{kind}: the wait goes on"));
            assert!(answer.unwrap(), "{kind}: messages");
        }
        waiting.join().unwrap();
    }
}
