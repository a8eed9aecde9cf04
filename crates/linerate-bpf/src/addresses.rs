//! [`Addresses`]: the IP addresses of a TUN device, by which programs distinguish its frames from the host's.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::sys::{check, duplicate};
use crate::{Error, Result};

/// How many addresses there can be; `MAX_ADDRESSES` in `bpf/addresses.h`.
pub const MAX_ADDRESSES: usize = 256;

/// The map of a program that matches frames by address. Changes apply to the next frame.
#[derive(Debug)]
pub struct Addresses(OwnedFd);

impl Addresses {
    pub(crate) fn from_map(map: BorrowedFd<'_>) -> Result<Self> {
        duplicate(map).map(Self)
    }

    /// Adds one; nothing happens if it is there already. Needs no privilege since Linux 5.19.
    ///
    /// # Errors
    /// [`Error::System`] for one more than [`MAX_ADDRESSES`]; [`Error::Privilege`].
    pub fn insert(&self, address: IpAddr) -> Result<()> {
        let (key, value) = (key(address), 1u8);
        // SAFETY: a map with keys of 16 bytes and values of one, both ours.
        let answer = unsafe {
            libbpf_sys::bpf_map_update_elem(
                self.0.as_raw_fd(),
                key.as_ptr().cast(),
                (&raw const value).cast(),
                u64::from(libbpf_sys::BPF_ANY),
            )
        };
        check(answer, format!("take the frames for {address}"))
    }

    /// Removes one; nothing happens if it is not there.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Privilege`].
    pub fn remove(&self, address: IpAddr) -> Result<()> {
        let key = key(address);
        // SAFETY: a map with keys of 16 bytes, which are ours.
        let answer =
            unsafe { libbpf_sys::bpf_map_delete_elem(self.0.as_raw_fd(), key.as_ptr().cast()) };
        match -answer {
            ..=0 | libc::ENOENT => Ok(()),
            errno => Err(Error::bpf(format!("leave the frames for {address} to the host"), errno)),
        }
    }
}

fn key(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
