//! The limit of forwarding by TC: a program at tcx that writes constants, one of them a translated address, and
//! redirects.

use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use clap::Args;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_bpf::link::{Hook, Link};

use super::redirect;
use crate::interrupt;

include!(concat!(env!("OUT_DIR"), "/redirect_tc.rs"));

/// The arguments of this helper.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    redirect: redirect::Options,
    /// The source address that they leave with.
    #[arg(long, conflicts_with = "destination", required_unless_present = "destination")]
    source: Option<Ipv4Addr>,
    /// The destination address that they leave with.
    #[arg(long)]
    destination: Option<Ipv4Addr>,
}

/// Redirects TCP over IPv4 until a signal asks for the end.
pub(super) fn run(options: &Options) -> Result<()> {
    let (from, to) = options.redirect.indices()?;
    let mut object = MaybeUninit::uninit();
    let mut open = skeleton::RedirectTcSkelBuilder::default()
        .open(&mut object)
        .context("cannot open the redirecting program")?;
    let constants = open.maps.rodata_data.as_deref_mut().context("the program has no constants")?;
    constants.out_ifindex = to;
    constants.macs = options.redirect.macs();
    let (at, address) = match (options.source, options.destination) {
        (Some(source), _) => (26, source),
        (None, destination) => (30, destination.context("no address to translate to")?),
    };
    constants.address_offset = at;
    constants.address = u32::from_ne_bytes(address.octets());
    let skeleton = open.load().context("the kernel does not take the redirecting program")?;
    let program = skeleton.progs.redirect_tc.as_fd();
    let link = Link::attach(program, &options.redirect.interface, from, Hook::TcxIngress)?;
    interrupt::wait();
    drop(link);
    Ok(())
}
