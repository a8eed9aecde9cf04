//! [`Root`]: the one XDP program on an interface that all tees share, and its slots.
//!
//! No daemon, pin or lock file keeps the root attached. Every participant holds a descriptor of the same BPF
//! link: the first made the link, the others looked it up by the program on the interface. The kernel detaches
//! the program when the last descriptor closes, however the process ended that held it.
//!
//! The kernel also decides who has which slot. A slot is an entry of a socket map (`owners`) and one of a
//! program array (`captures`). A capture puts a socket into the first with `BPF_NOEXIST`, which succeeds for
//! exactly one process. That process then owns the slot in `captures`. When it dies, its socket closes and
//! leaves the map; the root does not call a program whose socket has gone, and the next owner of the slot
//! replaces it.
//!
//! Extension programs (`BPF_PROG_TYPE_EXT`) would need less code, but kernels under lockdown or a hardening
//! policy refuse to load them; tail calls work everywhere.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use linerate_net::Interface;
use linerate_net::privilege::XDP_CAPABILITIES;
use rustix::net::sockopt;

use crate::map::update_fd;
use crate::program::{LoadOptions, LoadableProgram};
use crate::sys::duplicate;
use crate::xdp::attach::XdpLink;
use crate::xdp::mode::AttachMode;
use crate::xdp::open_socket;
use crate::xdp::query::{self, AttachedProgram, TEE, attached_to};
use crate::{Error, Result};

/// Captures that an interface can carry; `TEE_SLOTS` in `bpf/tee.h`.
pub(super) const SLOTS: u32 = 8;
/// How often to try again when other tees come and go at the same moment.
const ATTEMPTS: usize = 200;

/// This process's reference to the root program of an interface.
#[derive(Debug)]
pub(super) struct Root {
    link: XdpLink,
    owners: OwnedFd,
    captures: OwnedFd,
}

impl Root {
    /// Attaches the root program, or shares the one that another tee attached.
    pub(super) fn join(
        interface: &Interface,
        loadable: &LoadableProgram,
        only: Option<AttachMode>,
    ) -> Result<Self> {
        let mut loaded = None;
        for _ in 0..ATTEMPTS {
            match attached_to(interface.index())? {
                Some(found) if found.name == TEE => {
                    // It may be gone: its last participant left. Then try again.
                    if let Some(root) = Self::share(interface, &found)? {
                        return Ok(root);
                    }
                }
                Some(found) if found.lacks_privilege() => {
                    return Err(join_refused(interface.name()));
                }
                Some(found) => return Err(found.busy_error(interface.name())),
                None => {
                    let program = match loaded.take() {
                        Some(program) => program,
                        None => loadable.load(LoadOptions::default())?,
                    };
                    match XdpLink::attach(
                        program.as_fd(),
                        interface.name(),
                        interface.index(),
                        only,
                    ) {
                        Ok(link) => {
                            let own = |name| duplicate(loadable.map(name));
                            return Ok(Self {
                                link,
                                owners: own("owners")?,
                                captures: own("captures")?,
                            });
                        }
                        // Another tee was faster: try again and join it.
                        Err(Error::ForeignProgram { name, .. }) if name == TEE => {
                            loaded = Some(program);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Error::Invalid(format!(
            "the tee on {} is being attached and detached by others all the time; try again",
            interface.name()
        )))
    }

    fn share(interface: &Interface, found: &AttachedProgram) -> Result<Option<Self>> {
        let Some(link) = XdpLink::open_shared_link(found.id, found.mode)? else { return Ok(None) };
        let program = match query::program(found.id) {
            Ok(program) => program,
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let action = format!("open the program {TEE} on {}", interface.name());
                let source = std::io::Error::other(error.to_string());
                return Err(Error::System { action, source });
            }
        };
        // From here on the link stays; was it still on the interface when we got it?
        if attached_to(interface.index())?.is_none_or(|now| now.id != found.id) {
            return Ok(None);
        }
        let [owners, captures] =
            query::maps_of_program(program.as_fd(), ["owners", "captures"], SLOTS)?;
        match (owners, captures) {
            (Some(owners), Some(captures)) => Ok(Some(Self { link, owners, captures })),
            _ => Err(Error::Invalid(format!(
                "the program {TEE} on {} is not one that this version can join; end the captures \
                 of the other version",
                interface.name()
            ))),
        }
    }

    /// The link that keeps it attached.
    pub(super) fn link(&self) -> &XdpLink {
        &self.link
    }

    /// The sockets of the processes that own a slot.
    pub(super) fn owners(&self) -> BorrowedFd<'_> {
        self.owners.as_fd()
    }

    /// The programs in the slots.
    pub(super) fn captures(&self) -> BorrowedFd<'_> {
        self.captures.as_fd()
    }

    /// Takes a free slot.
    pub(super) fn take_slot(&self, interface: &Interface) -> Result<Slot> {
        let action = format!("take a slot for a capture on {}", interface.name());
        let token = open_token(&action)?;
        let spare = open_token(&action)?;
        let (owners, captures) = (duplicate(self.owners())?, duplicate(self.captures())?);
        for number in 0..SLOTS {
            match update_fd(self.owners.as_fd(), number, token.as_fd(), libbpf_sys::BPF_NOEXIST) {
                Ok(()) => return Ok(Slot { number, owners, captures, token: Some(token), spare }),
                Err(libc::EEXIST) => {}
                Err(errno) => return Err(Error::bpf(action, errno)),
            }
        }
        Err(Error::NoSlot { interface: interface.name().to_owned(), slots: SLOTS as usize })
    }
}

/// A socket for `owners`.
fn open_token(action: &str) -> Result<OwnedFd> {
    let token = open_socket(action, XDP_CAPABILITIES)?;
    // Nothing is ever redirected to it, but newer kernels (such as 7.3) accept no socket in the map that
    // cannot receive.
    sockopt::set_xdp_rx_ring_size(&token, 1)
        .map_err(|errno| Error::system(action, errno.into()))?;
    Ok(token)
}

/// A slot that this process owns, and each process that it forks. The last one that drops it removes the program.
#[derive(Debug)]
pub(super) struct Slot {
    number: u32,
    owners: OwnedFd,
    captures: OwnedFd,
    /// The socket in `owners`: the slot is taken while a process has it open.
    token: Option<OwnedFd>,
    /// Opened with it, as a program may have no privilege when it closes the capture.
    spare: OwnedFd,
}

impl Slot {
    /// Which one.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Sets the program, which is called for every frame from now on.
    pub(super) fn set(&self, program: BorrowedFd<'_>, interface: &Interface) -> Result<()> {
        update_fd(self.captures.as_fd(), self.number, program, libbpf_sys::BPF_ANY)
            .map_err(|errno| Error::bpf(format!("start a capture on {}", interface.name()), errno))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.token = None;
        // Refused while another process has the token, or has taken the slot since.
        let (owners, spare) = (self.owners.as_fd(), self.spare.as_fd());
        if update_fd(owners, self.number, spare, libbpf_sys::BPF_NOEXIST).is_err() {
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

/// The error for a program that may be a tee to join, where this process may not look at it.
fn join_refused(interface: &str) -> Error {
    Error::Privilege {
        action: format!(
            "see whether the XDP program on interface {interface} is another capture's tee, to join it"
        ),
        capability: "CAP_SYS_ADMIN",
    }
}
