//! [`Link`]: a BPF program on a hook of an interface, held by a bpf_link: the kernel takes the program
//! off when the last descriptor closes, or the last pin goes.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::steer::attach::{Attach, attached, foreign};
use crate::steer::program::refusal;
use crate::{Error, Result};

/// Where on an interface a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// XDP, in the driver or in the stack. One program for an interface.
    Xdp(Attach),
    /// Entrance of the stack (tcx, Linux 6.6), before the programs that are there.
    Ingress,
    /// The way out of the stack (tcx, Linux 6.6), after the programs that are there.
    Egress,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xdp(attach) => write!(f, "XDP ({attach})"),
            Self::Ingress => f.write_str("tcx ingress"),
            Self::Egress => f.write_str("tcx egress"),
        }
    }
}

/// A program on a hook.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
}

impl Link {
    /// Puts `program` on the hook of interface `ifindex` of this network namespace; `name` is for errors.
    ///
    /// # Errors
    /// [`Error::ForeignProgram`] when XDP is taken; [`Error::Privilege`]; [`Error::System`], for
    /// instance where the driver has no native XDP or the kernel no tcx.
    pub fn attach(program: BorrowedFd<'_>, name: &str, ifindex: u32, hook: Hook) -> Result<Self> {
        let mut options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let kind = match hook {
            Hook::Xdp(attach) => {
                options.flags = attach.flags();
                libbpf_sys::BPF_XDP
            }
            Hook::Ingress => {
                options.flags = libbpf_sys::BPF_F_BEFORE;
                libbpf_sys::BPF_TCX_INGRESS
            }
            Hook::Egress => {
                options.flags = libbpf_sys::BPF_F_AFTER;
                libbpf_sys::BPF_TCX_EGRESS
            }
        };
        // SAFETY: a live program and options that carry their size.
        let fd = unsafe {
            libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, kind, &options)
        };
        if fd >= 0 {
            // SAFETY: a descriptor just made for us alone.
            return Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } });
        }
        if let (Hook::Xdp(_), libc::EBUSY | libc::EEXIST) = (hook, -fd)
            && let Some(found) = attached(ifindex)?
        {
            return Err(foreign(name, &found));
        }
        Err(refusal(format!("attach a program to interface {name} by {hook}"), -fd))
    }

    /// Puts `program` in place of the one that runs. No frame sees both or neither.
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
        match answer {
            0.. => Ok(()),
            _ => Err(refusal("replace a program on an interface", -answer)),
        }
    }

    /// Takes the program off now, whoever else holds the link.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn detach(&self) -> Result<()> {
        // SAFETY: a live descriptor.
        match unsafe { libbpf_sys::bpf_link_detach(self.fd.as_raw_fd()) } {
            0.. => Ok(()),
            answer => Err(refusal("take a program off an interface", -answer)),
        }
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

/// Pins a program, map or link at `path` in bpffs: it stays when the last descriptor closes.
///
/// # Errors
/// [`Error::System`]: the path exists, or is not in a BPF file system.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> Result<()> {
    let place = place(path)?;
    // SAFETY: a live descriptor and a C string.
    match unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), place.as_ptr()) } {
        0.. => Ok(()),
        answer => Err(refusal(format!("pin a BPF object as {}", path.display()), -answer)),
    }
}

/// What is pinned at `path`.
///
/// # Errors
/// [`Error::System`]: nothing is, or the file is of another file system.
pub fn open(path: &Path) -> Result<OwnedFd> {
    let place = place(path)?;
    // SAFETY: a C string.
    match unsafe { libbpf_sys::bpf_obj_get(place.as_ptr()) } {
        // SAFETY: a descriptor just made for us alone.
        fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        answer => Err(refusal(format!("open the BPF object {}", path.display()), -answer)),
    }
}

fn place(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| {
        Error::system(format!("name a BPF object {}", path.display()), io::Error::other(error))
    })
}
