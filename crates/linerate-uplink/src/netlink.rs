//! [`Channel`]: routing netlink (`rtnetlink(7)`) of one network namespace: questions, and news.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// A socket. It stays in the namespace of the thread that opened it.
pub(crate) struct Channel(Socket);

impl Channel {
    /// For questions.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// For the news of these groups (`RTNLGRP_…`); does not block.
    pub(crate) fn listen(groups: &[u32]) -> io::Result<Self> {
        let channel = Self::open()?;
        groups.iter().try_for_each(|group| channel.0.add_membership(*group))?;
        channel.0.set_non_blocking(true)?;
        Ok(channel)
    }

    /// One request, and its first answer; `None` where that is a plain acknowledgement.
    pub(crate) fn ask(
        &self,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.send(request, NLM_F_REQUEST | flags)?;
        let (bytes, _) = self.0.recv_from_full()?;
        match parse(&bytes)?.payload {
            NetlinkPayload::InnerMessage(answer) => Ok(Some(answer)),
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
            _ => Ok(None),
        }
    }

    /// Asks for all of a kind.
    pub(crate) fn dump(
        &self,
        request: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.send(request, NLM_F_REQUEST | NLM_F_DUMP)?;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.0.recv_from_full()?;
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let message = parse(rest)?;
                let len = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(len.max(4)..).unwrap_or_default();
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(error.to_io());
                    }
                    _ => {}
                }
            }
        }
    }

    /// The next news; `None` when there are no more at the moment. `ENOBUFS` says that some were lost.
    pub(crate) fn next(&self) -> io::Result<Option<RouteNetlinkMessage>> {
        // The kernel sends each in a datagram of its own.
        match self.0.recv_from_full() {
            Ok((bytes, _)) => match parse(&bytes)?.payload {
                NetlinkPayload::InnerMessage(news) => Ok(Some(news)),
                _ => Ok(None),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn send(&self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut request = NetlinkMessage::from(request);
        request.header.flags = flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.0.send(&bytes, 0).map(drop)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn parse(bytes: &[u8]) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
    NetlinkMessage::deserialize(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}
