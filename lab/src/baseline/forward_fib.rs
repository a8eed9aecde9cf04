//! The stateless rival of the accelerator: a program that asks the kernel's routing table (FIB) for each packet.
//!
//! It is compiled with the accelerator's own headers and loads only here. It sends heartbeats; unlike the daemon it
//! pins nothing, watches no changes and fixes no settings.

use std::io::{ErrorKind, Write};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};
use linerate_forward::reason::Reason;
use linerate_forward::runtime::heartbeat::Heartbeat;
use linerate_forward::runtime::program::{
    PortOptions, PortPrograms, Programs, XDP_ONLY, enable_egress, fresh_seeds,
};
use linerate_forward::table::ageing::TICK_INTERVAL;
use linerate_forward::table::clock::Clock;
use linerate_forward::table::control::Control;
use linerate_forward::table::layout;
use serde_json::{Value, json};

use crate::interrupt;

mod program {
    include!(concat!(env!("OUT_DIR"), "/forward_fib.rs"));
    pub(super) use skeleton::ForwardFibSkelBuilder;
}

/// The abstract socket of the network namespace at which it tells its status.
const STATUS: &[u8] = b"linerate-lab-forward";
/// After this time without a heartbeat the program leaves every packet to the kernel.
const FAIL_OPEN_AFTER: Duration = Duration::from_secs(10);

/// It forwards until it is dropped.
#[derive(Debug)]
pub struct Accelerator {
    programs: Programs,
    control: Control,
    heartbeat: Heartbeat,
    _ports: Vec<PortPrograms>,
}

impl Accelerator {
    /// Loads the program and attaches it to these interfaces of the network namespace of the calling thread.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(interfaces: &[String]) -> Result<Self> {
        let programs = load()?;
        let control = Control::open(&programs.maps)?;
        let clock = Clock::from_boot_time();
        let mut heartbeat = Heartbeat::new(&control, FAIL_OPEN_AFTER, &clock);
        heartbeat.beat(&programs, &control)?;
        let ports = (0..).zip(interfaces).map(|(port, name)| attach(&programs, name, port));
        let _ports = ports.collect::<Result<_>>()?;
        Ok(Self { programs, control, heartbeat, _ports })
    }

    /// Sends a heartbeat, if it is time to. Call it every [`TICK_INTERVAL`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn tick(&mut self) -> Result<()> {
        self.heartbeat.beat(&self.programs, &self.control)?;
        Ok(())
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
        let reason = |reason: &Reason| {
            Ok(json!({ "name": reason.name(), "packets": self.slow_path(*reason)? }))
        };
        let reasons = Reason::ALL.iter().map(reason).collect::<Result<Vec<_>>>()?;
        Ok(json!({ "reasons": reasons }))
    }
}

/// Forwards between these interfaces, and tells [`status`] who asks, until a signal ends it.
///
/// # Errors
/// When the kernel refuses, or another one runs in this network namespace.
pub fn run(interfaces: &[String]) -> Result<()> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(STATUS)?)
        .context("cannot listen for who asks for the status")?;
    listener.set_nonblocking(true)?;
    let mut accelerator = Accelerator::start(interfaces)?;
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

/// The status of the one that runs in the network namespace of the calling thread.
///
/// # Errors
/// When none runs there.
pub fn status() -> Result<Value> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(STATUS)?)
        .context("no forwarding baseline runs here")?;
    Ok(serde_json::from_reader(stream)?)
}

fn load() -> Result<Programs> {
    let mut storage = MaybeUninit::uninit();
    let mut open = program::ForwardFibSkelBuilder::default().open(&mut storage)?;
    if let Some(control) = open.maps.data_control_data.as_deref_mut() {
        let control = &mut control.control;
        control.generation = 1;
        (control.seeds, control.abi) = (fresh_seeds()?, layout::ABI);
    }
    let loaded = open.load().context("the kernel refuses the FIB program")?;
    Ok(Programs::of_object(loaded.object())?)
}

fn attach(programs: &Programs, name: &str, port: u32) -> Result<PortPrograms> {
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
    let attached = PortPrograms::attach(programs, &options)?;
    enable_egress(programs, &options)?;
    // The program finds ports by their interface index.
    let index = link.index.to_ne_bytes();
    programs.maps.get("exits")?.update(&index, &index, MapFlags::ANY)?;
    Ok(attached)
}
