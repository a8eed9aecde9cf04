//! Forwarding baselines: the accelerator with its sessions in hash maps, and a stateless one that asks the
//! kernel's routing table (FIB) for each packet.
//!
//! Both are compiled with the accelerator's own headers and load only here. They attach to interfaces, send
//! heartbeats and age sessions; unlike the daemon they pin nothing, watch no changes and fix no settings.

pub mod hashed;

use std::fmt;
use std::io::{ErrorKind, Write};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapType};
use linerate_forward::config::Lifetime;
use linerate_forward::reason::Reason;
use linerate_forward::runtime::heartbeat::Heartbeat;
use linerate_forward::runtime::program::{
    Port, PortOptions, Programs, Sizes, XDP_ONLY, enable_egress, fresh_seeds,
};
use linerate_forward::table::ageing::{Limits, TICK_INTERVAL};
use linerate_forward::table::clock::Clock;
use linerate_forward::table::control::Control;
use linerate_forward::table::layout;
use serde_json::{Value, json};

use self::hashed::{Hashed, HashedAgeing};
use crate::interrupt;

mod hashed_skeleton {
    include!(concat!(env!("OUT_DIR"), "/forward_hashed.rs"));
    pub(super) use skeleton::ForwardHashedSkelBuilder;
}

mod fib_skeleton {
    include!(concat!(env!("OUT_DIR"), "/forward_fib.rs"));
    pub(super) use skeleton::ForwardFibSkelBuilder;
}

/// The abstract socket of the network namespace at which a baseline tells its status.
const STATUS: &[u8] = b"linerate-lab-forward";
/// After this time without a heartbeat the programs leave every packet to the kernel.
const FAIL_OPEN_AFTER: Duration = Duration::from_secs(10);
/// Packets of a session that the kernel sees before it is learned, as in the product.
const ADMISSION: u32 = 2;

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Baseline {
    /// Sessions in one hash map, with atomic counters.
    Shared,
    /// Sessions and counters in a per-CPU hash map.
    PerCpu,
    /// Sessions in a hash map, counters in a per-CPU LRU hash map.
    Split,
    /// No sessions: `bpf_fib_lookup` for each packet.
    Fib,
}

/// Where hash maps count; `enum design` of `bpf/hashed.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapDesign {
    /// In the session, by atomic additions.
    Shared,
    /// In a session for each CPU.
    PerCpu,
    /// For each CPU, beside the session.
    Split,
}

impl Baseline {
    /// The design of its hash maps; `None` without sessions.
    pub fn design(self) -> Option<MapDesign> {
        match self {
            Self::Shared => Some(MapDesign::Shared),
            Self::PerCpu => Some(MapDesign::PerCpu),
            Self::Split => Some(MapDesign::Split),
            Self::Fib => None,
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::PerCpu => "per-cpu",
            Self::Split => "split",
            Self::Fib => "fib",
        }
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a baseline is started with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Sessions that the maps have room for.
    pub max_sessions: u64,
    /// Idle timeout of TCP and UDP alike.
    pub idle: Duration,
    /// Maximum age of a session.
    pub lifetime: Lifetime,
    /// Time after which a packet of each session goes to the kernel.
    pub revalidate: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let (idle, revalidate) = (Duration::from_secs(600), Duration::from_secs(3600));
        Self { max_sessions: 1 << 16, idle, lifetime: Lifetime::Off, revalidate }
    }
}

/// A baseline that forwards until it is dropped.
#[derive(Debug)]
pub struct Accelerator {
    programs: Programs,
    control: Control,
    heartbeat: Heartbeat,
    sessions: Option<(Arc<Hashed>, HashedAgeing)>,
    _ports: Vec<Port>,
}

impl Accelerator {
    /// Loads `baseline` and attaches it to these interfaces of the network namespace of the calling thread.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(baseline: Baseline, interfaces: &[String], options: &Options) -> Result<Self> {
        let programs = match baseline.design() {
            Some(design) => load_hashed(design, options.max_sessions),
            None => load_fib(),
        }?;
        let control = Control::open(&programs.maps)?;
        let clock = Clock::from_boot_time();
        control.set_revalidate_after(options.revalidate, &clock);
        let mut heartbeat = Heartbeat::new(&control, FAIL_OPEN_AFTER, &clock);
        let clock = heartbeat.beat(&programs, &control)?.unwrap_or(clock);
        let limits = Limits { tcp: options.idle, udp: options.idle, lifetime: options.lifetime };
        let open = |design| {
            let hashed = Arc::new(Hashed::open(&programs, design)?);
            let ageing = HashedAgeing::new(Arc::clone(&hashed), limits, clock)?;
            Ok::<_, anyhow::Error>((hashed, ageing))
        };
        let sessions = baseline.design().map(open).transpose()?;
        let ports = (0..).zip(interfaces).map(|(port, name)| attach(&programs, name, port));
        let _ports = ports.collect::<Result<_>>()?;
        Ok(Self { programs, control, heartbeat, sessions, _ports })
    }

    /// Sends a heartbeat and ages sessions, if it is time to. Call it every [`TICK_INTERVAL`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn tick(&mut self) -> Result<()> {
        self.heartbeat.beat(&self.programs, &self.control)?;
        if let Some((_, ageing)) = &mut self.sessions {
            ageing.tick()?;
        }
        Ok(())
    }

    /// Its programs and maps.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Its sessions; `None` without any.
    pub fn sessions(&self) -> Option<&Hashed> {
        self.sessions.as_ref().map(|(hashed, _)| &**hashed)
    }

    /// Its control page.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Packets that went to the kernel for this reason.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn slow_path(&self, reason: Reason) -> Result<u64> {
        let map = self.programs.maps.get("reasons")?;
        let values = map.lookup_percpu(&(reason as u32).to_ne_bytes(), MapFlags::ANY)?;
        let number = |value: &Vec<u8>| value.as_slice().try_into().map_or(0, u64::from_ne_bytes);
        Ok(values.iter().flatten().map(number).sum())
    }

    /// Its status, in the form of `linerate forward status --json` as far as it goes.
    fn status(&self) -> Result<Value> {
        let mut active = 0u64;
        if let Some((hashed, _)) = &self.sessions {
            hashed.for_each(|record| active += u64::from(!record.is_ended()))?;
        }
        let reason = |reason: &Reason| {
            Ok(json!({ "name": reason.name(), "packets": self.slow_path(*reason)? }))
        };
        let reasons = Reason::ALL.iter().map(reason).collect::<Result<Vec<_>>>()?;
        Ok(json!({ "sessions": { "active": active }, "reasons": reasons }))
    }
}

/// Forwards between these interfaces, and tells [`status`] who asks, until a signal ends it.
///
/// # Errors
/// When the kernel refuses, or another baseline runs in this network namespace.
pub fn run(baseline: Baseline, interfaces: &[String], options: &Options) -> Result<()> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(STATUS)?)
        .context("cannot listen for who asks for the status")?;
    listener.set_nonblocking(true)?;
    let mut accelerator = Accelerator::start(baseline, interfaces, options)?;
    while !interrupt::happened() {
        accelerator.tick()?;
        match listener.accept() {
            Ok((mut stream, _)) => writeln!(stream, "{}", accelerator.status()?)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(TICK_INTERVAL / 5);
            }
            Err(error) => return Err(error).context("cannot take who asks for the status"),
        }
    }
    Ok(())
}

/// The status of the baseline that runs in the network namespace of the calling thread.
///
/// # Errors
/// When none runs there.
pub fn status() -> Result<Value> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(STATUS)?)
        .context("no forwarding baseline runs here")?;
    Ok(serde_json::from_reader(stream)?)
}

fn load_hashed(design: MapDesign, max_sessions: u64) -> Result<Programs> {
    let mut storage = MaybeUninit::uninit();
    let mut open = hashed_skeleton::ForwardHashedSkelBuilder::default().open(&mut storage)?;
    let candidates = Sizes::of(max_sessions).candidates;
    if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
        constants.design = design as u32;
        constants.candidate_mask = candidates - 1;
        constants.hz = Clock::from_boot_time().hz();
    }
    if let Some(control) = open.maps.data_control_data.as_deref_mut() {
        let control = &mut control.control;
        (control.generation, control.admission) = (1, ADMISSION);
        (control.seeds, control.abi) = (fresh_seeds()?, layout::ABI);
    }
    let sessions = u32::try_from(max_sessions).context("too many sessions")?;
    open.maps.candidates.set_max_entries(candidates)?;
    open.maps.hashed.set_max_entries(sessions)?;
    match design {
        MapDesign::Shared => {}
        MapDesign::PerCpu => open.maps.hashed.set_type(MapType::PercpuHash)?,
        MapDesign::Split => open.maps.split_counters.set_max_entries(sessions)?,
    }
    let loaded = open.load().context("the kernel refuses the programs with hash maps")?;
    Ok(Programs::of_object(loaded.object())?)
}

fn load_fib() -> Result<Programs> {
    let mut storage = MaybeUninit::uninit();
    let mut open = fib_skeleton::ForwardFibSkelBuilder::default().open(&mut storage)?;
    if let Some(control) = open.maps.data_control_data.as_deref_mut() {
        let control = &mut control.control;
        (control.generation, control.admission) = (1, ADMISSION);
        (control.seeds, control.abi) = (fresh_seeds()?, layout::ABI);
    }
    let loaded = open.load().context("the kernel refuses the FIB program")?;
    Ok(Programs::of_object(loaded.object())?)
}

fn attach(programs: &Programs, name: &str, port: u32) -> Result<Port> {
    let link = linerate_net::link::by_name(name)?;
    let mac = link.address.with_context(|| format!("{name} has no Ethernet address"))?.0;
    let options = PortOptions {
        name: name.to_owned(),
        ifindex: link.index,
        mac,
        port,
        attach: None,
        flags: XDP_ONLY,
    };
    let attached = Port::attach(programs, &options)?;
    enable_egress(programs, &options)?;
    // The FIB program finds ports by their interface index.
    if let Ok(exits) = programs.maps.get("exits") {
        let index = link.index.to_ne_bytes();
        exits.update(&index, &index, MapFlags::ANY)?;
    }
    Ok(attached)
}
