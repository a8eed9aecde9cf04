//! [`IngressDrop`]: keeps frames that packet sockets receive from the host's stack.
//!
//! A frame reaches packet sockets first, then tcx at the ingress of the stack (`__netif_receive_skb_core`):
//! packet sockets receive what is dropped there, and the host does not answer it.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_net::Interface;

use crate::addresses::Addresses;
use crate::link::{Hook, Link};
use crate::program::log_to_tracing;
use crate::sys::duplicate;
use crate::{Error, Result, verifier};

include!(concat!(env!("OUT_DIR"), "/ingress_drop.rs"));

/// A tcx program that drops frames of an interface at the ingress of the stack. It is detached when this is
/// dropped, and when the process ends.
#[derive(Debug)]
pub struct IngressDrop {
    _links: Vec<Link>,
    addresses: OwnedFd,
}

/// Which frames an [`IngressDrop`] drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropScope {
    /// Every frame.
    All,
    /// Those for [`IngressDrop::addresses`], matched as by [`crate::steer::Options::by_address`]. What this host sends to
    /// them through the interface returns at its ingress.
    ByAddress,
}

impl IngressDrop {
    /// Attaches it to `interface` of this network namespace. XDP, generic XDP and packet sockets still
    /// receive every frame.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Privilege`]; [`Error::System`], for instance on a kernel without
    /// tcx (before Linux 6.6).
    pub fn attach(interface: &str, dropped: DropScope) -> Result<Self> {
        log_to_tracing();
        let interface = Interface::open(interface)?;
        let failed =
            |error: libbpf_rs::Error| Error::libbpf("load the BPF program linerate_drop", &error);
        let mut storage = MaybeUninit::uninit();
        let mut open =
            skeleton::IngressDropSkelBuilder::default().open(&mut storage).map_err(failed)?;
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.by_address = u32::from(dropped == DropScope::ByAddress);
        }
        let skeleton = open.load().map_err(|error| {
            verifier::refusal("load the program that drops at ingress", &error)
                .unwrap_or_else(|| failed(error))
        })?;
        let attach =
            |program, hook| Link::attach(program, interface.name(), interface.index(), hook);
        let mut links = vec![attach(skeleton.progs.linerate_drop.as_fd(), Hook::TcxIngress)?];
        if dropped == DropScope::ByAddress {
            links.push(attach(skeleton.progs.linerate_return.as_fd(), Hook::TcxEgress)?);
        }
        Ok(Self { _links: links, addresses: duplicate(skeleton.maps.addresses.as_fd())? })
    }

    /// The addresses whose frames are dropped by [`DropScope::ByAddress`]; none at first.
    ///
    /// # Errors
    /// [`Error::System`] when the process has no descriptor left.
    pub fn addresses(&self) -> Result<Addresses> {
        Addresses::from_map(self.addresses.as_fd())
    }
}
