//! [`Link`]: a BPF program on a hook of an interface, held by a bpf_link. The kernel detaches the program when
//! the last descriptor closes and the last pin is removed.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::sys::{check, options, owned};
use crate::xdp::mode::AttachMode;
use crate::xdp::query::attached_to;
use crate::{Error, Result};

/// Where on an interface a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// XDP, in the driver or in the stack. One program for an interface.
    Xdp(AttachMode),
    /// tcx at the ingress of the stack (Linux 6.6), before the programs that are there.
    TcxIngress,
    /// tcx at the egress of the stack (Linux 6.6), before the programs that are there.
    TcxEgress,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xdp(mode) => write!(f, "XDP ({mode})"),
            Self::TcxIngress => f.write_str("tcx ingress"),
            Self::TcxEgress => f.write_str("tcx egress"),
        }
    }
}

/// A program on a hook.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
}

impl Link {
    /// Attaches `program` to the hook of interface `ifindex` in this network namespace; `name` is for errors.
    ///
    /// # Errors
    /// [`Error::ForeignProgram`] when there is an XDP program already; [`Error::Privilege`]; [`Error::System`], for
    /// instance where the driver has no native XDP or the kernel no tcx.
    pub fn attach(program: BorrowedFd<'_>, name: &str, ifindex: u32, hook: Hook) -> Result<Self> {
        let (kind, flags) = match hook {
            Hook::Xdp(mode) => (libbpf_sys::BPF_XDP, mode.flags()),
            Hook::TcxIngress => (libbpf_sys::BPF_TCX_INGRESS, libbpf_sys::BPF_F_BEFORE),
            Hook::TcxEgress => (libbpf_sys::BPF_TCX_EGRESS, libbpf_sys::BPF_F_BEFORE),
        };
        let options = options!(bpf_link_create_opts { flags });
        // SAFETY: a live program and options that carry their size.
        let fd = unsafe {
            libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, kind, &options)
        };
        if fd >= 0 {
            // SAFETY: a new descriptor, which nobody else owns.
            return Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } });
        }
        if let (Hook::Xdp(_), libc::EBUSY | libc::EEXIST) = (hook, -fd)
            && let Some(found) = attached_to(ifindex)?
        {
            return Err(found.busy_error(name));
        }
        Err(Error::bpf(
            match hook {
                Hook::Xdp(mode) => format!("attach an XDP program ({mode}) to interface {name}"),
                _ => format!("attach a BPF program to {hook} of interface {name}"),
            },
            -fd,
        ))
    }

    /// Replaces the attached program. No frame meets both or neither.
    ///
    /// # Errors
    /// [`Error::System`], for instance when the interface has gone.
    pub fn replace(&self, program: BorrowedFd<'_>) -> Result<()> {
        // SAFETY: two live descriptors, default options.
        let answer = unsafe {
            libbpf_sys::bpf_link_update(
                self.fd.as_raw_fd(),
                program.as_raw_fd(),
                std::ptr::null_mut(),
            )
        };
        check(answer, "replace the BPF program on an interface")
    }

    /// Detaches the program now, even if others hold the link.
    pub fn detach(&self) -> Result<()> {
        // SAFETY: a live descriptor.
        let answer = unsafe { libbpf_sys::bpf_link_detach(self.fd.as_raw_fd()) };
        check(answer, "detach a BPF program from an interface")
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<OwnedFd> for Link {
    /// A link that was pinned.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

/// How many tcx programs see what the interface of this index receives, and what it sends, and the kernel's numbers
/// of the two lists, which change with them.
///
/// # Errors
/// [`Error::Privilege`], [`Error::System`].
pub fn tcx_programs(ifindex: u32) -> Result<[TcxPrograms; 2]> {
    let query = |hook| query_tcx(ifindex, hook);
    Ok([query(libbpf_sys::BPF_TCX_INGRESS)?, query(libbpf_sys::BPF_TCX_EGRESS)?])
}

/// The programs of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcxPrograms {
    /// How many there are.
    pub count: u32,
    /// Changes with every change of them.
    pub revision: u64,
}

/// Whether tcx programs see what the interface of this index receives.
///
/// # Errors
/// [`Error::Privilege`], [`Error::System`].
pub fn has_tcx_ingress_program(ifindex: u32) -> Result<bool> {
    Ok(query_tcx(ifindex, libbpf_sys::BPF_TCX_INGRESS)?.count > 0)
}

fn query_tcx(ifindex: u32, hook: libbpf_sys::bpf_attach_type) -> Result<TcxPrograms> {
    match query(ifindex as i32, hook, 0) {
        Ok(programs) => Ok(programs),
        // No program, or a kernel without tcx (before Linux 6.6).
        Err(libc::ENOENT | libc::EINVAL) => Ok(TcxPrograms::default()),
        Err(errno) => {
            Err(Error::bpf(format!("ask interface {ifindex} for its tcx programs"), errno))
        }
    }
}

/// The programs on a hook of an interface or a control group; else the error number.
fn query(
    target: i32,
    hook: libbpf_sys::bpf_attach_type,
    query_flags: u32,
) -> std::result::Result<TcxPrograms, i32> {
    let mut query = options!(bpf_prog_query_opts { query_flags });
    // SAFETY: `query` is writable and carries its size; its array pointers are null. The union has plain numbers.
    let (answer, count) = unsafe {
        let answer = libbpf_sys::bpf_prog_query_opts(target, hook, &mut query);
        (answer, query.__bindgen_anon_1.count)
    };
    if answer < 0 { Err(-answer) } else { Ok(TcxPrograms { count, revision: query.revision }) }
}

/// Whether programs of a control group of version 2, or of one above it, judge or change what UDP sockets in it receive.
///
/// # Errors
/// [`Error::Privilege`], [`Error::System`].
pub fn has_cgroup_receive_program(group: BorrowedFd<'_>) -> Result<bool> {
    let hooks = [
        libbpf_sys::BPF_CGROUP_INET_INGRESS,
        libbpf_sys::BPF_CGROUP_UDP4_RECVMSG,
        libbpf_sys::BPF_CGROUP_UDP6_RECVMSG,
    ];
    for hook in hooks {
        let found = query(group.as_raw_fd(), hook, libbpf_sys::BPF_F_QUERY_EFFECTIVE)
            .map_err(|errno| Error::bpf("ask a control group for its programs", errno))?;
        if found.count > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Pins a program, map or link at `path` in bpffs: it stays when the last descriptor closes.
///
/// # Errors
/// [`Error::System`]: the path exists, or is not in a BPF file system.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> Result<()> {
    let place = place(path)?;
    // SAFETY: a live descriptor and a C string.
    let answer = unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), place.as_ptr()) };
    check(answer, format!("pin a BPF object as {}", path.display()))
}

/// What is pinned at `path`.
///
/// # Errors
/// [`Error::System`]: nothing is, or the file is of another file system.
pub fn open(path: &Path) -> Result<OwnedFd> {
    let place = place(path)?;
    let action = format!("open the BPF object {}", path.display());
    // SAFETY: a C string; the descriptor is new.
    unsafe { owned(libbpf_sys::bpf_obj_get(place.as_ptr()), action) }
}

fn place(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| {
        Error::system(format!("name a BPF object {}", path.display()), io::Error::other(error))
    })
}

#[cfg(test)]
pub(crate) mod tests;
