//! [`Root`]: the one XDP program on an interface that all tees share, and its slots.
//!
//! Who keeps it, without a daemon, a pin or a lock file: every participant holds a descriptor of the
//! same BPF link, the first because it made the link, the others because they looked it up by the
//! program on the interface. The kernel detaches the program when the last descriptor closes,
//! whatever ends the process that held it. Slots are allotted by the kernel too: a function can be
//! replaced by one extension program at a time, and a second gets `EBUSY`.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::steer::Attach;
use crate::steer::attach::{self, Link};
use crate::steer::interface::Interface;
use crate::steer::program::{Load, Template, refusal};
use crate::xdp::sys;
use crate::{Error, Result};

/// Name of the root program, by which it is recognised; `TEE_ROOT` in `bpf/tee.h`.
pub(super) const NAME: &str = "linerate_tee";
/// Captures that an interface can carry; `TEE_SLOTS` in `bpf/tee.h`.
pub(super) const SLOTS: usize = 8;
/// How often to look again when others come and go at the same moment.
const ATTEMPTS: usize = 200;

/// This process's part in the root program of an interface.
#[derive(Debug)]
pub(super) struct Root {
    link: Link,
    program: OwnedFd,
}

impl Root {
    /// Attaches the root program, or takes part in the one that another tee attached.
    pub(super) fn join(
        interface: &Interface,
        template: &Template,
        only: Option<Attach>,
    ) -> Result<Self> {
        let mut loaded = None;
        for _ in 0..ATTEMPTS {
            match attach::attached(interface.index)? {
                Some(found) if found.name == NAME => {
                    // It may be gone by now: its last participant left. Then look again.
                    if let Some(root) = Self::take_part(interface, &found)? {
                        return Ok(root);
                    }
                }
                Some(found) => return Err(attach::foreign(&interface.name, &found)),
                None => {
                    let program = match loaded.take() {
                        Some(program) => program,
                        None => template.load(Load::default())?,
                    };
                    match Link::attach(program.as_fd(), &interface.name, interface.index, only) {
                        Ok(link) => return Ok(Self { link, program }),
                        // Another tee was quicker: look again and join it.
                        Err(Error::ForeignProgram { name, .. }) if name == NAME => {
                            loaded = Some(program);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            sys::pause(Duration::from_millis(1));
        }
        Err(Error::Invalid(format!(
            "the tee on {} is being attached and detached by others all the time; try again",
            interface.name
        )))
    }

    fn take_part(interface: &Interface, found: &attach::Attached) -> Result<Option<Self>> {
        let Some(link) = Link::join(found.id, found.attach)? else { return Ok(None) };
        let Ok(program) = attach::program(found.id) else { return Ok(None) };
        // From here on the link stays; was it still on the interface when we got it?
        let now = attach::attached(interface.index)?;
        Ok(now.is_some_and(|now| now.id == found.id).then_some(Self { link, program }))
    }

    /// Where the program runs.
    pub(super) fn attach(&self) -> Attach {
        self.link.attach
    }

    /// Why not in the driver.
    pub(super) fn why_generic(&self) -> Option<&str> {
        self.link.why.as_deref()
    }

    /// The functions that extensions can replace.
    pub(super) fn target(&self) -> Result<Target<'_>> {
        Target::of(self.program.as_fd())
    }
}

/// The root program and the types of its replaceable functions.
#[derive(Debug)]
pub(super) struct Target<'r> {
    program: BorrowedFd<'r>,
    slots: [u32; SLOTS],
}

impl<'r> Target<'r> {
    /// The replaceable functions of a loaded root program.
    pub(super) fn of(program: BorrowedFd<'r>) -> Result<Self> {
        let incompatible = || {
            Error::Invalid(format!(
                "the program {NAME} on the interface is not one that this version can join; end the \
                 captures of the other version"
            ))
        };
        let info = attach::program_info(program).ok_or_else(incompatible)?;
        // SAFETY: no memory involved; null on error.
        let btf = unsafe { libbpf_sys::btf__load_from_kernel_by_id(info.btf_id) };
        if btf.is_null() {
            return Err(refusal("read the type information of the tee's root program", {
                io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
            }));
        }
        let mut slots = [0; SLOTS];
        for (number, slot) in slots.iter_mut().enumerate() {
            let name = CString::new(format!("slot{number}")).expect("no NUL");
            // SAFETY: live type information and a C string.
            let id = unsafe {
                libbpf_sys::btf__find_by_name_kind(btf, name.as_ptr(), libbpf_sys::BTF_KIND_FUNC)
            };
            *slot = u32::try_from(id).unwrap_or(0);
        }
        // SAFETY: made above, used no more.
        unsafe { libbpf_sys::btf__free(btf) };
        if slots.contains(&0) {
            return Err(incompatible());
        }
        Ok(Self { program, slots })
    }
    /// What a program has to be loaded for to replace slot `number`. All slots have one type, so a
    /// program loaded for one can be attached to any.
    pub(super) fn slot(&self, number: usize) -> (BorrowedFd<'r>, u32) {
        (self.program, self.slots[number])
    }

    /// Puts `extension` in the first free slot; `None` when all are taken.
    pub(super) fn attach(
        &self,
        extension: BorrowedFd<'_>,
        interface: &Interface,
    ) -> Result<Option<(usize, OwnedFd)>> {
        for (number, &slot) in self.slots.iter().enumerate() {
            let options = libbpf_sys::bpf_link_create_opts {
                sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
                target_btf_id: slot,
                ..Default::default()
            };
            // SAFETY: two live programs and options that carry their size.
            let fd = unsafe {
                libbpf_sys::bpf_link_create(
                    extension.as_raw_fd(),
                    self.program.as_raw_fd(),
                    0,
                    &options,
                )
            };
            match -fd {
                libc::EBUSY => {}
                errno @ 1.. => {
                    return Err(refusal(
                        format!("put a capture in slot {number} of the tee on {}", interface.name),
                        errno,
                    ));
                }
                // SAFETY: a descriptor just made for us alone.
                _ => return Ok(Some((number, unsafe { OwnedFd::from_raw_fd(fd) }))),
            }
        }
        Ok(None)
    }
}
