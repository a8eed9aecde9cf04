//! [`open_socket`]: an unbound AF_XDP socket.

use std::os::fd::OwnedFd;

use linerate_net::privilege;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::{Error, Result};

/// A new AF_XDP socket, to do `action`; `capability` is what that needs, CAP_NET_RAW for the socket included.
///
/// # Errors
/// [`Error::Privilege`], [`Error::Invalid`] on a kernel without AF_XDP, [`Error::System`].
pub fn open_socket(action: &str, capability: &'static str) -> Result<OwnedFd> {
    let opened = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None);
    opened.map_err(|errno| match errno {
        Errno::PERM if privilege::lacks(capability) => {
            Error::Privilege { action: action.to_owned(), capability }
        }
        Errno::AFNOSUPPORT => {
            Error::Invalid("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)".to_owned())
        }
        _ => Error::system(action, errno.into()),
    })
}
