//! What the tests of AF_XDP and the tee share: a veth pair between two namespaces and a sender.

use std::cell::Cell;
use std::ffi::CString;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use linerate_bpf::filter::{ClassicInstruction, ClassicProgram, Instruction, translate};
use linerate_ring::region::Pages;
use linerate_ring::tee::Action;
use linerate_ring::{Frame, Options, Ring, TimestampSource};
use linerate_testkit::{Interface, Namespace, Veth, VethOptions, uninterrupted};

/// Reads until nothing has come for a while; calls `each` with every frame.
pub(crate) fn drain(ring: &mut impl Ring, mut each: impl FnMut(&Frame<'_>)) -> u64 {
    let mut count = 0;
    while ring.wait(Duration::from_millis(300)).expect("wait") {
        ring.drain(|frame| {
            each(frame);
            count += 1;
            true
        });
    }
    count
}

/// Options of a tee.
pub(crate) fn copying() -> Options {
    Options { action: Action::Copy, ..Options::default() }
}

/// Options of sockets with a small buffer, whose reader stamps.
pub(crate) fn small() -> Options {
    let (buffer, pages) = (Some(8 << 20), Pages::Small);
    Options { buffer, pages, timestamps: TimestampSource::Reader, ..Options::default() }
}

/// Two namespaces and a veth pair: `tx` sends, `rx` receives.
pub(crate) struct Cable {
    pub(crate) veth: Veth,
    pub(crate) sender: Namespace,
    pub(crate) receiver: Namespace,
}

impl Cable {
    pub(crate) fn new(options: VethOptions) -> Self {
        let sender = Namespace::create("lrtx").expect("a namespace");
        let receiver = Namespace::create("lrrx").expect("a namespace");
        // Nothing but the test's own frames: no IPv6 neighbour discovery.
        for namespace in [&sender, &receiver] {
            namespace.sysctl("net/ipv6/conf/all/disable_ipv6", "1").expect("a sysctl");
            namespace.sysctl("net/ipv6/conf/default/disable_ipv6", "1").expect("a sysctl");
        }
        let veth = Veth::create(&sender, "tx", &receiver, "rx", options).expect("a veth pair");
        veth.b.add_address("10.9.0.2".parse().unwrap(), 24).expect("an address");
        // The frames come from an address that the receiver cannot reach.
        receiver.sysctl("net/ipv4/conf/all/rp_filter", "0").expect("a sysctl");
        receiver.sysctl("net/ipv4/conf/rx/rp_filter", "0").expect("a sysctl");
        let cable = Self { veth, sender, receiver };
        cable.wait_until_it_carries();
        cable
    }

    /// The kernel starts the queue of a new interface from a work item, and silently drops what
    /// is sent before. The ethertype is one for experiments, which no stack takes.
    fn wait_until_it_carries(&self) {
        let raw = self.sender.run(|| Raw::open("tx")).expect("the namespace").expect("a socket");
        let frame = [&[0xff; 12][..], &[0x88, 0xb5], &[0; 46]].concat();
        let end = Instant::now() + Duration::from_secs(5);
        while self.veth.b.statistics().expect("statistics").rx_packets == 0 {
            assert!(Instant::now() < end, "nothing comes through");
            raw.send(&frame);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A raw socket that sends whole frames from `tx`.
    pub(crate) fn raw(&self) -> Raw {
        let raw = self.sender.run(|| Raw::open("tx")).expect("the namespace");
        Raw { pacing: Some(self.pacing()), ..raw.expect("a packet socket") }
    }

    /// The pace for another sender.
    pub(crate) fn pacing(&self) -> Pacing {
        let arrived = self.veth.b.statistics().expect("statistics").rx_packets;
        Pacing { to: self.veth.b.clone(), arrived, sent: Cell::new(0) }
    }
}

/// A packet socket bound to an interface.
pub(crate) struct Raw {
    fd: OwnedFd,
    pacing: Option<Pacing>,
}

/// Keeps the sender from running ahead of a busy softirq: a veth holds 256 frames and drops the
/// next one without an error for the sender.
pub(crate) struct Pacing {
    to: Interface,
    arrived: u64,
    sent: Cell<u64>,
}

impl Pacing {
    pub(crate) const AHEAD: u64 = 64;

    /// To be called after each frame; one in [`Self::AHEAD`] waits, and none may be left in a ring of
    /// the sender then.
    pub(crate) fn sent_one(&self) {
        self.sent.set(self.sent.get() + 1);
        if !self.sent.get().is_multiple_of(Self::AHEAD) {
            return;
        }
        let end = Instant::now() + Duration::from_secs(5);
        while self.to.statistics().expect("statistics").rx_packets < self.arrived + self.sent.get()
        {
            assert!(Instant::now() < end, "the cable lost frames");
            std::thread::yield_now();
        }
    }
}

impl Raw {
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface).unwrap();
        // SAFETY: plain system calls on our own memory.
        unsafe {
            let index = libc::if_nametoindex(name.as_ptr());
            // Protocol 0: it sends only.
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = index as i32;
            let len = size_of_val(&address) as u32;
            if libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self { fd, pacing: None })
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        loop {
            // SAFETY: a slice and its length.
            let sent =
                unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            if sent == frame.len() as isize {
                return self.pacing.iter().for_each(Pacing::sent_one);
            }
            let error = io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS), "send: {error}");
            std::thread::yield_now();
        }
    }
}

/// A UDP-in-IPv4 frame of `len` bytes to `port`, numbered: the payload starts with `number`.
pub(crate) fn udp(port: u16, number: u64, len: usize) -> Vec<u8> {
    assert!(len >= 50);
    let mut frame = vec![0xff; 6];
    frame.extend_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame.extend_from_slice(&[0x08, 0x00]);
    let total = (len - 14) as u16;
    let mut header = vec![0x45, 0];
    header.extend_from_slice(&total.to_be_bytes());
    header.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    let sum: u32 = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(&header);
    frame.extend_from_slice(&9u16.to_be_bytes());
    frame.extend_from_slice(&port.to_be_bytes());
    frame.extend_from_slice(&(total - 20).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(&number.to_be_bytes());
    while frame.len() < len {
        frame.push((frame.len() as u64).wrapping_mul(31).wrapping_add(number) as u8);
    }
    frame
}

/// The number that [`udp`] put in.
pub(crate) fn number(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[42..50].try_into().unwrap())
}

/// The port that [`udp`] put in.
pub(crate) fn port(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[36], frame[37]])
}

/// A kernel filter that accepts [`udp`] frames to `port`.
pub(crate) fn to_port(port: u16) -> Vec<Instruction> {
    let instruction = |code, jt, jf, k| ClassicInstruction { code, jt, jf, k };
    let load_half = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let program = ClassicProgram::new([
        instruction(load_half, 0, 0, 36),
        instruction(equal, 0, 1, port.into()),
        instruction(answer, 0, 0, 65_535),
        instruction(answer, 0, 0, 0),
    ]);
    translate(&program.expect("a valid program")).expect("a translatable program")
}

/// Counts the UDP datagrams that the stack of the receiver delivers to `port` of 10.9.0.2.
pub(crate) struct Stack(UdpSocket);

impl Stack {
    pub(crate) fn listen(cable: &Cable, port: u16) -> Self {
        let socket = cable.receiver.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)));
        let socket = socket.expect("the namespace").expect("a socket");
        socket.set_nonblocking(true).expect("non-blocking");
        // The test reads when all is sent, and a veth with a program uses a page for every frame: by default a
        // socket holds fewer than fifty of those.
        let room: libc::c_int = 8 << 20;
        // SAFETY: an integer and its size.
        let answer = unsafe {
            let value = (&raw const room).cast();
            let len = size_of_val(&room) as u32;
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value, len)
        };
        assert_eq!(answer, 0, "SO_RCVBUFFORCE: {}", io::Error::last_os_error());
        Self(socket)
    }

    /// How many have come, when no more come.
    pub(crate) fn count(&self) -> usize {
        let (mut count, mut quiet) = (0, 0);
        while quiet < 10 {
            match uninterrupted(|| self.0.recv(&mut [0; 64])) {
                Ok(_) => (count, quiet) = (count + 1, 0),
                Err(_) => {
                    quiet += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
        count
    }
}

/// A child process of this test program, in the receiver's namespace, that runs the test of these
/// arguments ([`only_this_test!`](linerate_testkit::only_this_test)) with `LINERATE_TEST_CHILD` set and says `ready`.
pub(crate) fn child(cable: &Cable, test: [String; 4]) -> Child {
    let mut child = cable
        .receiver
        .command(std::env::current_exe().expect("this program"))
        .args(test)
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let ready = lines.map_while(Result::ok).any(|line| line.contains("ready"));
    assert!(ready, "the child ended before it was ready");
    child
}

/// The variable that tells a child that it is one.
pub(crate) const CHILD: &str = "LINERATE_TEST_CHILD";

/// Waits until the interface has no XDP program, as it has a moment after the last owner's end.
pub(crate) fn becomes_free(cable: &Cable) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        if !cable.veth.b.has_xdp().expect("asked") {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Ends another thread's loop, also when this one panics.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
