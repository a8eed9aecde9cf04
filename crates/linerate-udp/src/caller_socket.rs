//! What a caller's socket asks of the kernel for each message, and `xdp` cannot do; and its interface.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use linerate_bpf::link::has_cgroup_receive_program;
use linerate_net::netlink::{Protocol, Socket, attribute, bytes_at};

use crate::options::Options;
use crate::{interface, socket};

/// `XFRM_MSG_GETSPDINFO`, and `XFRMA_SPD_INFO` of its answer.
const GET_SPD_INFO: u16 = 0x25;
const SPD_INFO: u16 = 1;
/// `SOCK_DIAG_BY_FAMILY`; bytes of `struct inet_diag_msg` and where its inode is; `INET_DIAG_CGROUP_ID`.
const BY_FAMILY: u16 = 20;
const DIAG_MESSAGE: usize = 72;
const INODE: usize = 68;
const CGROUP_ID: u16 = 21;
/// The number of the topmost control group.
const ROOT_GROUP: u64 = 1;

/// Why `xdp` does not receive for a caller's socket: the kernel applies something of it to each message.
pub(crate) fn xdp_refusal(fd: BorrowedFd<'_>) -> Option<String> {
    if let Some(option) = socket::unapplied_option(fd) {
        return Some(format!("the socket has {option}, which xdp cannot apply"));
    }
    match socket_policies() {
        Ok(0) => {}
        Ok(_) => {
            return Some(
                "sockets of this namespace have IPsec policies, and this may be one".to_owned(),
            );
        }
        // The kernel has no IPsec.
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EPROTONOSUPPORT | libc::ENOPROTOOPT)) => {}
        Err(error) => return Some(format!("whether sockets have IPsec policies: {error}")),
    }
    match has_group_filter(fd) {
        Ok(true) => Some(
            "the control group of the socket has BPF filters, which xdp cannot apply".to_owned(),
        ),
        Ok(false) => None,
        Err(error) => Some(format!("the control group of the socket is not found: {error}")),
    }
}

/// IPsec policies that sockets of the namespace have for what they receive.
fn socket_policies() -> io::Result<u32> {
    let mut found = 0;
    Socket::open(Protocol::Xfrm)?.request(GET_SPD_INFO, 0, &[0; 4], |message| {
        let info = message.body.get(4..).and_then(|own| attribute(own, SPD_INFO));
        // `inscnt` of `struct xfrmu_spdinfo`.
        found = info.and_then(|info| bytes_at(info, 12)).map_or(0, u32::from_ne_bytes);
    })?;
    Ok(found)
}

/// Whether BPF programs of a socket's control group, or of one above it, judge or change what it receives.
fn has_group_filter(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let id = group_of(fd)?;
    let Some(mount) = mount.and_then(|line| line.split(' ').nth(1)) else {
        return match id {
            ROOT_GROUP => Ok(false),
            _ => Err(io::Error::other("no cgroup2 file system is mounted here")),
        };
    };
    let group = find(Path::new(mount), id)?;
    let group =
        group.ok_or_else(|| io::Error::other(format!("none below {mount} has number {id}")))?;
    has_cgroup_receive_program(File::open(group)?.as_fd()).map_err(io::Error::other)
}

/// The number of a socket's control group of version 2.
fn group_of(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let inode = File::from(fd.try_clone_to_owned()?).metadata()?.ino() as u32;
    let bound = socket::local_address(fd)?;
    let family = if bound.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // `struct inet_diag_req_v2` with all states, and the port.
    let mut request = [0; 56];
    request[..8].copy_from_slice(&[
        family as u8,
        libc::IPPROTO_UDP as u8,
        0,
        0,
        255,
        255,
        255,
        255,
    ]);
    request[8..10].copy_from_slice(&bound.port().to_be_bytes());
    let mut found = None;
    let socket = Socket::open(Protocol::SockDiag)?;
    // Others may come and go meanwhile.
    let _ = socket.dump(BY_FAMILY, &request, |message| {
        if bytes_at(message.body, INODE).map(u32::from_ne_bytes) == Some(inode) {
            let attributes = message.body.get(DIAG_MESSAGE..).unwrap_or_default();
            let id = attribute(attributes, CGROUP_ID).and_then(|id| bytes_at(id, 0));
            found = id.map(u64::from_ne_bytes);
        }
    })?;
    found.ok_or_else(|| io::Error::other("the kernel does not report it (Linux 5.9 does)"))
}

/// The control group with a number, which is that of its folder.
fn find(folder: &Path, id: u64) -> io::Result<Option<PathBuf>> {
    if folder.metadata()?.ino() == id {
        return Ok(Some(folder.to_owned()));
    }
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // Groups come and go.
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(Some(found)) = find(&entry.path(), id)
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The interface that `options` mean.
pub(crate) fn interface_of(options: &Options) -> Option<String> {
    let named = options.interface.clone();
    // That of a caller's socket.
    let bound = || socket::bound_interface(options.socket.as_ref()?.as_fd()).ok();
    let bound = || interface::name(bound()?);
    named
        .or_else(bound)
        .or_else(|| options.groups.iter().find_map(|group| group.interface.clone()))
        .or_else(|| match options.bind.ip() {
            ip if ip.is_unspecified() || ip.is_multicast() => None,
            ip => interface::of_address(ip),
        })
}
