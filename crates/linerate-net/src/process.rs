//! [`Process`]: the holders of a socket or a BPF link, as far as `/proc` shows them to this process.

use std::fmt;
use std::fs;
use std::path::Path;

/// A process of this PID namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub id: u32,
    /// Its name (`comm`), up to 15 characters.
    pub name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.id)
    }
}

impl Process {
    /// The process of this ID, and its name now.
    pub fn by_id(id: u32) -> Self {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        Self { id, name: name.trim_end().to_owned() }
    }
}

/// A file descriptor of a process.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// The folder of the process in `/proc`.
    pub process: &'a Path,
    /// The descriptor's number.
    pub number: &'a str,
    /// What it refers to, as `readlink` shows it: `socket:[84211]`.
    pub target: &'a str,
}

impl Descriptor<'_> {
    /// The inode of the socket that it refers to; `None` if it is not a socket.
    pub fn socket_inode(&self) -> Option<u64> {
        self.target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    }
}

/// For each of `count` things, the processes that hold it, this one included. `which` says which of the
/// things a descriptor refers to. Scans `/proc` once.
pub fn holders(
    count: usize,
    which: impl Fn(&Descriptor<'_>) -> Option<usize>,
) -> Vec<Vec<Process>> {
    let mut found = vec![Vec::<Process>::new(); count];
    if count == 0 {
        return found;
    }
    for folder in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = folder.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let process = folder.path();
        // Without privilege the descriptors of other users stay hidden; some processes have ended by now.
        for descriptor in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let target = fs::read_link(descriptor.path()).unwrap_or_default();
            let number = descriptor.file_name();
            let (Some(number), Some(target)) = (number.to_str(), target.to_str()) else { continue };
            if let Some(thing) = which(&Descriptor { process: &process, number, target })
                && found[thing].last().is_none_or(|last| last.id != id)
            {
                found[thing].push(Process::by_id(id));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn who_holds_a_socket_is_found_once() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let _second = socket.try_clone().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let inode = fs::metadata(format!("/proc/self/fd/{fd}")).unwrap().ino();
        let found = holders(2, |one| (one.socket_inode() == Some(inode)).then_some(1));
        assert!(found[0].is_empty());
        let [holder] = &found[1][..] else { panic!("{found:?}") };
        assert_eq!(holder.id, std::process::id());
        assert!(holder.to_string().ends_with(&format!(" (process {})", holder.id)));
    }
}
