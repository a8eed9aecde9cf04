//! The `ioctl` requests on interfaces that have no netlink counterpart, or whose counterpart takes the RTNL
//! lock (netdevice(7)).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// `IFF_` flags of the interface.
pub(crate) fn flags(socket: &OwnedFd, name: &[u8]) -> io::Result<u32> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFFLAGS reads the name and writes `ifr_flags`, both in `request`.
    unsafe { call(socket, libc::SIOCGIFFLAGS as libc::Ioctl, &mut request) }?;
    // SAFETY: the kernel has written this member.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(u32::from(flags.cast_unsigned()))
}

/// The number of its link layer (`ARPHRD_` of `linux/if_arp.h`).
pub(crate) fn link_layer(socket: &OwnedFd, name: &[u8]) -> io::Result<u16> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFHWADDR reads the name and writes `ifr_hwaddr`, both in `request`.
    unsafe { call(socket, libc::SIOCGIFHWADDR as libc::Ioctl, &mut request) }?;
    // SAFETY: the kernel has written this member.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}

/// The name of the interface with this index, which may be no UTF-8.
pub(crate) fn name(socket: &OwnedFd, index: u32) -> io::Result<Vec<u8>> {
    let mut request = request(&[])?;
    request.ifr_ifru.ifru_ifindex = index.cast_signed();
    // SAFETY: SIOCGIFNAME reads the index and writes the name, both in `request`.
    unsafe { call(socket, libc::SIOCGIFNAME as libc::Ioctl, &mut request) }?;
    Ok(request.ifr_name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect())
}

/// The name of the driver.
pub(crate) fn driver(socket: &OwnedFd, name: &[u8]) -> io::Result<String> {
    /// `struct ethtool_drvinfo` of `linux/ethtool.h`: the command, the driver in 32 bytes, the rest.
    #[repr(C)]
    struct DriverInfo {
        command: u32,
        driver: [u8; 32],
        rest: [u8; 160],
    }
    const ETHTOOL_GDRVINFO: u32 = 3;
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = ptr::from_mut(&mut info).cast();
    // SAFETY: ETHTOOL_GDRVINFO reads and writes a `struct ethtool_drvinfo` where `ifr_data` points; `info`
    // has its size and outlives the call.
    unsafe { call(socket, libc::SIOCETHTOOL as libc::Ioctl, &mut request) }?;
    let driver = info.driver.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(driver).into_owned())
}

/// Reads a socket option that takes and gives more than a number: `value` holds the question, and then the answer.
pub(crate) fn socket_option(
    socket: &OwnedFd,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> io::Result<()> {
    let mut length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads and writes at most `length` bytes where `value` is.
    let answer = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A request about the interface of this name, with nothing else filled in.
fn request(name: &[u8]) -> io::Result<libc::ifreq> {
    if name.len() >= libc::IF_NAMESIZE {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    // SAFETY: all zeroes is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = from.cast_signed() as libc::c_char;
    }
    Ok(request)
}

/// # Safety
/// What `request` points to must be what the kernel reads or writes there for `what`.
unsafe fn call(socket: &OwnedFd, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `request` is a whole `ifreq`; the caller vouches for what it points to.
    match unsafe { libc::ioctl(socket.as_raw_fd(), what, request) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
