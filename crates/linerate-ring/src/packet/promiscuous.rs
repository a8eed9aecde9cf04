//! [`Promiscuous`]: keeps an interface promiscuous.

use linerate_net::Interface;

use super::socket::Socket;
use crate::{Error, Result};

/// Keeps an interface promiscuous while it lives, for receivers that cannot ask for it themselves, as AF_XDP
/// sockets cannot. The packet socket behind it receives nothing.
#[derive(Debug)]
pub struct Promiscuous {
    _socket: Socket,
}

impl Promiscuous {
    /// Makes `interface` receive what is addressed to others, too.
    ///
    /// # Errors
    /// [`Error::Privilege`] without CAP_NET_RAW, [`Error::NoInterface`], [`Error::InterfaceDown`],
    /// [`Error::System`].
    pub fn enable(interface: &str) -> Result<Self> {
        let socket = Socket::open()?;
        let interface = Interface::open(interface)?;
        if !interface.is_up()? {
            return Err(Error::InterfaceDown(interface.name().to_owned()));
        }
        socket.make_promiscuous(&interface)?;
        Ok(Self { _socket: socket })
    }
}
