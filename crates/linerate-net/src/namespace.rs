//! [`Namespace`]: network namespaces (`ip netns`): that of a thread, that of a link's peer, and running code
//! inside.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::connection::Connection;
use crate::error::Context;
use crate::ioctl::socket_option;
use crate::netlink::{attr_u32, attribute, put_attr};
use crate::{Error, Result, privilege};

/// Where `ip netns` mounts named namespaces.
pub const NAMED: &str = "/run/netns";
/// That of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

// Attributes of `linux/net_namespace.h`.
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

/// A network namespace that can be entered.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    inode: u64,
    path: PathBuf,
}

impl Namespace {
    /// That of the calling thread.
    ///
    /// # Errors
    /// [`crate::Error::System`] where `/proc` is not mounted.
    pub fn current() -> Result<Self> {
        Self::open(OWN.into()).context(|| format!("open {OWN}"))
    }

    /// The one of this name (`ip netns`), or that of the process with this number.
    ///
    /// # Errors
    /// [`crate::Error::System`] where there is neither.
    pub fn find(text: &str) -> Result<Self> {
        let named = Path::new(NAMED).join(text);
        let path = match text.parse::<u32>() {
            Ok(process) if !named.exists() => format!("/proc/{process}/ns/net").into(),
            _ => named,
        };
        let action = || {
            format!(
                "open the network namespace {} (`ip netns` lists those with a name)",
                path.display()
            )
        };
        Self::open(path.clone()).context(action)
    }

    /// The one whose file has this inode. `None` when no name and no process that can be seen leads to it.
    pub fn by_inode(inode: u64) -> Option<Self> {
        all().find(|namespace| namespace.inode == inode)
    }

    /// The inode of its file, which no two namespaces that exist share.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The name that `ip netns` has for it.
    pub fn name(&self) -> Option<String> {
        name_of(self.inode)
    }

    /// The file that it was found by: a name of `ip netns`, or that of a process.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the calling thread into it, unless it is there already.
    ///
    /// # Errors
    /// [`crate::Error::Privilege`] without CAP_SYS_ADMIN.
    pub fn enter(&self) -> Result<()> {
        if Self::current().is_ok_and(|own| own.inode == self.inode) {
            return Ok(());
        }
        let entered =
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network));
        let action = || format!("enter the network namespace {}", self.path.display());
        entered.map_err(|errno| match errno {
            Errno::PERM if privilege::lacks("CAP_SYS_ADMIN") => {
                Error::Privilege { action: action(), capability: "CAP_SYS_ADMIN" }
            }
            _ => Error::System { action: action(), source: errno.into() },
        })
    }

    /// Runs `work` on a thread inside. A panic of `work` goes on in the caller.
    ///
    /// # Errors
    /// As [`Namespace::enter`].
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter()?;
                Ok(work())
            });
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn open(path: PathBuf) -> io::Result<Self> {
        let file = File::open(&path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { file, inode, path })
    }
}

/// The number that the namespace of the calling thread shares with no other of this boot, unlike an inode, which a later
/// namespace may have (`SO_NETNS_COOKIE`). `None` before Linux 5.14.
pub fn cookie() -> Option<u64> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    let mut value = [0; 8];
    socket_option(&socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut value).ok()?;
    Some(u64::from_ne_bytes(value))
}

/// The name that `ip netns` has for the namespace whose file has this inode.
pub fn name_of(inode: u64) -> Option<String> {
    let mut entries = fs::read_dir(NAMED).ok()?.flatten();
    let entry =
        entries.find(|entry| fs::metadata(entry.path()).is_ok_and(|found| found.ino() == inode))?;
    Some(entry.file_name().to_string_lossy().into_owned())
}

/// Each namespace that a name or a process leads to.
fn all() -> impl Iterator<Item = Namespace> {
    let named = fs::read_dir(NAMED).into_iter().flatten().flatten();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_process = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let digits = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        digits.then(|| entry.path().join("ns/net"))
    };
    let mut seen = Vec::new();
    named
        .map(|entry| entry.path())
        .chain(processes.filter_map(of_process))
        .filter_map(|path| Namespace::open(path).ok())
        .filter(move |namespace| {
            let new = !seen.contains(&namespace.inode);
            seen.push(namespace.inode);
            new
        })
}

impl Connection {
    /// The namespace that has the id `nsid` in the namespace of this connection
    /// ([`crate::link::Link::link_netnsid`]). `None` when no name and no process that can be seen leads to it.
    pub fn namespace(&self, nsid: i32) -> Option<Namespace> {
        all().find(|namespace| self.nsid(&namespace.file).is_ok_and(|found| found == nsid))
    }

    /// The id of a namespace in that of this connection; -1 when it has none.
    fn nsid(&self, file: &File) -> io::Result<i32> {
        let mut body = vec![0; 4]; // struct rtgenmsg, padded
        put_attr(&mut body, NETNSA_FD, &file.as_raw_fd().to_ne_bytes());
        self.get(libc::RTM_GETNSID, &body, |answer| {
            let id = attribute(answer.get(4..)?, NETNSA_NSID).and_then(attr_u32);
            Some(id.map_or(-1, u32::cast_signed))
        })
    }
}
