//! What the tests of AF_XDP and the tee share: a cable between two namespaces and a sender.

#![allow(dead_code, reason = "each test file uses a part")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use linerate_netns::{Namespace, Veth, VethOptions};

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
        Self { veth, sender, receiver }
    }

    /// A raw socket that sends whole frames from `tx`.
    pub(crate) fn raw(&self) -> Raw {
        self.sender.run(|| Raw::open("tx")).expect("the namespace").expect("a packet socket")
    }
}

/// A packet socket bound to an interface.
pub(crate) struct Raw(OwnedFd);

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
            Ok(Self(fd))
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        loop {
            // SAFETY: a slice and its length.
            let sent =
                unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            if sent == frame.len() as isize {
                return;
            }
            let error = io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS), "send: {error}");
            std::thread::yield_now();
        }
    }
}

/// A UDP-in-IPv4 frame of `len` bytes to `port`, numbered: the payload begins with `number`.
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
