//! Other network namespaces: finding the one that a link leads into, and working in it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::netlink::{Channel, attribute, put, word};

/// Attributes of `linux/net_namespace.h`.
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

/// A network namespace that can be entered.
#[derive(Debug)]
pub(super) struct Space {
    file: File,
    /// The number of its file, which no two that exist share.
    pub(super) number: u64,
    /// What `ip netns` calls it, or the process that it was found by.
    path: PathBuf,
}

impl Space {
    /// The one that the kernel calls `id` in the namespace of `channel`. `None` when no name and no process
    /// that can be seen leads to it.
    pub(super) fn identified(channel: &Channel, id: i32) -> Option<Self> {
        Self::all().find(|space| identify(channel, &space.file).is_ok_and(|found| found == id))
    }

    /// The one whose file has this number.
    pub(super) fn numbered(number: u64) -> Option<Self> {
        Self::all().find(|space| space.number == number)
    }

    /// That of the calling thread.
    pub(super) fn own() -> io::Result<Self> {
        Self::open("/proc/thread-self/ns/net".into())
    }

    /// Runs `work` on a thread inside.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(work())
            });
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// How a command line is begun that is to run inside.
    pub(super) fn prefix(&self) -> String {
        match (self.path.starts_with("/run/netns"), self.path.file_name()) {
            (true, Some(name)) => format!("ip netns exec {} ", name.display()),
            _ => format!("nsenter --net={} ", self.path.display()),
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        let named = fs::read_dir("/run/netns").into_iter().flatten().flatten();
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
            .filter_map(|path| Self::open(path).ok())
            .filter(move |space| {
                let new = !seen.contains(&space.number);
                seen.push(space.number);
                new
            })
    }

    fn open(path: PathBuf) -> io::Result<Self> {
        let file = File::open(&path)?;
        let number = file.metadata()?.ino();
        Ok(Self { file, number, path })
    }
}

/// What the kernel calls a namespace in that of `channel`; -1 when it has no name for it.
fn identify(channel: &Channel, file: &File) -> io::Result<i32> {
    let mut body = vec![0; 4]; // struct rtgenmsg, padded
    put(&mut body, NETNSA_FD, &file.as_raw_fd().to_ne_bytes());
    let mut found = None;
    channel.ask(libc::RTM_GETNSID, false, &body, |message| {
        let own = message.body.get(4..).unwrap_or_default();
        found = attribute(own, NETNSA_NSID).and_then(word);
    })?;
    Ok(found.map_or(-1, u32::cast_signed))
}
