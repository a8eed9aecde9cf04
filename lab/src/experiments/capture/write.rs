//! `capture-write`: to a file, without loss.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use tempfile::TempDir;

use super::rate::XDP;
use super::search::LossFreeRates;
use crate::experiments::context::{Context, Experiment};
use crate::peers::capture::{BUFFERED, Peer};
use crate::report::summary::{Axis, Chart, Claim};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-write",
    title: "Frames written to a file without loss",
    about: "Ten million 64-byte frames (three million when quick) at full speed to a capture that \
            writes them to a tmpfs: Linerate pcapng, tcpdump pcap, dumpcap pcapng. Where frames \
            are lost, the rate without loss is searched for downwards.",
    run,
};

/// Bytes that a 64-byte frame may take in a file.
pub(super) const BYTES_A_FRAME: u64 = 128;

fn run(context: &mut Context) -> Result<()> {
    let frames: u64 = context.quick_or_full(3_000_000, 10_000_000);
    let folder = memory_folder(frames * BYTES_A_FRAME)?;
    let file = |name: &str| folder.path().join(name);
    let peers = vec![
        Peer::capture("xdp").writing(file("xdp.pcapng")),
        Peer::capture("packet").writing(file("packet.pcapng")),
        Peer::tcpdump().writing(file("tcpdump.pcap")),
        Peer::tcpdump_buffered().writing(file("tcpdump-128.pcap")),
        Peer::dumpcap().writing(file("dumpcap.pcapng")),
    ];
    let free = LossFreeRates::search(context, peers, frames, || empty(folder.path()))?;
    context.charts.push(Chart::bars(
        "write",
        format!("Frames a second written without loss, over {} million", frames / 1_000_000),
        "Longer is better. All write to the same tmpfs.",
        Axis::linear("written without loss", "million frames a second"),
        free.bars(),
    ));
    let rivals = [("tcpdump", ""), (BUFFERED, " with a buffer as large as xdp's")];
    context.claims.extend(rivals.map(|(theirs, how)| {
        Claim::at_least(
            &format!("frames a second without loss to a tmpfs: xdp to pcapng over tcpdump{how}"),
            free.ratio(XDP, theirs),
            2.4,
            context.options.repeats,
        )
    }));
    Ok(())
}

/// A folder of its own in a tmpfs with room for `bytes`.
pub(in crate::experiments) fn memory_folder(bytes: u64) -> Result<TempDir> {
    for folder in ["/dev/shm", "/run", "/tmp"].map(Path::new) {
        let Ok(system) = statfs(folder) else { continue };
        let free = system.blocks_available() * u64::try_from(system.block_size()).unwrap_or(0);
        if system.filesystem_type() == TMPFS_MAGIC && free >= bytes {
            let made = tempfile::Builder::new().prefix("linerate-lab-").tempdir_in(folder);
            return made.with_context(|| format!("cannot make a folder in {}", folder.display()));
        }
    }
    bail!(
        "no tmpfs with {} MiB free among /dev/shm, /run and /tmp; mount one (mount -t tmpfs -o \
         size=4G tmpfs /tmp) or use --quick",
        bytes >> 20
    )
}

pub(super) fn empty(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(())
}
