//! [`Datapath`]: what forwards the packets of a session instead of the kernel's network stack.

use serde::{Deserialize, Serialize};

use crate::named::named;

named! {
    /// A program that forwards packets of known sessions.
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    Datapath:
    /// XDP, in the driver: no qdisc and no filter sees the packets.
    Xdp "xdp",
    /// A program at tc ingress, which sends through filters and qdisc of the output interface.
    Tc "tc",
}

named! {
    /// Which datapaths an instance may use.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    Mode:
    /// For each session the fastest that is right for its two interfaces.
    #[default]
    Auto "auto",
    /// XDP only; what it cannot take stays with the kernel.
    Xdp "xdp",
    /// TC only: no XDP program is attached.
    Tc "tc",
}
