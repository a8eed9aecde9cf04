//! [`SocketEvents`]: which process has which socket, and which flow is of which socket (`bpf/process.bpf.c`).

use std::fs;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapHandle, RingBuffer, RingBufferBuilder};
use linerate_net::privilege;

use crate::map::{MappedArray, batch};
use crate::program::log_to_tracing;
use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/process.rs"));

/// Bytes of `struct event` of `bpf/process.h`.
const EVENT: usize = 120;
/// What the programs need.
const CAPABILITIES: &str = "CAP_BPF,CAP_PERFMON,CAP_NET_ADMIN";
/// The inodes of the namespaces that the kernel starts with (`linux/proc_ns.h`).
const INITIAL_NAMESPACES: [(&str, &str, &str); 2] =
    [("pid", "PID", "pid:[4026531836]"), ("cgroup", "cgroup", "cgroup:[4026531835]")];

/// A process at the time of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// When it started, in nanoseconds since boot: no other process has the same start and number.
    pub start: u64,
    /// Its number in the initial PID namespace.
    pub id: u32,
    /// Changes when it executes another program.
    pub exec: u32,
    /// The kernel's number of its control group of version 2: the inode of the folder.
    pub cgroup: u64,
    /// Its effective user.
    pub uid: u32,
    /// Its name (`comm`).
    pub name: String,
}

/// What an [`Event`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A process, with its arguments, before its first other event.
    Process,
    /// The process made the socket.
    Socket,
    /// Packets of these ends are of this socket.
    Flow,
    /// The process accepted the socket, or uses it instead of another one.
    Use,
    /// The last descriptor of the socket is closed.
    Release,
    /// The process has a child, which has its sockets, too.
    Fork,
    /// The process has a descriptor of the socket.
    Holder,
}

/// An address and a port. IPv4 addresses are mapped (RFC 4291 section 2.5.5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// The address.
    pub address: u128,
    /// The port.
    pub port: u16,
}

/// Something that happened to a socket or a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// When, in nanoseconds of CLOCK_TAI.
    pub time: u64,
    /// The cookie of the socket (`SO_COOKIE`).
    pub socket: u64,
    /// The cookie of the listening socket that a connection came from, all bits set if that is not known; 0 for what is
    /// no new connection.
    pub parent: u64,
    /// The cookie of the network namespace (`SO_NETNS_COOKIE`).
    pub netns: u64,
    /// The process; of [`EventKind::Flow`] and [`EventKind::Release`] none.
    pub process: Process,
    /// The number of the protocol.
    pub protocol: u8,
    /// The end of the socket.
    pub local: End,
    /// The other one.
    pub remote: End,
    /// Of [`EventKind::Process`]: the start of the command line, a zero after each argument.
    pub arguments: Vec<u8>,
}

/// The programs, which are detached on drop, and by the kernel when the process dies.
#[derive(Debug)]
pub struct SocketEvents {
    _links: Vec<Link>,
    ring: RingBuffer<'static>,
    ring_map: MapHandle,
    flows: MapHandle,
    counts: MappedArray,
    received: Arc<Mutex<Vec<Event>>>,
}

impl SocketEvents {
    /// Attaches the programs to the root of the control groups of version 2, for all sockets of the host.
    ///
    /// # Errors
    /// [`Error::Privilege`]; [`Error::Invalid`] without the initial namespaces of PIDs and control groups, or without
    /// control groups of version 2; [`Error::System`].
    pub fn open() -> Result<(Self, Holders)> {
        log_to_tracing();
        for (file, name, initial) in INITIAL_NAMESPACES {
            let own = fs::read_link(format!("/proc/self/ns/{file}"));
            if own.is_ok_and(|own| own.as_os_str() != initial) {
                return Err(Error::Invalid(format!(
                    "cannot {ACTION}: this process is in a {name} namespace of its own; start it in that of the host"
                )));
            }
        }
        let root = cgroup_root().ok_or_else(|| {
            Error::Invalid(format!(
                "cannot {ACTION}: no control groups of version 2 are mounted; `ip netns exec` hides them, \
                 `mount -t cgroup2 none DIRECTORY` mounts them"
            ))
        })?;
        let root = fs::File::open(&root).map_err(|error| Error::system(ACTION, error))?;
        let mut storage = MaybeUninit::uninit();
        let mut open =
            skeleton::ProcessSkelBuilder::default().open(&mut storage).map_err(failed)?;
        // Linux 6.3.
        let has_send = Btf::from_vmlinux().is_ok_and(|kernel| {
            kernel.type_by_name::<Typedef<'_>>("btf_trace_sock_send_length").is_some()
        });
        open.progs.linerate_send.set_autoload(has_send);
        open.progs.linerate_receive.set_autoload(has_send);
        let skeleton = open.load().map_err(failed)?;
        let programs = &skeleton.progs;
        let mut links = Vec::new();
        for program in [
            &programs.linerate_ingress,
            &programs.linerate_egress,
            &programs.linerate_release,
            &programs.linerate_peer4,
            &programs.linerate_peer6,
            &programs.linerate_create,
        ] {
            links.push(program.attach_cgroup(root.as_raw_fd()).map_err(failed)?);
        }
        links.push(programs.linerate_fork.attach().map_err(failed)?);
        links.push(programs.linerate_state.attach().map_err(failed)?);
        links.push(programs.linerate_exec.attach().map_err(failed)?);
        if has_send {
            links.push(programs.linerate_receive.attach().map_err(failed)?);
            links.push(programs.linerate_send.attach().map_err(failed)?);
        }
        let handle = |map: &libbpf_rs::MapMut<'_>| MapHandle::try_from(map).map_err(failed);
        let ring_map = handle(&skeleton.maps.events)?;
        let received = Arc::new(Mutex::new(Vec::new()));
        let take = Arc::clone(&received);
        let mut builder = RingBufferBuilder::new();
        let add = builder.add(&ring_map, move |bytes| {
            take.lock().unwrap_or_else(PoisonError::into_inner).extend(event(bytes));
            0
        });
        add.map_err(failed)?;
        let holders = Holders(programs.linerate_holders.attach().map_err(failed)?);
        let events = Self {
            ring: builder.build().map_err(failed)?,
            flows: handle(&skeleton.maps.flows)?,
            counts: MappedArray::new(skeleton.maps.counts.as_fd())?,
            _links: links,
            ring_map,
            received,
        };
        Ok((events, holders))
    }

    /// The events since the last call, in order.
    pub fn take(&mut self) -> Vec<Event> {
        // Only a callback could fail.
        let _ = self.ring.consume();
        std::mem::take(&mut *self.received.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many events were lost so far, because nobody took the earlier ones.
    pub fn lost(&self) -> u64 {
        self.counts.atomic::<AtomicU64>(0, 0).load(Relaxed)
    }

    /// How often a flow was not reported, because there were too many new ones in that second.
    pub fn limited(&self) -> u64 {
        self.counts.atomic::<AtomicU64>(1, 0).load(Relaxed)
    }

    /// Makes the programs report flows again that they have reported.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn forget_flows(&self) -> Result<()> {
        let mut keys = Vec::new();
        batch::for_each(self.flows.as_fd(), |key, _| keys.extend_from_slice(key))?;
        batch::delete(self.flows.as_fd(), &keys).map(drop)
    }
}

/// An iterator over all descriptors, in the kernel.
#[derive(Debug)]
pub struct Holders(Link);

impl Holders {
    /// Each descriptor of a TCP or UDP socket that a process has now ([`EventKind::Holder`]); a connection with its
    /// ends. Sockets that are older than the programs have events from the first call on.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn list(&self) -> Result<Vec<Event>> {
        let mut bytes = Vec::new();
        let mut all = Iter::new(&self.0).map_err(failed)?;
        all.read_to_end(&mut bytes).map_err(|error| Error::system(ACTION, error))?;
        Ok(bytes.chunks_exact(EVENT).filter_map(event).collect())
    }
}

impl AsFd for SocketEvents {
    /// Readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring_map.as_fd()
    }
}

const ACTION: &str = "see which processes have sockets";

fn failed(error: libbpf_rs::Error) -> Error {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied if privilege::lacks(CAPABILITIES) => {
            Error::Privilege { action: ACTION.to_owned(), capability: CAPABILITIES }
        }
        // libbpf-rs has the cause only in its text.
        _ => Error::system(ACTION, std::io::Error::other(format!("{error:#}"))),
    }
}

/// Where the control groups of version 2 are mounted.
pub fn cgroup_root() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        // proc(5): number, parent, device, root, mount point, options, ..., `-`, type.
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let is_root = kind.starts_with("cgroup2 ") && place.next() == Some("/");
        let path = PathBuf::from(place.next()?);
        // Something else may be mounted over it.
        (is_root && path.join("cgroup.controllers").exists()).then_some(path)
    })
}

/// The event in a record of the ring buffer or the iterator.
fn event(record: &[u8]) -> Option<Event> {
    let (head, arguments) = record.split_at_checked(EVENT)?;
    let eight = |at: usize| head[at..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
    let four = |at: usize| head[at..].first_chunk().copied().map_or(0, u32::from_ne_bytes);
    let two = |at: usize| head[at..].first_chunk().copied().map_or(0, u16::from_ne_bytes);
    let address = |at: usize| head[at..].first_chunk().copied().map_or(0, u128::from_be_bytes);
    let name = head[60..76].split(|byte| *byte == 0).next().unwrap_or_default();
    let kind = match head[80] {
        0 => EventKind::Process,
        1 => EventKind::Socket,
        2 => EventKind::Flow,
        3 => EventKind::Use,
        4 => EventKind::Release,
        5 => EventKind::Fork,
        6 => EventKind::Holder,
        _ => return None,
    };
    Some(Event {
        kind,
        time: eight(0),
        socket: eight(8),
        parent: eight(16),
        netns: eight(24),
        process: Process {
            start: eight(32),
            id: four(40),
            exec: four(44),
            cgroup: eight(48),
            uid: four(56),
            name: String::from_utf8_lossy(name).into_owned(),
        },
        protocol: head[81],
        local: End { address: address(88), port: two(82) },
        remote: End { address: address(104), port: two(84) },
        arguments: arguments.get(..usize::from(two(86))).unwrap_or_default().to_vec(),
    })
}

#[cfg(test)]
mod tests;
