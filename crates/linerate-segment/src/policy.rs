//! Whether super-packets are split here, and up to which size: the switches of an interface.

use core::fmt;
use core::str::FromStr;

use linerate_wire::ip::Protocol;

use crate::segment::Options;

/// The switches of one interface: what `net.gso.dev.XXX.enable_gso`, `net.gso.dev.XXX.max_burst` and
/// `net.inet.{tcp,udp}.gso` are to an interface of the FreeBSD implementation, in one value.
///
/// Written as text, as on a command line, it is a list of what differs from the default:
/// `tcp=on,udp=off,max_burst=32768`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[repr(C)]
pub struct Policy {
    /// Longest IP packet that is split, in bytes; a longer one is refused.
    pub max_burst: u32,
    /// Most segments that a packet may make; one that would make more is refused.
    pub max_segments: u32,
    /// Whether anything is split on this interface.
    pub enabled: bool,
    /// Whether TCP is.
    pub tcp: bool,
    /// Whether UDP is, into datagrams or fragments.
    pub udp: bool,
}

impl Policy {
    /// Everything is split, up to the 65,536 bytes that a sender makes by default.
    pub const DEFAULT: Self =
        Self { max_burst: 65_536, max_segments: 65_536, enabled: true, tcp: true, udp: true };

    /// Whether packets of this protocol are split; those that are neither TCP nor UDP follow `enabled`.
    pub const fn allows(&self, protocol: Protocol) -> bool {
        self.enabled
            && match protocol {
                Protocol::TCP => self.tcp,
                Protocol::UDP => self.udp,
                _ => true,
            }
    }

    /// `options` with the limits of this policy.
    pub const fn limit(&self, options: Options) -> Options {
        Options { max_burst: self.max_burst, max_segments: self.max_segments, ..options }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Text that is not a [`Policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; expected a list as enabled=on,tcp=on,udp=off,max_burst=65536,max_segments=128")]
pub struct ParsePolicyError(&'static str);

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut policy = Self::DEFAULT;
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) =
                item.split_once('=').ok_or(ParsePolicyError("a setting without '='"))?;
            match name.trim() {
                "enabled" => policy.enabled = switch(value)?,
                "tcp" => policy.tcp = switch(value)?,
                "udp" => policy.udp = switch(value)?,
                "max_burst" => policy.max_burst = number(value)?,
                "max_segments" => policy.max_segments = number(value)?,
                _ => return Err(ParsePolicyError("an unknown setting")),
            }
        }
        Ok(policy)
    }
}

fn switch(value: &str) -> Result<bool, ParsePolicyError> {
    match value.trim() {
        "on" | "1" | "true" => Ok(true),
        "off" | "0" | "false" => Ok(false),
        _ => Err(ParsePolicyError("a switch that is neither on nor off")),
    }
}

fn number(value: &str) -> Result<u32, ParsePolicyError> {
    value.trim().parse().map_err(|_| ParsePolicyError("a limit that is not a number"))
}

impl fmt::Display for Policy {
    /// Every setting, as [`FromStr`] reads them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |on| if on { "on" } else { "off" };
        let (enabled, tcp, udp) = (word(self.enabled), word(self.tcp), word(self.udp));
        write!(f, "enabled={enabled},tcp={tcp},udp={udp}")?;
        write!(f, ",max_burst={},max_segments={}", self.max_burst, self.max_segments)
    }
}
