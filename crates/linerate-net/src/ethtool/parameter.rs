//! [`Parameter`]: the numbers that `ethtool -L`, `-G` and `-C` show and set.

use crate::Result;
use crate::error::Context;
use crate::netlink::{Family, attr_u32, attribute, put_attr};

use super::{ask, header, is_unsupported};

const ETHTOOL_MSG_RINGS_GET: u8 = 15;
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
const ETHTOOL_MSG_COALESCE_GET: u8 = 19;

/// A number of a driver's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parameter {
    /// Channels that only receive.
    RxChannels,
    /// Channels that only transmit.
    TxChannels,
    /// Channels that receive and transmit.
    CombinedChannels,
    /// Descriptors of a receive ring.
    RxRing,
    /// Descriptors of a transmit ring.
    TxRing,
    /// How long an interrupt waits for more frames, in microseconds.
    RxUsecs,
    /// How many frames end that wait.
    RxFrames,
}

/// The kernel's numbers for a parameter.
struct Place {
    /// The message that reads it; the next one writes it.
    get: u8,
    attribute: u16,
    /// The attribute with the largest value.
    max: Option<u16>,
    /// The option of ethtool(8), and the word after it.
    option: (&'static str, &'static str),
}

/// A parameter as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value.
    pub current: u32,
    /// The largest value, where the driver says one.
    pub max: Option<u32>,
}

impl Parameter {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::RxChannels,
        Self::TxChannels,
        Self::CombinedChannels,
        Self::RxRing,
        Self::TxRing,
        Self::RxUsecs,
        Self::RxFrames,
    ];

    fn place(self) -> Place {
        let (get, attribute, max, option) = match self {
            Self::RxChannels => (ETHTOOL_MSG_CHANNELS_GET, 6, Some(2), ("-L", "rx")),
            Self::TxChannels => (ETHTOOL_MSG_CHANNELS_GET, 7, Some(3), ("-L", "tx")),
            Self::CombinedChannels => (ETHTOOL_MSG_CHANNELS_GET, 9, Some(5), ("-L", "combined")),
            Self::RxRing => (ETHTOOL_MSG_RINGS_GET, 6, Some(2), ("-G", "rx")),
            Self::TxRing => (ETHTOOL_MSG_RINGS_GET, 9, Some(5), ("-G", "tx")),
            Self::RxUsecs => (ETHTOOL_MSG_COALESCE_GET, 2, None, ("-C", "rx-usecs")),
            Self::RxFrames => (ETHTOOL_MSG_COALESCE_GET, 3, None, ("-C", "rx-frames")),
        };
        Place { get, attribute, max, option }
    }

    /// The option of ethtool(8) that sets it, and the word after the interface.
    pub fn option(self) -> (&'static str, &'static str) {
        self.place().option
    }
}

/// A parameter of interface `index`; `None` if the driver does not have it.
pub fn parameter(index: u32, parameter: Parameter) -> Result<Option<Value>> {
    let place = parameter.place();
    let mut found = None;
    let asked = ask("ethtool", place.get, &header(index), |answer| {
        let number = |kind| attribute(answer, kind).and_then(attr_u32);
        let max = place.max.and_then(number);
        // A driver without such rings or channels has none now, and none at most.
        let exists = max != Some(0);
        let current = number(place.attribute).filter(|_| exists);
        found = current.map(|current| Value { current, max });
    });
    match asked {
        Err(error) if is_unsupported(&error) => Ok(None),
        other => other
            .map(|()| found)
            .context(|| format!("ask for {} of interface {index}", place.name())),
    }
}

/// Sets a parameter of interface `index`.
///
/// # Errors
/// [`crate::Error::Privilege`]; [`crate::Error::System`] where the driver does not have it, or not this value.
pub fn set_parameter(index: u32, parameter: Parameter, value: u32) -> Result<()> {
    let place = parameter.place();
    let action = || format!("set {} of interface {index} to {value}", place.name());
    let family = Family::open("ethtool").context(action)?;
    let missing = || std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    let family = family.ok_or_else(missing).context(action)?;
    let mut body = header(index);
    put_attr(&mut body, place.attribute, &value.to_ne_bytes());
    family.request(place.get + 1, &body, |_| ()).context(action)
}

impl Place {
    fn name(&self) -> String {
        let (option, word) = self.option;
        format!("{word} (ethtool {option})")
    }
}
