//! [`Sample`]: whole flows, one of so many.

use std::hash::BuildHasher;
use std::num::NonZeroU64;
use std::str::FromStr;

use foldhash::quality::FixedState;
use linerate_flow::meter;
use linerate_wire::flow::Key;

/// Which flows are captured: one of N, by a hash of addresses, ports and protocol that is the same in both
/// directions, and in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(NonZeroU64);

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("1/").and_then(|number| number.parse().ok());
        number.map(Self).ok_or_else(|| format!("`{text}` is not a sample such as 1/100"))
    }
}

impl Sample {
    /// The part of all flows that is captured.
    pub fn probability(self) -> f64 {
        1.0 / self.0.get() as f64
    }

    /// Whether a frame of this link type is captured. Frames without an IP packet belong to no flow and are.
    #[inline]
    pub(super) fn has(self, frame: &[u8], linktype: u16) -> bool {
        let layers = meter::layers(frame, linktype);
        let Some(key) = layers.and_then(|layers| Key::in_layers(&layers, frame)) else {
            return true;
        };
        let (source, destination) =
            ((key.source, key.source_port), (key.destination, key.destination_port));
        let flow = (source.min(destination), source.max(destination), key.protocol);
        FixedState::with_seed(0).hash_one(flow).is_multiple_of(self.0.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_one_of_a_number() {
        assert!("1/1".parse::<Sample>().is_ok() && "1/1000".parse::<Sample>().is_ok());
        for wrong in ["", "1", "2/3", "1/0", "1/-1", "1/x"] {
            assert!(wrong.parse::<Sample>().is_err(), "{wrong}");
        }
    }
}
