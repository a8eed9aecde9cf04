//! [`DeviceChain`]: base chains of nftables that hook a device, and not the forwarding of packets
//! (`include/uapi/linux/netfilter/nf_tables.h`).

use std::io;

use super::nft_message::{
    Attributes, CHAIN_HOOK, CHAIN_NAME, CHAIN_TABLE, HEADER, HOOK_NUMBER, dump,
};
use crate::netlink::{attr_str, attributes};

// Attributes.
const HOOK_DEVICE: u16 = 3;
const HOOK_DEVICES: u16 = 4;
const DEVICE_NAME: u16 = 1;
const DEVICE_PREFIX: u16 = 2;

/// `NF_NETDEV_INGRESS` and `NF_NETDEV_EGRESS`.
const NETDEV_INGRESS: u32 = 0;
const NETDEV_EGRESS: u32 = 1;
/// `NF_INET_INGRESS`.
const INET_INGRESS: u32 = 5;

/// A base chain of family `netdev`, or of hook `ingress` of family `inet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChain {
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// It sees what its devices send, and not what they receive.
    pub is_egress: bool,
    devices: Vec<Device>,
}

/// What a chain says of its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Device {
    Name(String),
    /// All whose names begin so.
    Prefix(String),
}

impl DeviceChain {
    /// All of the network namespace of the calling thread.
    ///
    /// # Errors
    /// When the kernel does not tell: it takes CAP_NET_ADMIN. That it has no nftables is none.
    pub fn all() -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        dump(libc::NFT_MSG_GETCHAIN, &[0; HEADER], |message| {
            found.extend(Self::read(message.body));
        })?;
        Ok(found)
    }

    /// Whether it sees packets of the interface of this name.
    pub fn is_on(&self, interface: &str) -> bool {
        self.devices.iter().any(|device| match device {
            Device::Name(name) => name == interface,
            Device::Prefix(prefix) => interface.starts_with(prefix),
        })
    }

    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let own = Attributes::of(body);
        let hook = own.nested(CHAIN_HOOK);
        let is_egress = match (i32::from(*body.first()?), hook.number(HOOK_NUMBER)?) {
            (libc::NFPROTO_NETDEV, NETDEV_INGRESS) | (libc::NFPROTO_INET, INET_INGRESS) => false,
            (libc::NFPROTO_NETDEV, NETDEV_EGRESS) => true,
            _ => return None,
        };
        let listed = attributes(hook.get(HOOK_DEVICES).unwrap_or_default());
        let mut devices: Vec<_> = listed
            .filter_map(|(kind, value)| match kind {
                DEVICE_NAME => Some(Device::Name(attr_str(value))),
                DEVICE_PREFIX => Some(Device::Prefix(attr_str(value))),
                _ => None,
            })
            .collect();
        // Linux 5.4 and older have no list.
        if devices.is_empty() {
            devices.extend(hook.get(HOOK_DEVICE).map(|name| Device::Name(attr_str(name))));
        }
        let (table, name) = (attr_str(own.get(CHAIN_TABLE)?), attr_str(own.get(CHAIN_NAME)?));
        Some(Self { table, name, is_egress, devices })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{put_attr, put_nested};

    fn chain(family: i32, hook: u32, devices: &[(u16, &[u8])]) -> Option<DeviceChain> {
        let mut body = vec![family as u8, 0, 0, 0];
        put_attr(&mut body, CHAIN_TABLE, b"t\0");
        put_attr(&mut body, CHAIN_NAME, b"c\0");
        put_nested(&mut body, CHAIN_HOOK, |data| {
            put_attr(data, HOOK_NUMBER, &hook.to_be_bytes());
            put_nested(data, HOOK_DEVICES, |list| {
                devices.iter().for_each(|(kind, name)| put_attr(list, *kind, name));
            });
        });
        DeviceChain::read(&body)
    }

    #[test]
    fn chains_of_devices_are_told_from_those_of_forwarding() {
        let eth = [(DEVICE_NAME, &b"eth0\0"[..]), (DEVICE_PREFIX, &b"ppp"[..])];
        let found = chain(libc::NFPROTO_NETDEV, NETDEV_EGRESS, &eth).unwrap();
        assert!(found.is_egress && found.is_on("eth0") && found.is_on("ppp7"));
        assert!(!found.is_on("eth01") && !found.is_on("eth1"));
        assert!(!chain(libc::NFPROTO_INET, INET_INGRESS, &eth).unwrap().is_egress);
        assert!(!chain(libc::NFPROTO_NETDEV, NETDEV_INGRESS, &eth).unwrap().is_egress);
        for (family, forward) in [(libc::NFPROTO_INET, 2), (libc::NFPROTO_BRIDGE, 1)] {
            assert_eq!(chain(family, forward, &[]), None);
        }
    }
}
