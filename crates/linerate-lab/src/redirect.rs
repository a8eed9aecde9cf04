//! The limit of forwarding: an XDP program that writes constants and redirects.

use std::mem::MaybeUninit;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
pub use linerate_testkit::Mac;

use crate::interrupt;

include!(concat!(env!("OUT_DIR"), "/redirect.rs"));

/// Where everything goes.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The interface that frames come in by.
    pub interface: &'a str,
    /// The one that they leave by.
    pub to: &'a str,
    /// The hardware addresses that they leave with.
    pub destination: Mac,
    /// The same.
    pub source: Mac,
}

/// Redirects everything until a signal asks for the end.
///
/// # Errors
/// When there is no such interface, or it already has an XDP program.
pub fn run(settings: &Settings<'_>) -> Result<()> {
    let index = |name: &str| {
        nix::net::if_::if_nametoindex(name).with_context(|| format!("there is no interface {name}"))
    };
    let (from, to) = (index(settings.interface)?, index(settings.to)?);
    let mut object = MaybeUninit::uninit();
    let mut open = skeleton::RedirectSkelBuilder::default()
        .open(&mut object)
        .context("cannot open the redirecting program")?;
    let constants = open.maps.rodata_data.as_deref_mut().context("the program has no constants")?;
    constants.out_ifindex = to;
    constants.macs[..6].copy_from_slice(&settings.destination.0);
    constants.macs[6..].copy_from_slice(&settings.source.0);
    let skeleton = open.load().context("the kernel does not take the redirecting program")?;
    let link = skeleton.progs.redirect.attach_xdp(from.cast_signed()).with_context(|| {
        format!("cannot attach to {} (has it another XDP program?)", settings.interface)
    })?;
    while !interrupt::happened() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(link);
    Ok(())
}
