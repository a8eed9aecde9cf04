//! [`Guard`]: keeps the host's stack from what packet sockets receive.
//!
//! A frame reaches packet sockets first, then tcx at the entrance of the stack
//! (`__netif_receive_skb_core`): what is dropped there was heard by them and is not answered by the host.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_net::Interface;

use crate::addresses::Addresses;
use crate::hook::{Hook, Link};
use crate::steer::program::{quiet_libbpf, refusal};
use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/guard.rs"));

/// A program at the entrance of the stack that drops frames of an interface. It goes when this is dropped,
/// and with the process.
#[derive(Debug)]
pub struct Guard {
    _link: Link,
    addresses: OwnedFd,
}

/// What a [`Guard`] drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drops {
    /// Every frame.
    All,
    /// Those for [`Guard::addresses`], as [`crate::steer::Options::by_address`] tells them.
    ByAddress,
}

impl Guard {
    /// Attaches it to `interface` of this network namespace. XDP, generic XDP and packet sockets still
    /// get every frame.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Privilege`]; [`Error::System`], for instance on a kernel without
    /// tcx (before Linux 6.6).
    pub fn attach(interface: &str, drops: Drops) -> Result<Self> {
        quiet_libbpf();
        let interface = Interface::open(interface)?;
        let failed = |error: libbpf_rs::Error| {
            let action = "load the BPF program linerate_guard";
            match error.kind() {
                libbpf_rs::ErrorKind::PermissionDenied => refusal(action, libc::EPERM),
                // What libbpf-rs has to say of the cause is in its text.
                _ => Error::system(action, std::io::Error::other(format!("{error:#}"))),
            }
        };
        let mut storage = MaybeUninit::uninit();
        let mut open = skeleton::GuardSkelBuilder::default().open(&mut storage).map_err(failed)?;
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.by_address = u32::from(drops == Drops::ByAddress);
        }
        let skeleton = open.load().map_err(failed)?;
        let program = skeleton.progs.linerate_guard.as_fd();
        let link = Link::attach(program, interface.name(), interface.index(), Hook::Ingress)?;
        let addresses = skeleton.maps.addresses.as_fd().try_clone_to_owned();
        let addresses =
            addresses.map_err(|error| Error::system("keep the map of addresses", error))?;
        Ok(Self { _link: link, addresses })
    }

    /// The addresses whose frames are dropped by [`Drops::ByAddress`]; none at first.
    ///
    /// # Errors
    /// [`Error::System`] when the process has no descriptor left.
    pub fn addresses(&self) -> Result<Addresses> {
        Addresses::of(self.addresses.as_fd())
    }
}
