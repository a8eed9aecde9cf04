//! The live-frame backend: loads the generating program for a run and runs it.

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, OpenObject};
use linerate_bpf::live_frames;
use linerate_net::privilege;
use nix::libc;

use crate::config::Config;
use crate::counters::{Counters, Statistics};
use crate::fields::{Addresses, Ports};
use crate::headers::HeaderTemplate;
use crate::options::{PayloadHeader, Transport};
use crate::random::{flow_seed, size_seed};
use crate::{Error, Rate, Result, Sizes};

use skeleton::types;

include!(concat!(env!("OUT_DIR"), "/generate.rs"));

/// Longest frame that fits in a page with the kernel's headroom and tailroom.
pub(crate) const MAX_FRAME: u16 = 3408;

/// Below this rate a program that waits its turn with softirqs off would hold its CPU for longer than
/// a fifth of a millisecond.
pub(crate) const MIN_RATE: f64 = 5_000.0;

const BACKEND_NAME: &str = "XDP live frames";

/// Frames of one batch at full speed; more gain nothing and delay everything else on the CPU.
const BATCH: u32 = 64;

/// The longest time that one paced batch may take, in seconds: softirqs are off during a batch.
const MAX_BATCH_TIME: f64 = 50e-6;

/// The most runs of the program in one system call; the kernel counts in 32 bits.
const MAX_REPEAT: u64 = 1 << 30;

/// The counters of a run in a BPF map.
#[derive(Debug)]
struct MapCounters {
    map: MapHandle,
    /// The length of every frame, where they are all alike: then the program does not count bytes.
    fixed_len: Option<u64>,
}

impl Counters for MapCounters {
    /// The kernel writes the counters while they are read.
    fn read(&self) -> Option<Statistics> {
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
        Some(Statistics {
            emitted,
            bytes: self.fixed_len.map_or(counted, |len| emitted.saturating_mul(len)),
            accepted: word(offset_of!(types::generate_counters, accepted))?,
            refused: word(offset_of!(types::generate_counters, refused))?
                + word(offset_of!(types::generate_counters, redirect_errors))?,
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
/// With `probe`, the first frame is sent alone: if the driver does not accept it, the backend is reported
/// as unavailable before anything is counted.
pub(crate) fn run(
    config: &Config,
    probe: bool,
    stop: &AtomicBool,
    ready: &SyncSender<Result<Arc<dyn Counters>>>,
) -> Result<()> {
    let headers = HeaderTemplate::new(config);
    let mut storage = MaybeUninit::uninit();
    let set_up = load(config, &headers, &mut storage).and_then(|mut skeleton| {
        if probe {
            probe_driver(config, &headers.frame, &mut skeleton)?;
        }
        let (own, shared) = (map_counters(config, &skeleton)?, map_counters(config, &skeleton)?);
        Ok((skeleton, own, shared))
    });
    let (skeleton, own, shared) = match set_up {
        Ok(done) => done,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Ok(());
        }
    };
    let _ = ready.send(Ok(Arc::new(shared)));
    let batch = batch(config);
    while !stop.load(Ordering::Relaxed) {
        let left = match config.count {
            None => u64::MAX,
            Some(count) => count.saturating_sub(emitted(config, &own)?),
        };
        if left == 0 {
            break;
        }
        send(config, &headers.frame, &skeleton, left.min(MAX_REPEAT) as u32, batch)?;
    }
    Ok(())
}

/// How many frames were sent: without that, nobody knows when to stop.
fn emitted(config: &Config, counters: &MapCounters) -> Result<u64> {
    let counts = counters.read().ok_or_else(|| Error::Kernel {
        name: config.interface.name.clone(),
        action: "read the counters of the generating program",
        source: io::Error::last_os_error(),
    })?;
    Ok(counts.emitted)
}

/// Sends up to `repeat` frames; a signal ends it early.
fn send(
    config: &Config,
    frame: &[u8],
    skeleton: &skeleton::GenerateSkel<'_>,
    repeat: u32,
    batch: u32,
) -> Result<()> {
    match live_frames::run(skeleton.progs.generate.as_fd(), frame, repeat, batch) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => {
            Err(match error.raw_os_error() {
                Some(libc::EINVAL | libc::EOPNOTSUPP) => Error::Unavailable {
                    name: config.interface.name.clone(),
                    backend: BACKEND_NAME,
                    reason: "this kernel has none (Linux 5.18 was the first)".into(),
                },
                _ => Error::Kernel {
                    name: config.interface.name.clone(),
                    action: "run the generating program on live frames",
                    source: error,
                },
            })
        }
        _ => Ok(()),
    }
}

/// Sends the first frame, and sets the clock back to the second.
fn probe_driver(
    config: &Config,
    frame: &[u8],
    skeleton: &mut skeleton::GenerateSkel<'_>,
) -> Result<()> {
    send(config, frame, skeleton, 1, 1)?;
    let counts = map_counters(config, skeleton)?.read().unwrap_or_default();
    if counts.accepted == 0 && counts.cannot_send() {
        return Err(Error::Unavailable {
            name: config.interface.name.clone(),
            backend: BACKEND_NAME,
            reason:
                "its driver sends no XDP frames (a veth does when its peer is up and has an XDP \
                  program or GRO on)"
                    .into(),
        });
    }
    if config.count != Some(1)
        && let Some(data) = skeleton.maps.bss_data.as_deref_mut()
    {
        data.counters.first = 0;
        data.state.due = 0;
    }
    Ok(())
}

fn map_counters(config: &Config, skeleton: &skeleton::GenerateSkel<'_>) -> Result<MapCounters> {
    let map = MapHandle::try_from(&skeleton.maps.bss)
        .map_err(|error| refusal(&config.interface.name, "read the counters", &error))?;
    let fixed = matches!(config.sizes, Sizes::Fixed(_));
    Ok(MapCounters { map, fixed_len: fixed.then(|| config.sizes.max().into()) })
}

fn load<'o>(
    config: &Config,
    headers: &HeaderTemplate,
    storage: &'o mut MaybeUninit<OpenObject>,
) -> Result<skeleton::GenerateSkel<'o>> {
    linerate_bpf::log_to_tracing();
    let name = config.interface.name.as_str();
    let mut open = skeleton::GenerateSkelBuilder::default()
        .open(storage)
        .map_err(|error| refusal(name, "open the generating program", &error))?;
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.config = encode(config, headers);
    }
    if let Some(data) = open.maps.bss_data.as_deref_mut() {
        data.state.random = flow_seed(config.seed);
        data.state.size_random = size_seed(config.seed);
    }
    let order = config.order.as_deref().unwrap_or_default();
    if !order.is_empty() {
        open.maps
            .order
            .set_max_entries(order.len() as u32)
            .map_err(|error| refusal(name, "size the order of flows", &error))?;
    }
    let mut skeleton =
        open.load().map_err(|error| refusal(name, "load the generating program", &error))?;
    skeleton.attach().map_err(|error| refusal(name, "trace what the driver refuses", &error))?;
    skeleton
        .maps
        .port
        .update(&0_u32.to_ne_bytes(), &config.interface.index.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| refusal(name, "redirect to the interface", &error))?;
    if !order.is_empty() {
        let bytes = |words: &mut dyn Iterator<Item = u32>| -> Vec<u8> {
            words.flat_map(u32::to_ne_bytes).collect()
        };
        let (count, any) = (order.len() as u32, MapFlags::ANY);
        let (places, flows) = (bytes(&mut (0..count)), bytes(&mut order.iter().copied()));
        skeleton
            .maps
            .order
            .update_batch(&places, &flows, count, any, any)
            .map_err(|error| refusal(name, "write the order of flows", &error))?;
    }
    Ok(skeleton)
}

fn batch(config: &Config) -> u32 {
    match config.rate.packets(config.sizes.mean()) {
        None => BATCH,
        Some(rate) => ((rate * MAX_BATCH_TIME) as u32).clamp(1, BATCH),
    }
}

fn encode(config: &Config, headers: &HeaderTemplate) -> types::generate_config {
    let mut words = headers.frame[..headers.header_len].chunks(8).map(|bytes| {
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
    let (frame_time, byte_time) = match config.rate {
        Rate::Max => (0, 0),
        Rate::Packets(rate) => (fixed(1.0 / rate), 0),
        Rate::Bits(rate) => (0, fixed(8.0 / rate)),
    };
    let mut mix = [0; 16];
    let (size_kind, mix_len) = match &config.sizes {
        Sizes::Fixed(_) => (0, 0),
        Sizes::Range(..) => (1, 0),
        Sizes::Mix(sizes) => {
            mix[..sizes.len()].copy_from_slice(sizes);
            (2, sizes.len() as u32)
        }
    };
    let random = config.random;
    types::generate_config {
        headers_raw: std::array::from_fn(|_| words.next().unwrap_or(0)),
        fields: [
            ports(&config.source_ports),
            ports(&config.destination_ports),
            addresses(&config.source),
            addresses(&config.destination),
        ],
        network_sum: headers.network_sum,
        transport_sum: headers.transport_sum,
        seed: flow_seed(config.seed),
        flows: config.flows.unwrap_or(0),
        order_mask: config.order.as_ref().map_or(0, |order| order.len() as u64 - 1),
        frame_time,
        byte_time,
        max_catch_up: config.max_catch_up(),
        target: config.interface.index,
        header_len: headers.header_len as u32,
        network_at: headers.network_at as u32,
        transport_at: headers.transport_at as u32,
        checksum_at: headers.checksum_at as u32,
        size_min: config.sizes.min().into(),
        size_max: config.sizes.max().into(),
        size_kind,
        mix_len,
        mix,
        ipv6: config.is_ipv6().into(),
        udp: (config.transport == Transport::Udp).into(),
        random: [random.source_port, random.destination_port, random.source, random.destination]
            .map(u8::from),
        random_size: random.size.into(),
        random_source_mac: random.source_mac.into(),
        random_destination_mac: random.destination_mac.into(),
        stamp_sequence: (config.stamp != PayloadHeader::None).into(),
        stamp_time: (config.stamp == PayloadHeader::Time).into(),
        network_varies: config.network_varies().into(),
    }
}

/// What loading and running the program needs.
const CAPABILITIES: &str = "CAP_BPF,CAP_NET_ADMIN,CAP_PERFMON";

fn refusal(name: &str, action: &'static str, error: &libbpf_rs::Error) -> Error {
    let verifier = linerate_bpf::verifier::refusal(action, error);
    let is_refused = verifier.is_some();
    let reason =
        verifier.map_or_else(|| format!("cannot {action}: {error}"), |error| error.to_string());
    match error.kind() {
        ErrorKind::PermissionDenied if !is_refused && privilege::lacks(CAPABILITIES) => {
            Error::Privilege { name: name.to_owned(), action, capabilities: CAPABILITIES }
        }
        _ => Error::Unavailable { name: name.to_owned(), backend: BACKEND_NAME, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::types;
    use std::mem::{offset_of, size_of};

    #[test]
    fn structures_are_those_of_the_header() {
        assert_eq!(size_of::<types::generate_config>(), 288);
        assert_eq!(size_of::<types::generate_range>(), 16);
        assert_eq!(size_of::<types::generate_counters>(), 64);
        assert_eq!(offset_of!(types::generate_config, fields), 80);
        assert_eq!(offset_of!(types::generate_config, network_sum), 144);
        assert_eq!(offset_of!(types::generate_config, target), 208);
        assert_eq!(offset_of!(types::generate_config, mix), 244);
        assert_eq!(offset_of!(types::generate_config, ipv6), 276);
        assert_eq!(offset_of!(types::generate_counters, driver_error), 56);
    }
}
