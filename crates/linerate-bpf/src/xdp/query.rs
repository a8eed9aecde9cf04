//! Which XDP program an interface has, and what keeps it attached.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapHandle, Program};
use linerate_net::{Interface, privilege, process};

use super::attach::MAX_HELD;
use super::mode::AttachMode;
use super::owner::Owner;
use crate::program::PREFIX;
use crate::sys::{check, options};
use crate::{Error, Result};

/// Name of the root program of a tee; `TEE_ROOT` in `bpf/tee.h`.
pub(crate) const TEE: &str = "linerate_tee";

/// An XDP program that is attached to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedProgram {
    /// Its id, as `bpftool prog` shows.
    pub id: u32,
    /// Its name, up to 15 characters; empty where this process may not know it, see
    /// [`AttachedProgram::lacks_privilege`].
    pub name: String,
    /// Where it runs.
    pub mode: AttachMode,
}

impl AttachedProgram {
    /// Whether it belongs to Linerate, in this process or another: to a capture, a receiver, an uplink or
    /// the accelerator.
    pub fn is_linerate(&self) -> bool {
        self.name.starts_with(PREFIX)
    }

    /// Whether it is the root of a tee, which passes every frame on.
    pub fn is_tee(&self) -> bool {
        self.name == TEE
    }

    /// Whether this process lacks the privilege to look at it (CAP_SYS_ADMIN).
    pub fn lacks_privilege(&self) -> bool {
        program(self.id).is_err_and(|error| error.kind() == libbpf_rs::ErrorKind::PermissionDenied)
    }

    /// What keeps it attached. Scans `/proc`: for messages, not for loops.
    pub fn owner(&self) -> Owner {
        let wanted = format!("prog_id:\t{}", self.id);
        let mut found = process::holders(1, |descriptor| {
            // Only links are worth a read.
            let target = descriptor.target;
            let link = target.starts_with("anon_inode:bpf") && target.ends_with("link");
            let path = descriptor.process.join("fdinfo").join(descriptor.number);
            let info = link.then(|| fs::read_to_string(path).unwrap_or_default())?;
            let has = |wanted: &str| info.lines().any(|line| line == wanted);
            (has("link_type:\txdp") && has(&wanted)).then_some(0)
        });
        let processes = found.remove(0);
        if !processes.is_empty() {
            return Owner::Processes(processes);
        }
        match link_of_program(self.id) {
            Ok(Some((_, id))) => Owner::PinnedLink(id),
            Ok(None) => Owner::Interface,
            Err(_) => Owner::Unknown,
        }
    }

    /// The error for attaching another program to this interface.
    pub(crate) fn busy_error(&self, interface: &str) -> Error {
        Error::ForeignProgram {
            interface: interface.to_owned(),
            id: self.id,
            name: self.name.clone(),
            mode: self.mode,
            tee: self.is_tee(),
            ours: self.is_linerate(),
            owner: self.owner(),
        }
    }
}

/// The link that holds XDP program `program` on an interface, and its id; `None` where there is none.
pub(crate) fn link_of_program(program: u32) -> Result<Option<(OwnedFd, u32)>> {
    let mut id = 0;
    loop {
        // SAFETY: the call writes the next id to `id`.
        if unsafe { libbpf_sys::bpf_link_get_next_id(id, &mut id) } < 0 {
            return match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
                error
                    if error.raw_os_error() == Some(libc::EPERM)
                        && privilege::lacks("CAP_SYS_ADMIN") =>
                {
                    Err(Error::Privilege {
                        action: "join the captures of other processes on an interface".into(),
                        capability: "CAP_SYS_ADMIN",
                    })
                }
                error => Err(Error::bpf("list BPF links", error.raw_os_error().unwrap_or(0))),
            };
        }
        // SAFETY: no memory involved.
        let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
        if fd < 0 {
            // Gone between the two calls, or hidden from this process.
            continue;
        }
        // SAFETY: a new descriptor, which nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut info = libbpf_sys::bpf_link_info::default();
        let mut len = size_of_val(&info) as u32;
        // SAFETY: `info` is writable and `len` its size.
        let answer =
            unsafe { libbpf_sys::bpf_link_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut len) };
        if answer == 0 && info.type_ == libbpf_sys::BPF_LINK_TYPE_XDP && info.prog_id == program {
            return Ok(Some((fd, id)));
        }
    }
}

/// The XDP program on the interface of this index in this network namespace, if any.
pub(crate) fn attached_to(ifindex: u32) -> Result<Option<AttachedProgram>> {
    let mut query = options!(bpf_xdp_query_opts {});
    // SAFETY: `query` is writable and carries its size.
    let answer = unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &mut query) };
    check(answer, format!("ask interface {ifindex} for its XDP program"))?;
    let (id, mode) = match (query.drv_prog_id, query.skb_prog_id, query.hw_prog_id) {
        (0, 0, 0) => return Ok(None),
        (0, 0, hardware) => (hardware, AttachMode::Native),
        (0, generic, _) => (generic, AttachMode::Generic),
        (native, _, _) => (native, AttachMode::Native),
    };
    let name = program(id).map(|fd| program_name(fd.as_fd())).unwrap_or_default();
    Ok(Some(AttachedProgram { id, name, mode }))
}

/// The XDP program on an interface, if there is one. Needs no privilege.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::System`].
pub fn attached(interface: &str) -> Result<Option<AttachedProgram>> {
    attached_to(Interface::open(interface)?.index())
}

/// Whether an XDP program can be attached to the interface, as far as other programs are concerned.
///
/// # Errors
/// [`Error::ForeignProgram`] where there is one; as [`attached`].
pub fn require_free(interface: &str) -> Result<()> {
    let end = Instant::now() + MAX_HELD;
    while let Some(found) = attached(interface)? {
        if found.is_tee() || Instant::now() >= end {
            return Err(found.busy_error(interface));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The loaded program with this id.
pub(crate) fn program(id: u32) -> libbpf_rs::Result<OwnedFd> {
    Program::fd_from_id(id)
}

/// The maps of a loaded program that have these names and `entries` entries.
///
/// # Errors
/// [`Error::System`] where the kernel does not tell.
pub(crate) fn maps_of_program<const N: usize>(
    program: BorrowedFd<'_>,
    names: [&str; N],
    entries: u32,
) -> Result<[Option<OwnedFd>; N]> {
    let failed = |source| Error::System { action: "open a map of a BPF program".into(), source };
    let mut found = [const { None }; N];
    for id in map_ids(program)? {
        let map = MapHandle::from_map_id(id)
            .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
        if map.max_entries() == entries
            && let Some(place) = names.iter().position(|wanted| map.name() == *wanted)
        {
            found[place] = Some(map.as_fd().try_clone_to_owned().map_err(failed)?);
        }
    }
    Ok(found)
}

/// The ids of the maps that a loaded program uses.
///
/// # Errors
/// [`Error::System`] where the kernel does not tell.
pub fn map_ids(program: BorrowedFd<'_>) -> Result<Vec<u32>> {
    // `MAX_USED_MAPS` of the kernel.
    let mut ids = vec![0; 64];
    let wanted = libbpf_sys::bpf_prog_info {
        nr_map_ids: ids.len() as u32,
        map_ids: ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let Some(info) = program_info(program, wanted) else {
        let source = std::io::Error::last_os_error();
        return Err(Error::System { action: "list the maps of a BPF program".to_owned(), source });
    };
    ids.truncate(info.nr_map_ids as usize);
    Ok(ids)
}

/// The kernel's information about a loaded program; `info` says where the requested arrays go.
pub(crate) fn program_info(
    program: BorrowedFd<'_>,
    mut info: libbpf_sys::bpf_prog_info,
) -> Option<libbpf_sys::bpf_prog_info> {
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is writable and `len` its size; its array pointers are null or have the room that it says.
    let answer =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut len) };
    (answer == 0).then_some(info)
}

fn program_name(program: BorrowedFd<'_>) -> String {
    let Some(info) = program_info(program, Default::default()) else { return String::new() };
    // SAFETY: the kernel ends the name with a NUL within the array.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    name.to_string_lossy().into_owned()
}
