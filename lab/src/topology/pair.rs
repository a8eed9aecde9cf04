//! A sending and a receiving host, joined by a veth pair.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use linerate_net::packet_socket;
use linerate_testkit::{Interface, Namespace, Veth, VethOptions};

use crate::interrupt;
use crate::measure::cores::Cores;
use crate::measure::process::Running;

pub(crate) const SENDER: &str = "out0";
pub(crate) const RECEIVER: &str = "in0";
pub(crate) const SENDER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The receiving host's address, where it has one.
pub(crate) const RECEIVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// A sending and a receiving host, joined by a veth pair, with fixed neighbours and addresses of
/// the benchmark range 198.18.0.0/15 (RFC 2544).
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) sender: Namespace,
    pub(crate) receiver: Namespace,
    /// The veth pair: `a` sends, `b` receives.
    pub(crate) cable: Veth,
    pub(crate) cores: Cores,
}

impl Pair {
    /// Builds the hosts. The receiving interface has its NAPI on (through GRO), which XDP's live
    /// frames need when no XDP program is attached there.
    pub(crate) fn build() -> Result<Self> {
        Self::with_queues(1)
    }

    /// The same with this many receive and transmit queues at each end. A CPU sends to the queue of its number.
    pub(crate) fn with_queues(queues: u32) -> Result<Self> {
        if !linerate_testkit::is_root() {
            bail!(
                "an experiment creates network namespaces, which takes CAP_SYS_ADMIN and \
                 CAP_NET_ADMIN: run it as root (sudo linerate lab …)"
            );
        }
        let (sender, receiver) = (Namespace::create("sender")?, Namespace::create("receiver")?);
        let options = VethOptions { queues, ..VethOptions::default() };
        let cable = Veth::create(&sender, SENDER, &receiver, RECEIVER, options)?;
        cable.a.set_offloads(false)?;
        cable.b.set_offloads(false)?;
        cable.b.set_gro(true)?;
        cable.a.add_address(SENDER_ADDRESS.into(), 24)?;
        cable.a.add_neighbour(RECEIVER_ADDRESS.into(), cable.b.mac())?;
        Ok(Self { sender, receiver, cable, cores: Cores::choose() })
    }

    /// Gives the receiving host its address, for traffic that goes through its network stack.
    pub(crate) fn add_receiver_address(&self) -> Result<()> {
        self.cable.b.add_address(RECEIVER_ADDRESS.into(), 24)?;
        self.cable.b.add_neighbour(SENDER_ADDRESS.into(), self.cable.a.mac())?;
        Ok(())
    }

    /// The driver of the receiving interface, by `ethtool -i`, or its kind by `ip -d link`, which a
    /// virtual interface has instead of a driver; what it is called when neither can tell.
    pub(crate) fn driver(&self) -> String {
        let said = |program: &str, words: &[&str]| {
            let output = self.receiver.command(program).args(words).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let by_ethtool = || {
            let said = said("ethtool", &["-i", RECEIVER])?;
            Some(said.lines().find_map(|line| line.strip_prefix("driver:"))?.trim().to_owned())
        };
        let by_ip = || {
            let said = said("ip", &["-json", "-details", "link", "show", RECEIVER])?;
            let links: serde_json::Value = serde_json::from_str(&said).ok()?;
            Some(links[0]["linkinfo"]["info_kind"].as_str()?.to_owned())
        };
        by_ethtool().or_else(by_ip).unwrap_or_else(|| "not known (no ethtool, no ip)".into())
    }

    /// Waits until `program` listens on the receiving interface: it has an XDP program there, or a packet
    /// socket is bound to it. This is the same for every capture program.
    pub(crate) fn wait_until_listening(&self, program: &mut Running) -> Result<()> {
        let listening =
            || Ok(self.cable.b.has_xdp()? || has_packet_socket(&self.receiver, &self.cable.b)?);
        program.wait_until("a capture to begin", Duration::from_secs(20), listening)?;
        // Rings are set up right after; a frame that is sent before is lost.
        interrupt::sleep(Duration::from_millis(300))
    }

    /// Waits until `program` has attached a tracing program.
    pub(crate) fn wait_until_tracing(&self, program: &mut Running) -> Result<()> {
        let descriptors = PathBuf::from(format!("/proc/{}/fdinfo", program.pid()));
        let tracing = || {
            // It may have ended, or closed a descriptor meanwhile.
            let infos = fs::read_dir(&descriptors).into_iter().flatten().flatten();
            let infos = infos.filter_map(|entry| fs::read_to_string(entry.path()).ok());
            Ok(infos.into_iter().any(|info| info.contains("link_type:\ttracing")))
        };
        program.wait_until("a trace to begin", Duration::from_secs(20), tracing)?;
        interrupt::sleep(Duration::from_millis(300))
    }

    /// Waits until the receiving interface is free again: no XDP program, no packet socket.
    pub(crate) fn wait_until_free(&self) -> Result<()> {
        let free =
            || Ok(!self.cable.b.has_xdp()? && !has_packet_socket(&self.receiver, &self.cable.b)?);
        interrupt::wait_until("a capture to leave the interface", Duration::from_secs(10), free)
    }
}

fn has_packet_socket(host: &Namespace, interface: &Interface) -> Result<bool> {
    let index = Some(interface.index());
    Ok(host.run(packet_socket::all)??.iter().any(|socket| socket.interface == index))
}
