//! [`Error`]: what can go wrong in this crate, each with the remedy.

use std::fmt;
use std::io;

use crate::packet::Allocation;
use crate::region::Pages;
use crate::steer::{Attach, Holder};

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What failed, on what, why, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call or a file access failed for a reason that has no variant of its own.
    #[error("cannot {action}: {source}")]
    System {
        /// What was being done, on which interface or file; follows "cannot".
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },

    /// The process may not do this.
    #[error("cannot {action}: needs {}; {}", Needed(capability), Grant(capability))]
    Privilege {
        /// What was being done; follows "cannot".
        action: String,
        /// The missing capability, for instance `CAP_NET_RAW`; several with commas between them.
        capability: &'static str,
    },

    /// No interface has this name in this network namespace.
    #[error("no interface named {0} in this network namespace; `ip link` lists them")]
    NoInterface(String),

    /// The interface is down. What it delivered before is still in the ring, and the ring goes on
    /// when the interface comes up again.
    #[error("interface {0} is down; `ip link set {0} up` brings it up")]
    InterfaceDown(String),

    /// The interface was removed. The ring will never receive again.
    #[error("interface {0} is gone: it was removed while in use")]
    InterfaceGone(String),

    /// The pool of reserved huge pages is too small.
    #[error(
        "{needed} free huge pages of {} needed, {available} available; reserve them with: {command}",
        Size(*page_size as u64)
    )]
    HugePages {
        /// Bytes of one huge page.
        page_size: usize,
        /// Pages that the region needs.
        needed: u64,
        /// Pages free and not promised to another mapping.
        available: u64,
        /// The command, to run as root, that reserves enough.
        command: String,
    },

    /// This kernel or machine cannot give the kind of pages asked for.
    #[error("cannot get {} in {pages} pages: {why}", Size(*len as u64))]
    Pages {
        /// What was asked for.
        pages: Pages,
        /// Bytes asked for.
        len: usize,
        /// The reason.
        why: String,
    },

    /// The kernel does not let programs choose what a packet ring is made of.
    #[error(
        "this kernel does not let programs choose the memory of packet rings, {0} or other: that takes the \
         patches in Linerate's kernel/ (docs/kernel.md)"
    )]
    RingMemory(Allocation),

    /// The memory could not be locked.
    #[error(
        "cannot lock {} of memory: {source}; RLIMIT_MEMLOCK is {}: raise it with `ulimit -l {}`, \
         or grant CAP_IPC_LOCK",
        Size(*len as u64), Limit(*limit), len.div_ceil(1024)
    )]
    MemoryLock {
        /// Bytes to lock.
        len: usize,
        /// The soft limit in bytes, `None` when unlimited.
        limit: Option<u64>,
        /// The kernel's answer.
        source: io::Error,
    },

    /// The kernel's verifier refused a program; a filter can then run in user space instead.
    #[error("cannot {program}: the kernel's verifier refuses it ({source}): {why}")]
    Verifier {
        /// What was being loaded; follows "cannot".
        program: String,
        /// The last line of the verifier's log.
        why: String,
        /// The kernel's answer.
        source: io::Error,
    },

    /// An XDP program of somebody else is on the interface. It is never replaced.
    #[error("{}", Occupied(self))]
    ForeignProgram {
        /// The interface.
        interface: String,
        /// The program's id, as `bpftool prog show id` takes it.
        id: u32,
        /// The program's name.
        name: String,
        /// Where it runs.
        attach: Attach,
        /// It is of Linerate: a capture's, a receiver's, an uplink's or the accelerator's.
        ours: bool,
        /// It is the root of a tee.
        tee: bool,
        /// What keeps it there.
        holder: Holder,
    },

    /// All places for captures on one interface are taken.
    #[error(
        "interface {interface} carries {slots} captures already, as many as it can; stop one of them"
    )]
    NoSlot {
        /// The interface.
        interface: String,
        /// How many there can be.
        slots: usize,
    },

    /// The kernel would refuse a packet ring with EINVAL, for breaking this rule.
    #[error("the kernel would refuse this ring: {0}")]
    Rule(#[from] crate::packet::Rule),

    /// A frame that an interface cannot send for its length.
    #[error(
        "a frame of {len} bytes cannot be sent on interface {interface}: {least} to {most} can"
    )]
    FrameLength {
        /// The interface.
        interface: String,
        /// Bytes of the frame.
        len: usize,
        /// Shortest frame in bytes.
        least: usize,
        /// Longest frame in bytes, with a VLAN tag.
        most: usize,
    },

    /// A request that makes no sense, found before the kernel was asked.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// The last system call's `errno`, said to have happened while doing `action`.
    pub(crate) fn last_os(action: impl Into<String>) -> Self {
        Self::system(action, io::Error::last_os_error())
    }

    /// `source`, said to have happened while doing `action`.
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        Self::System { action: action.into(), source }
    }
}

impl From<linerate_net::Error> for Error {
    fn from(error: linerate_net::Error) -> Self {
        match error {
            linerate_net::Error::NoInterface(name) => Self::NoInterface(name),
            linerate_net::Error::InterfaceGone(name) => Self::InterfaceGone(name),
            linerate_net::Error::Privilege { action, capability } => {
                Self::Privilege { action, capability }
            }
            linerate_net::Error::System { action, source } => Self::System { action, source },
            other => Self::Invalid(other.to_string()),
        }
    }
}

/// Who has the interface, and how to get at its frames all the same.
struct Occupied<'a>(&'a Error);

impl fmt::Display for Occupied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error::ForeignProgram { interface, id, name, attach, ours, tee, holder } = self.0
        else {
            return Ok(());
        };
        let by = holder.names();
        if *tee {
            return write!(
                f,
                "another linerate capture has a tee on interface {interface} ({by}), and frames \
                 cannot be taken beside a tee; use --source tee here as well, or end that capture"
            );
        }
        if *ours {
            return write!(
                f,
                "another linerate takes the frames of interface {interface} by XDP ({by}); end it, or, if \
                 it is a capture, start both with --source tee"
            );
        }
        write!(
            f,
            "interface {interface} has an XDP program already: id {id}, name \"{name}\" ({attach}); "
        )?;
        let off = match attach {
            Attach::Native => "xdpdrv",
            Attach::Generic => "xdpgeneric",
        };
        match holder {
            Holder::Processes(_) => write!(f, "end who holds it by a BPF link: {by}"),
            Holder::Link(link) => write!(
                f,
                "it is held by BPF link {link}, which is pinned: `bpftool --bpffs link show id {link}` \
                 names the file to remove"
            ),
            Holder::Interface => {
                write!(f, "detach it with `ip link set dev {interface} {off} off`")
            }
            Holder::Unknown => f.write_str(
                "end the program that attached it; as root (with CAP_SYS_ADMIN) this says which",
            ),
        }
    }
}

/// What sources in XDP need.
pub(crate) const FOR_XDP: &str = "CAP_NET_RAW,CAP_NET_ADMIN,CAP_BPF,CAP_PERFMON";

/// One capability, or several.
struct Needed(&'static str);

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.0.contains(',') { "capabilities" } else { "capability" };
        write!(f, "the {word} {}", self.0.replace(',', ", "))
    }
}

/// How to grant a capability.
struct Grant(&'static str);

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // setcap(8) replaces what a program had: it takes all of them at once.
        let all = match self.0 {
            alone @ ("CAP_NET_RAW" | "CAP_NET_ADMIN") => alone.to_owned(),
            bpf if bpf.split(',').all(|one| FOR_XDP.contains(one)) => FOR_XDP.to_owned(),
            more => format!("{FOR_XDP},{more}"),
        };
        let (it, all) = (if all.contains(',') { "them" } else { "it" }, all.to_ascii_lowercase());
        write!(f, "run as root, or grant {it} with `sudo setcap {all}+ep PROGRAM`")
    }
}

/// Bytes in the largest binary unit that divides them.
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.iter().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{} {name}", self.0 / unit),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// A resource limit in bytes.
struct Limit(Option<u64>);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{}", Size(bytes)),
            None => f.write_str("unlimited"),
        }
    }
}
