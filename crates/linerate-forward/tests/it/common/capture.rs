//! [`Monitor`]: everything that leaves a router, on every port, in order.

use std::time::{Duration, Instant};

use linerate_ring::packet::Sender;
use linerate_ring::tee::{Action, Tee};
use linerate_ring::{Batch as _, Options, Ring as _, TimestampSource};
use linerate_wire::virtio::Header;

use super::host::{Host, PORTS, router_mac, router_v4};
use super::router::{MTU, Router};

/// Identifier of the echo requests that say that a port has done its work.
const MARK: u16 = 0xba55;

/// What left a router: the frames of each port in order.
pub(crate) type Seen = [Vec<Vec<u8>>; PORTS.len()];

/// Sends to and hears from every port of a router. The calling thread has to stay on one CPU
/// ([`stay`]): what a frame makes the kernel do is then done, or at least begun in order, when the call
/// that sends it returns.
pub(crate) struct Monitor {
    senders: Vec<Sender>,
    tees: Vec<Tee>,
    marks: u16,
}

impl Monitor {
    pub(crate) fn open(router: &Router) -> Self {
        let open = || {
            let (buffer, timestamps) = (Some(8 << 20), TimestampSource::None);
            let action = Action::Redirect;
            let options = Options { action, buffer, timestamps, ..Options::default() };
            let tee = |name| Tee::open(name, &options, None);
            let tees = PORTS.into_iter().map(tee).collect::<Result<Vec<_>, _>>().expect("tees");
            let senders = PORTS.into_iter().map(Sender::open).collect::<Result<Vec<_>, _>>();
            (senders.expect("sockets"), tees)
        };
        let (senders, tees) = router.outside.run(open).expect("entered");
        let mut monitor = Self { senders, tees, marks: 0 };
        // The kernel starts the queue of a new interface from a work item, and drops what comes before.
        let deadline = Instant::now() + Duration::from_secs(5);
        while !monitor.marked(&mut Seen::default(), Duration::from_millis(20)) {
            assert!(Instant::now() < deadline, "nothing comes through");
        }
        monitor
    }

    /// Sends a frame into a port, which takes in as much as its MTU, and may drop what is longer.
    pub(crate) fn send(&self, port: usize, frame: &[u8]) {
        match self.senders[port].send(&Header::default(), frame) {
            Err(error) if frame.len() <= MTU[port] as usize + 14 => panic!("{error}"),
            _ => {}
        }
    }

    /// What left the router since the last call.
    pub(crate) fn seen(&mut self) -> Seen {
        let mut seen = Seen::default();
        // Again, if the machine was busy elsewhere.
        let all = (0..50).any(|_| self.marked(&mut seen, Duration::from_millis(100)));
        assert!(all, "the router does not answer on every port");
        seen
    }

    /// Sends a mark through the stack on every port, and reads on until each is answered.
    fn marked(&mut self, seen: &mut Seen, timeout: Duration) -> bool {
        self.marks = self.marks.wrapping_add(1);
        for port in 0..PORTS.len() {
            self.send(port, &mark(port, self.marks));
        }
        let deadline = Instant::now() + timeout;
        let mut answered = [false; PORTS.len()];
        loop {
            for (port, tee) in self.tees.iter_mut().enumerate() {
                answered[port] |= drain(tee, &mut seen[port], self.marks);
            }
            if answered == [true; PORTS.len()] {
                // What was behind another port's mark.
                for (port, tee) in self.tees.iter_mut().enumerate() {
                    drain(tee, &mut seen[port], self.marks);
                }
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Panics where a frame was not heard.
    pub(crate) fn assert_all_seen(&self) {
        for tee in &self.tees {
            let counts = tee.statistics().expect("counted");
            assert_eq!((counts.lost(), counts.late), (0, 0), "{counts:?}");
        }
    }
}

/// Reads what came; whether the answer to this mark was among it.
fn drain(tee: &mut Tee, frames: &mut Vec<Vec<u8>>, number: u16) -> bool {
    let mut answered = false;
    while let Some(mut batch) = tee.next_batch() {
        while let Some(frame) = batch.next() {
            match marked(frame.head()) {
                Some(mark) => answered |= mark == number,
                None if is_membership_report(frame.head()) => {}
                None => frames.push(frame.head().to_vec()),
            }
        }
    }
    answered
}

/// An echo request to the router's own address.
fn mark(port: usize, number: u16) -> Vec<u8> {
    let octets = |address| match address {
        std::net::IpAddr::V4(address) => address.octets(),
        std::net::IpAddr::V6(_) => unreachable!("marks are IPv4"),
    };
    let from = Host { port, number: 10 };
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2(from.mac().0, router_mac(port).0)
        .ipv4(octets(from.v4()), octets(router_v4(port)), 64)
        .icmpv4_echo_request(MARK, number)
        .write(&mut frame, &[])
        .expect("a frame");
    frame
}

/// The number of a mark, if the frame is the answer to one.
fn marked(frame: &[u8]) -> Option<u16> {
    let answer = frame.get(34..42)?;
    let is_echo_reply =
        frame[12..14] == [8, 0] && frame[14] == 0x45 && frame[23] == 1 && answer[0] == 0;
    (is_echo_reply && answer[4..6] == MARK.to_be_bytes())
        .then(|| u16::from_be_bytes([answer[6], answer[7]]))
}

/// The kernel says after a random time which IPv6 groups a router is in (RFC 3810).
fn is_membership_report(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x86, 0xdd][..])
        && frame.get(20) == Some(&0)
        && frame.get(54) == Some(&58)
        && matches!(frame.get(62), Some(131 | 132 | 143))
        && frame.get(22..24).is_some_and(|from| from == [0, 0] || from == [0xfe, 0x80])
}

/// The thread, and with it what it makes the kernel do, stays on one CPU.
pub(crate) fn stay() {
    use linerate_net::cpu;
    cpu::pin(cpu::allowed().expect("CPUs")[0]).expect("stayed");
}
