//! [`local_filter`]: whether a packet filter may drop packets to this host.

use std::io;

use super::nft_message::{
    Attributes, CHAIN_HOOK, CHAIN_NAME, CHAIN_TABLE, HEADER, HOOK_NUMBER, dump,
};
use super::nftables::families_of;
use super::{DeviceChain, xtables};
use crate::netlink::attr_str;

// Attributes of a base chain: its policy, and the number of its rules.
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
/// `NF_DROP`.
const DROP: u32 = 0;
/// `NF_INET_PRE_ROUTING` and `NF_INET_LOCAL_IN`.
const INPUT_HOOKS: [u32; 2] = [0, 1];

/// The first chain that may drop packets from `interface` to this host: one at prerouting, input, or ingress of the
/// interface that has rules or the policy `drop`. `None` if there is none. The rules are not evaluated.
///
/// # Errors
/// As [`Ruleset::load`](super::Ruleset::load).
pub fn local_filter(interface: &str, v6: bool) -> io::Result<Option<String>> {
    let mut found = None;
    dump(libc::NFT_MSG_GETCHAIN, &[0; HEADER], |message| {
        found = found.take().or_else(|| decides(message.body, interface, v6));
    })?;
    match found {
        None => xtables::local_filter(v6),
        found => Ok(found),
    }
}

/// The name of an nftables base chain that these packets traverse, if it has rules or the policy `drop`.
fn decides(body: &[u8], interface: &str, v6: bool) -> Option<String> {
    let own = Attributes::of(body);
    let hook = own.nested(CHAIN_HOOK).number(HOOK_NUMBER)?;
    let is_met = match DeviceChain::read(body) {
        Some(chain) => !chain.is_egress && chain.is_on(interface),
        None => {
            let (families, is_ip) = families_of(*body.first()?)?;
            let is_of_version = if v6 { families.ipv6 } else { families.ipv4 };
            is_ip && is_of_version && INPUT_HOOKS.contains(&hook)
        }
    };
    let decides = own.number(CHAIN_USE) != Some(0) || own.number(CHAIN_POLICY) == Some(DROP);
    let name = |kind| own.get(kind).map(attr_str).unwrap_or_default();
    (is_met && decides)
        .then(|| format!("nftables chain {} {}", name(CHAIN_TABLE), name(CHAIN_NAME)))
}
