//! One request and its answer, on a route netlink socket that was opened inside a namespace.

use std::io;
use std::net::IpAddr;
use std::sync::Mutex;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// A blocking route socket. It keeps the namespace in which it was opened, whoever uses it.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Mutex<Socket>,
}

impl Channel {
    /// Opens the socket in the namespace of the calling thread.
    pub(crate) fn route() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket: Mutex::new(socket) })
    }

    /// Makes something new; an error where it exists.
    pub(crate) fn create(&self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.exchange(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Makes something or replaces what is there.
    pub(crate) fn put(&self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.exchange(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE).map(drop)
    }

    /// Changes or removes something that is there.
    pub(crate) fn change(&self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.exchange(message, NLM_F_ACK).map(drop)
    }

    /// Asks for one thing.
    pub(crate) fn ask(&self, message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        self.exchange(message, 0)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the kernel acknowledged a question")
        })
    }

    fn exchange(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        let answer = {
            let socket = self.socket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            socket.send(&bytes, 0)?;
            socket.recv_from_full()?.0
        };
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
            NetlinkPayload::Error(error) => error.code.map_or(Ok(None), |_| Err(error.to_io())),
            other => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("unexpected netlink answer {other:?}"),
            )),
        }
    }
}

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
