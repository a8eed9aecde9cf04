//! [`probe`]: what AF_XDP can do on an interface, without touching its traffic.

use linerate_net::{Interface, ethtool};

use crate::{Error, Result};
use linerate_bpf::steer::{self, Options, TimestampSource};
use linerate_bpf::xdp::{open_socket, require_free};
use linerate_net::privilege::XDP_CAPABILITIES;

/// What AF_XDP would give on an interface.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Probe {
    /// Why it does not work at all, if it does not: a missing privilege (with how to grant it), a
    /// kernel without it, a foreign XDP program, no such interface.
    pub unavailable: Option<Error>,
    /// The kernel reports the driver's XDP features (`NETDEV_A_DEV_XDP_FEATURES`, Linux 6.3).
    pub features_reported: bool,
    /// The driver says that it runs XDP programs itself.
    pub native: bool,
    /// The driver says that it shares frames without a copy.
    pub zero_copy: bool,
    /// The driver says that it receives multi-buffer frames into XDP.
    pub multi_buffer: bool,
    /// The driver answers the receive metadata kfuncs, so that [`TimestampSource::Hardware`] may work.
    pub metadata: bool,
    /// Receive queues in use.
    pub queues: u32,
    /// Why not better, one sentence each.
    pub why: Vec<String>,
}

/// Tries what can be tried without taking a frame: opens a socket, loads the steering program, asks
/// the driver what it can do. Nothing is attached.
pub fn probe(interface: &str) -> Probe {
    let mut probe = Probe { queues: 1, ..Probe::default() };
    if let Err(error) = probe.fill(interface) {
        probe.unavailable = Some(error);
    }
    probe
}

impl Probe {
    /// Why frames cannot be taken in the driver, as a clause; `None` where they can.
    pub fn why_not_native(&self) -> Option<String> {
        match &self.unavailable {
            Some(obstacle) => Some(format!("XDP is unavailable: {obstacle}")),
            None if self.native => None,
            None if !self.features_reported => Some(
                "the kernel does not report whether the driver has native XDP (Linux does since 6.3)".to_owned(),
            ),
            None => Some(
                "the driver has no native XDP, and generic XDP runs in the stack, after GRO, and is no faster"
                    .to_owned(),
            ),
        }
    }

    fn fill(&mut self, name: &str) -> Result<()> {
        let interface = Interface::open(name)?;
        self.queues = interface.rx_queues()?;
        require_free(name)?;
        open_socket(&format!("receive by XDP on {name}"), XDP_CAPABILITIES)?;
        let steer = steer::Program::load(
            name,
            &Options { timestamps: TimestampSource::Hardware, ..Options::default() },
        )?;
        self.metadata = steer.timestamps().0 == TimestampSource::Hardware;
        self.why.extend(steer.timestamps().1.map(str::to_owned));
        let features = ethtool::xdp_features(interface.index()).ok().flatten();
        self.features_reported = features.is_some();
        let features = features.unwrap_or_default();
        self.native = features.is_native();
        self.zero_copy = features.has_zero_copy();
        self.multi_buffer = features.has_multi_buffer();
        for (has, what) in [
            (self.native, "native XDP with redirection: generic XDP is used"),
            (self.zero_copy, "zero-copy: the kernel copies each frame once"),
            (self.multi_buffer, "multi-buffer frames: jumbo frames need chunks that hold them"),
        ] {
            if !has {
                self.why.push(format!("the driver of {name} does not announce {what}"));
            }
        }
        Ok(())
    }
}
