//! [`Datapath`]: what forwards the packets of a session instead of the kernel's network stack.

use serde::{Deserialize, Serialize};

/// A program that forwards packets of known sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Datapath {
    /// XDP, in the driver: no qdisc and no filter sees the packets.
    Xdp,
    /// A program at tc ingress, which sends through filters and qdisc of the output interface.
    Tc,
}

linerate_net::named!(Datapath, "datapath": Xdp = "xdp", Tc = "tc");

/// Which datapaths an instance may use.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// For each session the fastest that is right for its two interfaces.
    #[default]
    Auto,
    /// XDP only; what it cannot take stays with the kernel.
    Xdp,
    /// TC only: no XDP program is attached.
    Tc,
}

linerate_net::named!(Mode, "datapath": Auto = "auto", Xdp = "xdp", Tc = "tc");
