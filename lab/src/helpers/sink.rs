//! The peer that captures nothing: an XDP program that counts and drops.

use std::mem::MaybeUninit;

use anyhow::{Context, Result, bail};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};

use crate::interrupt;

include!(concat!(env!("OUT_DIR"), "/sink.rs"));

/// Counts and drops everything that `interface` receives until a signal asks for the end; the frames and
/// their bytes.
pub(super) fn run(interface: &str) -> Result<(u64, u64)> {
    let index = linerate_net::link::by_name(interface)?.index;
    let mut object = MaybeUninit::uninit();
    let skeleton = skeleton::SinkSkelBuilder::default()
        .open(&mut object)
        .and_then(OpenSkel::load)
        .context("the kernel does not take the sink's XDP program")?;
    // A link, unlike an attached program, goes with this process, however it ends.
    let link = skeleton.progs.sink.attach_xdp(index.cast_signed()).with_context(|| {
        format!("cannot attach the sink to {interface} (has it another XDP program?)")
    })?;
    interrupt::wait();
    drop(link);
    let map = &skeleton.maps.counts;
    let values = map
        .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?
        .context("the sink's map lost its only entry")?;
    values.iter().try_fold((0, 0), |sum, value| {
        let [frames, bytes] = words(value)?;
        Ok((sum.0 + frames, sum.1 + bytes))
    })
}

/// `struct sink_count` of `bpf/sink.h`.
fn words(value: &[u8]) -> Result<[u64; 2]> {
    let word = |at: usize| value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    match (word(0), word(8)) {
        (Some(frames), Some(bytes)) => Ok([u64::from_ne_bytes(frames), u64::from_ne_bytes(bytes)]),
        _ => bail!("the sink's counters are {} bytes long instead of 16", value.len()),
    }
}
