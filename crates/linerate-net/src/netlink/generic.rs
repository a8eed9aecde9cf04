//! [`Family`]: a family of generic netlink (Documentation/userspace-api/netlink/intro.rst).

use std::io;

use super::attribute::{attribute, bytes_at, put_attr_str};
use super::{Protocol, Socket};

const GENL_ID_CTRL: u16 = libc::GENL_ID_CTRL as u16;
const CTRL_CMD_GETFAMILY: u8 = libc::CTRL_CMD_GETFAMILY as u8;
const CTRL_ATTR_FAMILY_ID: u16 = libc::CTRL_ATTR_FAMILY_ID as u16;
const CTRL_ATTR_FAMILY_NAME: u16 = libc::CTRL_ATTR_FAMILY_NAME as u16;

/// Bytes of `struct genlmsghdr`.
const HEADER: usize = 4;

/// A family, such as `ethtool`, with a socket in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Family {
    socket: Socket,
    id: u16,
}

impl Family {
    /// `None` where the kernel does not have it.
    pub fn open(name: &str) -> io::Result<Option<Self>> {
        let mut control = Self { socket: Socket::open(Protocol::Generic)?, id: GENL_ID_CTRL };
        let mut body = Vec::new();
        put_attr_str(&mut body, CTRL_ATTR_FAMILY_NAME, name);
        let mut id = None;
        let asked = control.request(CTRL_CMD_GETFAMILY, &body, |answer| {
            id = attribute(answer, CTRL_ATTR_FAMILY_ID).and_then(|value| bytes_at(value, 0));
        });
        match asked {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            other => other?,
        }
        Ok(id.map(|id| {
            control.id = u16::from_ne_bytes(id);
            control
        }))
    }

    /// One command, and the attributes of its answers.
    pub fn request(&self, command: u8, body: &[u8], mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut request = vec![command, 1, 0, 0];
        request.extend(body);
        self.socket.request(self.id, 0, &request, |message| {
            take(message.body.get(HEADER..).unwrap_or_default());
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_no_kernel_has_is_none() {
        assert!(Family::open("linerate-none").unwrap().is_none());
        assert!(Family::open("nlctrl").unwrap().is_some_and(|family| family.id == GENL_ID_CTRL));
    }
}
