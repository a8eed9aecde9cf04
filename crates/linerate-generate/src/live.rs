//! The live-frame back end: loads the generating program for a plan and runs it.

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, OpenObject};
use linerate_bpf::live_frames;
use nix::libc;

use crate::counters::{Counters, Counts};
use crate::fields::{Addresses, Ports};
use crate::frames::{flow_seed, size_seed};
use crate::plan::{Plan, Stamp, Transport};
use crate::{Error, Rate, Result, Sizes};

use skeleton::types;

include!(concat!(env!("OUT_DIR"), "/generate.rs"));

/// Longest frame that fits in a page with the kernel's headroom and tailroom.
pub(crate) const MAX_FRAME: u16 = 3408;

/// Below this rate a program that waits its turn with softirqs off would hold its CPU for longer than
/// a fifth of a millisecond.
pub(crate) const MIN_RATE: f64 = 5_000.0;

const NAME: &str = "XDP live frames";

/// Frames of one batch at full speed; more gain nothing, and delay everything else on the CPU.
const BATCH: u32 = 64;

/// The longest time that one paced batch may take, in seconds: softirqs are off meanwhile.
const BATCH_TIME: f64 = 50e-6;

/// How far a paced run may fall behind and still catch up, in nanoseconds.
const SLACK: u64 = 10_000_000;

/// Runs of the program in one system call; the kernel counts in 32 bits.
const REPEAT: u64 = 1 << 30;

/// The counters of a run in the kernel, readable from any thread.
#[derive(Debug)]
pub(crate) struct Window {
    map: MapHandle,
    /// The length of every frame, where they are all alike: then the program does not count bytes.
    fixed_len: Option<u64>,
}

impl Window {
    /// Reads all counters, which the kernel goes on writing meanwhile.
    pub(crate) fn read(&self) -> Option<Counts> {
        let value = self.map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
        let counters = value.get(offset_of!(types::bss, counters)..)?;
        let word = |at: usize| {
            let bytes = counters.get(at..)?.first_chunk()?;
            Some(u64::from_ne_bytes(*bytes))
        };
        let error = |at: usize| {
            let bytes = counters.get(at..)?.first_chunk()?;
            Some(i32::from_ne_bytes(*bytes))
        };
        let emitted = word(offset_of!(types::generate_counters, emitted))?;
        let counted = word(offset_of!(types::generate_counters, bytes))?;
        Some(Counts {
            emitted,
            bytes: self.fixed_len.map_or(counted, |len| emitted.saturating_mul(len)),
            accepted: word(offset_of!(types::generate_counters, accepted))?,
            refused: word(offset_of!(types::generate_counters, refused))?
                + word(offset_of!(types::generate_counters, undirected))?,
            first: word(offset_of!(types::generate_counters, first))?,
            last: word(offset_of!(types::generate_counters, last))?,
            driver_error: error(offset_of!(types::generate_counters, driver_error))?,
            redirect_error: error(offset_of!(types::generate_counters, redirect_error))?,
        })
    }
}

/// Loads the program, says so through `ready`, and runs it on this thread until all frames are sent or
/// `stop` is set *and* a signal arrives.
///
/// With `trial`, the first frame goes alone: where the driver does not take it, the back end is reported
/// as unavailable before anything is counted.
pub(crate) fn run(
    plan: &Plan,
    trial: bool,
    stop: &AtomicBool,
    ready: &SyncSender<Result<Counters>>,
) -> Result<()> {
    let mut storage = MaybeUninit::uninit();
    let set_up = load(plan, &mut storage).and_then(|mut skeleton| {
        if trial {
            try_one(plan, &mut skeleton)?;
        }
        let (own, shared) = (window(plan, &skeleton)?, window(plan, &skeleton)?);
        Ok((skeleton, own, shared))
    });
    let (skeleton, own, shared) = match set_up {
        Ok(done) => done,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Ok(());
        }
    };
    let _ = ready.send(Ok(Counters::Live(shared)));
    let batch = batch(plan);
    while !stop.load(Ordering::Relaxed) {
        let emitted = own.read().map_or(0, |counts| counts.emitted);
        let left = plan.count.unwrap_or(u64::MAX).saturating_sub(emitted);
        if left == 0 {
            break;
        }
        send(plan, &skeleton, left.min(REPEAT) as u32, batch)?;
    }
    Ok(())
}

/// Sends up to `repeat` frames; a signal ends it early.
fn send(plan: &Plan, skeleton: &skeleton::GenerateSkel<'_>, repeat: u32, batch: u32) -> Result<()> {
    match live_frames::run(skeleton.progs.generate.as_fd(), &plan.template.frame, repeat, batch) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => {
            Err(match error.raw_os_error() {
                Some(libc::EINVAL | libc::EOPNOTSUPP) => Error::Unavailable {
                    name: plan.interface.name.clone(),
                    backend: NAME,
                    why: "this kernel has none (Linux 5.18 was the first)".into(),
                },
                _ => Error::Kernel {
                    name: plan.interface.name.clone(),
                    action: "run the generating program on live frames",
                    source: error,
                },
            })
        }
        _ => Ok(()),
    }
}

/// Sends the first frame, and sets the clock back to the second.
fn try_one(plan: &Plan, skeleton: &mut skeleton::GenerateSkel<'_>) -> Result<()> {
    send(plan, skeleton, 1, 1)?;
    let counts = window(plan, skeleton)?.read().unwrap_or_default();
    if counts.accepted == 0 && counts.nobody_takes_them() {
        return Err(Error::Unavailable {
            name: plan.interface.name.clone(),
            backend: NAME,
            why: "its driver sends no XDP frames (a veth does when its peer is up and has an XDP \
                  program or GRO on)"
                .into(),
        });
    }
    if plan.count != Some(1)
        && let Some(data) = skeleton.maps.bss_data.as_deref_mut()
    {
        data.counters.first = 0;
        data.state.due = 0;
    }
    Ok(())
}

fn window(plan: &Plan, skeleton: &skeleton::GenerateSkel<'_>) -> Result<Window> {
    let map = MapHandle::try_from(&skeleton.maps.bss)
        .map_err(|error| refusal(&plan.interface.name, "read the counters", &error))?;
    let fixed = matches!(plan.sizes, Sizes::Fixed(_));
    Ok(Window { map, fixed_len: fixed.then(|| plan.sizes.max().into()) })
}

fn load<'o>(
    plan: &Plan,
    storage: &'o mut MaybeUninit<OpenObject>,
) -> Result<skeleton::GenerateSkel<'o>> {
    linerate_bpf::log_to_tracing();
    let name = plan.interface.name.as_str();
    let mut open = skeleton::GenerateSkelBuilder::default()
        .open(storage)
        .map_err(|error| refusal(name, "open the generating program", &error))?;
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.plan = encode(plan);
    }
    if let Some(data) = open.maps.bss_data.as_deref_mut() {
        data.state.random = flow_seed(plan.seed);
        data.state.size_random = size_seed(plan.seed);
    }
    let mut skeleton =
        open.load().map_err(|error| refusal(name, "load the generating program", &error))?;
    skeleton.attach().map_err(|error| refusal(name, "trace what the driver refuses", &error))?;
    skeleton
        .maps
        .port
        .update(&0_u32.to_ne_bytes(), &plan.interface.index.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| refusal(name, "redirect to the interface", &error))?;
    Ok(skeleton)
}

fn batch(plan: &Plan) -> u32 {
    match plan.rate.packets(plan.sizes.mean()) {
        None => BATCH,
        Some(rate) => ((rate * BATCH_TIME) as u32).clamp(1, BATCH),
    }
}

fn encode(plan: &Plan) -> types::generate_plan {
    let template = &plan.template;
    let mut header = template.frame[..template.header_len].chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    });
    let addresses =
        |range: &Addresses| types::generate_range { base: range.base(), count: range.count() };
    let ports =
        |range: &Ports| types::generate_range { base: range.first().into(), count: range.count() };
    // 32.32 fixed point.
    let fixed = |seconds: f64| (seconds * 1e9 * 2_f64.powi(32)) as u64;
    let (frame_time, byte_time) = match plan.rate {
        Rate::Max => (0, 0),
        Rate::Packets(rate) => (fixed(1.0 / rate), 0),
        Rate::Bits(rate) => (0, fixed(8.0 / rate)),
    };
    let mut mix = [0; 16];
    let (size_kind, mix_len) = match &plan.sizes {
        Sizes::Fixed(_) => (0, 0),
        Sizes::Range(..) => (1, 0),
        Sizes::Mix(sizes) => {
            mix[..sizes.len()].copy_from_slice(sizes);
            (2, sizes.len() as u32)
        }
    };
    let random = plan.random;
    types::generate_plan {
        template_raw: std::array::from_fn(|_| header.next().unwrap_or(0)),
        fields: [
            ports(&plan.source_ports),
            ports(&plan.destination_ports),
            addresses(&plan.source),
            addresses(&plan.destination),
        ],
        network_sum: template.network_sum,
        transport_sum: template.transport_sum,
        seed: flow_seed(plan.seed),
        flows: plan.flows.unwrap_or(0),
        frame_time,
        byte_time,
        slack: SLACK,
        target: plan.interface.index,
        header_len: template.header_len as u32,
        network_at: template.network_at as u32,
        transport_at: template.transport_at as u32,
        checksum_at: template.checksum_at as u32,
        size_min: plan.sizes.min().into(),
        size_max: plan.sizes.max().into(),
        size_kind,
        mix_len,
        mix,
        ipv6: plan.is_ipv6().into(),
        udp: (plan.transport == Transport::Udp).into(),
        random: [random.source_port, random.destination_port, random.source, random.destination]
            .map(u8::from),
        random_size: random.size.into(),
        random_source_mac: random.source_mac.into(),
        random_destination_mac: random.destination_mac.into(),
        stamp_sequence: (plan.stamp != Stamp::None).into(),
        stamp_time: (plan.stamp == Stamp::Time).into(),
        network_varies: plan.network_varies().into(),
    }
}

fn refusal(name: &str, action: &'static str, error: &libbpf_rs::Error) -> Error {
    match error.kind() {
        ErrorKind::PermissionDenied => Error::Privilege {
            name: name.to_owned(),
            action,
            capabilities: "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON",
            setcap: "cap_bpf,cap_net_admin,cap_perfmon",
        },
        _ => Error::Unavailable {
            name: name.to_owned(),
            backend: NAME,
            why: format!("cannot {action}: {error}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::types;
    use std::mem::{offset_of, size_of};

    #[test]
    fn structures_are_those_of_the_header() {
        assert_eq!(size_of::<types::generate_plan>(), 280);
        assert_eq!(size_of::<types::generate_range>(), 16);
        assert_eq!(size_of::<types::generate_counters>(), 64);
        assert_eq!(offset_of!(types::generate_plan, fields), 80);
        assert_eq!(offset_of!(types::generate_plan, network_sum), 144);
        assert_eq!(offset_of!(types::generate_plan, target), 200);
        assert_eq!(offset_of!(types::generate_plan, mix), 236);
        assert_eq!(offset_of!(types::generate_plan, ipv6), 268);
        assert_eq!(offset_of!(types::generate_counters, driver_error), 56);
    }
}
