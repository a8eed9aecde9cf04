//! [`Rss`]: how a card chooses the receive queue of a frame (`ethtool -x`).

use crate::Result;
use crate::error::Context;
use crate::netlink::{attr_u32, attribute};

use super::{ask, header, is_unsupported};

const ETHTOOL_MSG_RSS_GET: u8 = 38;
const ETHTOOL_A_RSS_HKEY: u16 = 5;
const ETHTOOL_A_RSS_INPUT_XFRM: u16 = 6;
/// `RXH_XFRM_SYM_XOR` and `RXH_XFRM_SYM_OR_XOR` of `linux/ethtool.h`.
const SYMMETRIC: u32 = 0b11;

/// The hash of receive-side scaling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rss {
    /// The key; empty where the driver does not show it.
    pub key: Vec<u8>,
    /// Transformations of the input (`RXH_XFRM_`).
    pub input_transformation: u32,
}

impl Rss {
    /// Whether both directions of a conversation have the same hash: the input is made symmetric, or the key of the
    /// Toeplitz hash repeats every 16 bits (Woo and Park, "Scalable TCP Session Monitoring with Symmetric Receive-side
    /// Scaling", KAIST 2012, section 3). `None` where the driver does not show the key, or has none.
    pub fn is_symmetric(&self) -> Option<bool> {
        if self.input_transformation & SYMMETRIC != 0 {
            return Some(true);
        }
        let first = self.key.get(..2).filter(|pair| *pair != [0, 0])?;
        Some(self.key.chunks(2).all(|pair| first.starts_with(pair)))
    }
}

/// The hash of interface `index`; `None` where the driver or the kernel (before Linux 6.2) does not show it.
pub fn rss(index: u32) -> Result<Option<Rss>> {
    let mut found = None;
    let asked = ask("ethtool", ETHTOOL_MSG_RSS_GET, &header(index), |answer| {
        let key = attribute(answer, ETHTOOL_A_RSS_HKEY).unwrap_or_default().to_vec();
        let input = attribute(answer, ETHTOOL_A_RSS_INPUT_XFRM).and_then(attr_u32);
        found = Some(Rss { key, input_transformation: input.unwrap_or(0) });
    });
    match asked {
        Err(error) if is_unsupported(&error) => Ok(None),
        other => other.map(|()| found).context(|| format!("ask for the hash of interface {index}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_repeats_is_symmetric() {
        let symmetric = |key: &[u8], input_transformation| {
            Rss { key: key.to_vec(), input_transformation }.is_symmetric()
        };
        assert_eq!(symmetric(&[0x6d, 0x5a].repeat(20), 0), Some(true));
        assert_eq!(symmetric(&[0x6d, 0x5a, 0x56, 0xda], 0), Some(false));
        assert_eq!(symmetric(&[0x6d, 0x5a, 0x56, 0xda], 1), Some(true));
        assert_eq!(symmetric(&[], 0), None);
        assert_eq!(symmetric(&[0; 40], 0), None);
    }
}
