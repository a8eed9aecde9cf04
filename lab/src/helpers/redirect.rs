//! The limit of forwarding: an XDP program that writes constants and redirects.

use std::mem::MaybeUninit;

use anyhow::{Context, Result};
use clap::Args;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_testkit::Mac;

use crate::interrupt;

include!(concat!(env!("OUT_DIR"), "/redirect.rs"));

/// The arguments of a helper that redirects.
// Without a group, whose name is that of the type: the helper that takes these in has `Options`, too.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// The interface that frames come in by.
    #[arg(short, long)]
    pub(super) interface: String,
    /// The interface that they leave by.
    #[arg(long)]
    to: String,
    /// The destination MAC address that they leave with.
    #[arg(long)]
    dst_mac: Mac,
    /// The source MAC address that they leave with.
    #[arg(long)]
    src_mac: Mac,
}

impl Options {
    /// The indices of both interfaces.
    pub(super) fn indices(&self) -> Result<(u32, u32)> {
        let index = |name| linerate_net::link::by_name(name).map(|link| link.index);
        Ok((index(&self.interface)?, index(&self.to)?))
    }

    /// Both MAC addresses, in the order of an Ethernet header.
    pub(super) fn macs(&self) -> [u8; 12] {
        std::array::from_fn(|at| if at < 6 { self.dst_mac.0[at] } else { self.src_mac.0[at - 6] })
    }
}

/// Redirects everything until a signal asks for the end.
pub(super) fn run(options: &Options) -> Result<()> {
    let (from, to) = options.indices()?;
    let interface = &options.interface;
    let mut object = MaybeUninit::uninit();
    let mut open = skeleton::RedirectSkelBuilder::default()
        .open(&mut object)
        .context("cannot open the redirecting program")?;
    let constants = open.maps.rodata_data.as_deref_mut().context("the program has no constants")?;
    constants.out_ifindex = to;
    constants.macs = options.macs();
    let skeleton = open.load().context("the kernel does not take the redirecting program")?;
    let link =
        skeleton.progs.redirect.attach_xdp(from.cast_signed()).with_context(|| {
            format!("cannot attach to {interface} (has it another XDP program?)")
        })?;
    interrupt::wait();
    drop(link);
    Ok(())
}
