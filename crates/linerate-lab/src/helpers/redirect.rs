//! The limit of forwarding: an XDP program that writes constants and redirects.

use std::mem::MaybeUninit;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_testkit::Mac;

use crate::interrupt;

include!(concat!(env!("OUT_DIR"), "/redirect.rs"));

/// Redirects everything until a signal asks for the end.
pub(super) fn run(interface: &str, to: &str, destination: Mac, source: Mac) -> Result<()> {
    let index = |name| linerate_net::link::by_name(name).map(|link| link.index);
    let (from, to) = (index(interface)?, index(to)?);
    let mut object = MaybeUninit::uninit();
    let mut open = skeleton::RedirectSkelBuilder::default()
        .open(&mut object)
        .context("cannot open the redirecting program")?;
    let constants = open.maps.rodata_data.as_deref_mut().context("the program has no constants")?;
    constants.out_ifindex = to;
    constants.macs[..6].copy_from_slice(&destination.0);
    constants.macs[6..].copy_from_slice(&source.0);
    let skeleton = open.load().context("the kernel does not take the redirecting program")?;
    let link =
        skeleton.progs.redirect.attach_xdp(from.cast_signed()).with_context(|| {
            format!("cannot attach to {interface} (has it another XDP program?)")
        })?;
    interrupt::wait();
    drop(link);
    Ok(())
}
