//! [`Datapath`]: what forwards the packets of a session instead of the kernel's network stack.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A program that forwards packets of known sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Datapath {
    /// XDP, in the driver: no qdisc and no filter sees the packets.
    Xdp,
    /// A program at tc ingress, which sends through filters and qdisc of the output interface.
    Tc,
}

impl Datapath {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Tc => "tc",
        }
    }
}

impl fmt::Display for Datapath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which datapaths an instance may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Xdp, Self::Tc];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::Tc => "tc",
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| format!("{text} is none of auto, xdp and tc"))
    }
}
