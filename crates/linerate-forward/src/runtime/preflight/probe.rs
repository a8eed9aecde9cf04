//! Sends a few frames out of an interface by redirection, to verify that they leave.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_bpf::live_frames;
use linerate_net::cpu;
use linerate_net::link::{self, Link};
use rustix::io::Errno;

use super::report::{Outcome, refused, warning};
use super::skeleton::PreflightSkelBuilder;
use crate::{Error, Result};

/// Frames for each CPU: the driver sends them in one go.
const FRAMES: u32 = 8;
/// Shortest Ethernet frame without its checksum.
const LENGTH: usize = 60;
/// Nearest bridge, which does not forward it (IEEE 802.1Q, table 8-1).
const NEAREST: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];
/// For local experiments (IEEE 802, 9.2.3).
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
/// How long a card may take to update its counters. Many do so only periodically.
const PROBE_TIMEOUT: Duration = Duration::from_millis(2500);

/// A program that returns XDP_PASS.
pub(super) fn pass_program() -> Result<OwnedFd> {
    load(0, |skeleton| skeleton.linerate_pass.as_fd().try_clone_to_owned())
}

/// Sends [`FRAMES`] frames from each CPU that this thread may use, and checks whether they were sent.
pub(super) fn send(port: &Link, meanwhile: &mut dyn FnMut() -> Result<()>) -> Result<Outcome> {
    meanwhile()?;
    let program =
        load(port.index, |programs| programs.linerate_probe.as_fd().try_clone_to_owned())?;
    let failed = |source| Error::system(format!("send test frames out of {}", port.name), source);
    let now = || match link::by_index(port.index) {
        Ok(Some(link)) => Ok(link.statistics),
        Ok(None) => Err(failed(io::Error::from(Errno::NODEV))),
        Err(error) => Err(failed(error.into())),
    };
    let mut frame = [0; LENGTH];
    frame[..6].copy_from_slice(&NEAREST);
    frame[6..12].copy_from_slice(&port.address.unwrap_or_default().0);
    frame[12..14].copy_from_slice(&EXPERIMENT);
    let before = now()?;
    meanwhile()?;
    let sent = thread::scope(|scope| scope.spawn(|| from_all(&program, &frame)).join());
    let sent = match sent {
        Ok(sent) => sent.map_err(failed)?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    let mut waited = Duration::ZERO;
    let mut step = Duration::from_millis(1);
    loop {
        let after = now()?;
        let gone = after.tx_packets.wrapping_sub(before.tx_packets);
        if gone >= sent {
            return Ok(Outcome::Fine);
        }
        let dropped = after.tx_dropped.wrapping_sub(before.tx_dropped);
        // Some drivers count one drop for a batch of frames.
        let is_over = waited >= PROBE_TIMEOUT;
        if dropped >= sent || is_over && gone == 0 && dropped > 0 {
            return Ok(refused(
                format!("of {sent} test frames that were redirected to it, none was sent"),
                "see `ip -s link` and `ethtool -S` for why it drops them",
            ));
        }
        if is_over {
            return Ok(warning(
                format!(
                    "{sent} test frames were redirected to it, and its counters do not show them"
                ),
                "its driver may not count such frames; see whether sessions get through",
            ));
        }
        thread::sleep(step);
        meanwhile()?;
        waited += step;
        step = (step * 2).min(Duration::from_millis(200));
    }
}

/// Moves this thread from CPU to CPU, and counts the frames.
fn from_all(program: &OwnedFd, frame: &[u8]) -> std::io::Result<u64> {
    let mut sent = 0;
    for cpu in cpu::allowed()? {
        cpu::pin(cpu)?;
        live_frames::run(program.as_fd(), frame, FRAMES, FRAMES)?;
        sent += u64::from(FRAMES);
    }
    Ok(sent)
}

/// Whether programs can look tracked connections up (`bpf_skb_ct_lookup`), which may take conntrack's module.
pub(super) fn can_look_up() -> bool {
    let mut storage = MaybeUninit::uninit();
    let Ok(mut open) = PreflightSkelBuilder::default().open(&mut storage) else { return false };
    open.progs.linerate_pass.set_autoload(false);
    open.progs.linerate_probe.set_autoload(false);
    open.load().is_ok()
}

fn load(
    target: u32,
    pick: impl FnOnce(&super::skeleton::PreflightProgs<'_>) -> std::io::Result<OwnedFd>,
) -> Result<OwnedFd> {
    let mut storage = MaybeUninit::uninit();
    let mut open = PreflightSkelBuilder::default()
        .open(&mut storage)
        .map_err(|error| Error::bpf("read the programs of the preflight", &error))?;
    if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
        constants.target = target;
    }
    open.progs.linerate_lookup.set_autoload(false);
    let loaded =
        open.load().map_err(|error| Error::load("load the programs of the preflight", &error))?;
    pick(&loaded.progs).map_err(|error| Error::system("keep a program of the preflight", error))
}
