//! Two hosts, a cable, and who works on which core.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use linerate_ring::cpu;
use linerate_ring::packet::Listener;
use linerate_testkit::{Command, Interface, Namespace, Veth, VethOptions};

use crate::interrupt;
use crate::process::Running;

/// The name of the sending interface.
pub const SENDER: &str = "out0";
/// The name of the receiving interface.
pub const RECEIVER: &str = "in0";

/// A sending and a receiving host, joined by a veth pair, with fixed neighbours and addresses of
/// the benchmark range 198.18.0.0/15 (RFC 2544).
#[derive(Debug)]
pub struct Bench {
    /// The sending host.
    pub sender: Namespace,
    /// The receiving host.
    pub receiver: Namespace,
    /// The cable: `a` sends, `b` receives.
    pub cable: Veth,
    /// Who works where.
    pub cores: Cores,
}

/// The cores of the generator (and with it of the receiving interface's NAPI, which runs where the
/// frames are handed over) and of the consumer.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    /// The generator's.
    pub generator: usize,
    /// The consumer's; the same one on a machine with a single core.
    pub consumer: usize,
}

impl Cores {
    /// The first two cores that this process may use.
    pub fn choose() -> Self {
        let allowed = cpu::allowed().unwrap_or_default();
        let generator = allowed.first().copied().unwrap_or(0);
        Self { generator, consumer: allowed.get(1).copied().unwrap_or(generator) }
    }
}

impl Bench {
    /// Lays the hosts. The receiving interface has its NAPI on (through GRO), which XDP's live
    /// frames need when no XDP program is attached there.
    ///
    /// # Errors
    /// Without root.
    pub fn lay() -> Result<Self> {
        if !linerate_testkit::is_root() {
            bail!(
                "an experiment lays network namespaces, which takes CAP_SYS_ADMIN and \
                 CAP_NET_ADMIN: run it as root (sudo linerate lab …)"
            );
        }
        let (sender, receiver) = (Namespace::create("sender")?, Namespace::create("receiver")?);
        let cable = Veth::create(&sender, SENDER, &receiver, RECEIVER, VethOptions::default())?;
        cable.a.set_offloads(false)?;
        cable.b.set_offloads(false)?;
        cable.b.set_gro(true)?;
        let (here, there) = ("198.18.0.1".parse()?, "198.18.0.2".parse()?);
        cable.a.add_address(here, 24)?;
        cable.a.add_neighbour(there, cable.b.mac())?;
        Ok(Self { sender, receiver, cable, cores: Cores::choose() })
    }

    /// The driver of the receiving interface, by `ethtool -i`, or its kind by `ip -d link`, which a
    /// virtual interface has instead of a driver; what it is called when neither can tell.
    pub fn driver(&self) -> String {
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

    /// This very command, to run in `host` on `core`.
    ///
    /// # Errors
    /// When its own file is gone.
    pub fn linerate<S: Into<OsString>>(
        &self,
        host: &Namespace,
        core: usize,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Command> {
        let program = std::env::current_exe().context("cannot find the linerate program")?;
        let mut command = host.tied(program);
        command.args(arguments.into_iter().map(Into::into)).cpus([core]);
        Ok(command)
    }

    /// Waits until `program` listens on the receiving interface: it has an XDP program there, or a
    /// packet socket is bound to it. This is the same for every capture program, whatever it says.
    ///
    /// # Errors
    /// When it ends first, or does not get there.
    pub fn wait_until_listening(&self, program: &mut Running) -> Result<()> {
        let listening = || {
            program.check()?;
            Ok(self.cable.b.has_xdp()? || has_packet_socket(&self.receiver, &self.cable.b)?)
        };
        interrupt::wait_until("a capture to begin", Duration::from_secs(20), listening)?;
        // Rings are set up right after; a frame that is sent before is lost to nobody's fault.
        interrupt::sleep(Duration::from_millis(300))
    }

    /// Waits until the receiving interface is free again: no XDP program, no packet socket.
    ///
    /// # Errors
    /// When a capture left something attached, which is a defect.
    pub fn wait_until_free(&self) -> Result<()> {
        let free =
            || Ok(!self.cable.b.has_xdp()? && !has_packet_socket(&self.receiver, &self.cable.b)?);
        interrupt::wait_until("a capture to leave the interface", Duration::from_secs(10), free)
    }
}

fn has_packet_socket(host: &Namespace, interface: &Interface) -> Result<bool> {
    let index = Some(interface.index());
    Ok(host.run(Listener::all)??.iter().any(|listener| listener.interface == index))
}
