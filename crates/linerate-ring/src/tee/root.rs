//! [`Root`]: the one XDP program on an interface that all tees share, and its slots.
//!
//! Who keeps it, without a daemon, a pin or a lock file: every participant holds a descriptor of the
//! same BPF link, the first because it made the link, the others because they looked it up by the
//! program on the interface. The kernel detaches the program when the last descriptor closes,
//! whatever ends the process that held it.
//!
//! Who has which slot is the kernel's to say too. A slot is an entry of a socket map (`alive`) and
//! one of a program array (`captures`). A capture puts a socket in the first with "only if empty",
//! which one of several contenders achieves, and then owns the second. When it dies, its socket
//! closes and leaves the map by itself; the root does not call a program whose socket has gone, and
//! whoever takes the slot next replaces it.
//!
//! Extension programs (`BPF_PROG_TYPE_EXT`) would do the same with less, but kernels under lockdown
//! or a hardening policy refuse to load them; tail calls work everywhere.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use linerate_net::Interface;

use crate::error::FOR_XDP;
use crate::steer::attach::{self, Link};
use crate::steer::program::{Load, Template, refusal};
use crate::steer::{Attach, put};
use crate::xdp::sys;
use crate::{Error, Result};

/// Name of the root program, by which it is recognised.
pub(super) use crate::steer::attach::TEE as NAME;
/// Captures that an interface can carry; `TEE_SLOTS` in `bpf/tee.h`.
pub(super) const SLOTS: u32 = 8;
/// How often to look again when others come and go at the same moment.
const ATTEMPTS: usize = 200;

/// This process's part in the root program of an interface.
#[derive(Debug)]
pub(super) struct Root {
    link: Link,
    alive: OwnedFd,
    captures: OwnedFd,
}

impl Root {
    /// Attaches the root program of `template`, or takes part in the one that another tee attached.
    pub(super) fn join(
        interface: &Interface,
        template: &Template,
        only: Option<Attach>,
    ) -> Result<Self> {
        let mut loaded = None;
        for _ in 0..ATTEMPTS {
            match attach::attached(interface.index())? {
                Some(found) if found.name == NAME => {
                    // It may be gone by now: its last participant left. Then look again.
                    if let Some(root) = Self::take_part(interface, &found)? {
                        return Ok(root);
                    }
                }
                Some(found) if found.is_hidden() => {
                    return Err(attach::join_refused(interface.name()));
                }
                Some(found) => return Err(attach::foreign(interface.name(), &found)),
                None => {
                    let program = match loaded.take() {
                        Some(program) => program,
                        None => template.load(Load::default())?,
                    };
                    match Link::attach(program.as_fd(), interface.name(), interface.index(), only) {
                        Ok(link) => {
                            let own = |name| {
                                let map = template.map(name).try_clone_to_owned();
                                map.map_err(|error| Error::system("share the tee's maps", error))
                            };
                            return Ok(Self {
                                link,
                                alive: own("alive")?,
                                captures: own("captures")?,
                            });
                        }
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
            interface.name()
        )))
    }

    fn take_part(interface: &Interface, found: &attach::Attached) -> Result<Option<Self>> {
        let Some(link) = Link::join(found.id, found.attach)? else { return Ok(None) };
        let Ok(program) = attach::program(found.id) else { return Ok(None) };
        // From here on the link stays; was it still on the interface when we got it?
        if attach::attached(interface.index())?.is_none_or(|now| now.id != found.id) {
            return Ok(None);
        }
        let [alive, captures] = attach::maps_of(program.as_fd(), ["alive", "captures"], SLOTS);
        match (alive, captures) {
            (Some(alive), Some(captures)) => Ok(Some(Self { link, alive, captures })),
            _ => Err(Error::Invalid(format!(
                "the program {NAME} on {} is not one that this version can join; end the captures \
                 of the other version",
                interface.name()
            ))),
        }
    }

    /// Where the program runs.
    pub(super) fn attach(&self) -> Attach {
        self.link.attach
    }

    /// Why not in the driver.
    pub(super) fn why_generic(&self) -> Option<&str> {
        self.link.why.as_deref()
    }

    /// The maps that captures of this root must use.
    pub(super) fn maps(&self) -> [(&'static str, BorrowedFd<'_>); 2] {
        [("alive", self.alive.as_fd()), ("captures", self.captures.as_fd())]
    }

    /// Takes a free slot.
    pub(super) fn take(&self, interface: &Interface) -> Result<Slot> {
        let action = format!("take a place for a capture on {}", interface.name());
        let token = sys::socket(&action, FOR_XDP)?;
        // Nothing is ever redirected to it, but newer kernels (7.3 among them) let no socket into the map that
        // could not receive.
        sys::set(token.as_fd(), libc::SOL_XDP, libc::XDP_RX_RING, &1u32)
            .map_err(|error| Error::system(&action, error))?;
        let captures = self
            .captures
            .try_clone()
            .map_err(|error| Error::system("share the tee's maps", error))?;
        for number in 0..SLOTS {
            match put(self.alive.as_fd(), number, token.as_fd(), libbpf_sys::BPF_NOEXIST) {
                0 => {
                    let process = std::process::id();
                    return Ok(Slot { number, process, captures, _token: token });
                }
                libc::EEXIST => {}
                errno => return Err(refusal(action, errno)),
            }
        }
        Err(Error::NoSlot { interface: interface.name().to_owned(), slots: SLOTS as usize })
    }
}

/// A slot that this process has. Dropping it takes the program out, then frees the slot; a forked process
/// that drops its copy leaves both.
#[derive(Debug)]
pub(super) struct Slot {
    number: u32,
    /// The process that took it. One that it forked has the descriptors, too, and closes its own.
    process: u32,
    captures: OwnedFd,
    /// The socket in `alive`: the slot is ours while it is open.
    _token: OwnedFd,
}

impl Slot {
    /// Which one.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Puts a program in, from now on called for every frame.
    pub(super) fn fill(&self, program: BorrowedFd<'_>, interface: &Interface) -> Result<()> {
        match put(self.captures.as_fd(), self.number, program, libbpf_sys::BPF_ANY) {
            0 => Ok(()),
            errno => Err(refusal(format!("start a capture on {}", interface.name()), errno)),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // SAFETY: a map with keys of four bytes. Where it fails there was no program.
        unsafe {
            libbpf_sys::bpf_map_delete_elem(
                self.captures.as_raw_fd(),
                (&raw const self.number).cast(),
            )
        };
    }
}
