//! [`Statistics`]: frames received and lost, by cause.

use std::os::fd::{AsFd, OwnedFd};

use linerate_bpf::steer;
use rustix::net::sockopt::xdp_statistics;
use rustix::net::xdp::XdpStatistics;

use super::Socket;
use crate::{Error, Result};

/// 64-bit counts since the socket was made (the kernel's own are 64 bits wide and are not cleared
/// by reading), and of the steering program where there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Frames lent by batches.
    pub received: u64,
    /// Frames that the kernel could not take because no free chunk was in the fill ring: the reader
    /// was too slow for the buffer. Always 0 in zero-copy mode, where the card drops them itself and
    /// only its own counters say how many.
    pub fill_empty: u64,
    /// Frames dropped because the receive ring was full.
    pub ring_full: u64,
    /// Frames dropped for any other reason, chiefly that they were longer than a chunk without
    /// multi-buffer.
    pub too_long: u64,
    /// Frames that a full BPF ring buffer had no room for.
    pub ring_buffer_full: u64,
    /// Descriptors of the fill ring that the kernel refused; a defect when not 0.
    pub invalid_receive: u64,
    /// Descriptors of the transmit ring that the kernel refused; a defect when not 0.
    pub invalid_transmit: u64,
    /// Frames that the steering program gave to a socket.
    pub matched: u64,
    /// Frames that its filter refused.
    pub unmatched: u64,
    /// Frames accepted on a queue without a socket, which went to the stack.
    pub no_socket: u64,
    /// Frames of ring buffers that were lent after frames with later stamps.
    pub disordered: u64,
}

impl Statistics {
    pub(super) fn of_socket(kernel: &XdpStatistics, received: u64) -> Self {
        // `rx_dropped` counts every frame that found no room in the UMEM; where the reason was an
        // empty fill ring, `rx_fill_ring_empty_descs` counts it once more.
        let fill_empty = kernel.rx_fill_ring_empty_descs.unwrap_or(0).min(kernel.rx_dropped);
        Self {
            received,
            fill_empty,
            ring_full: kernel.rx_ring_full.unwrap_or(0),
            too_long: kernel.rx_dropped - fill_empty,
            invalid_receive: kernel.rx_invalid_descs,
            invalid_transmit: kernel.tx_invalid_descs,
            ..Self::default()
        }
    }

    /// Frames that were accepted and did not reach the reader.
    pub fn lost(&self) -> u64 {
        self.fill_empty + self.ring_full + self.too_long + self.ring_buffer_full
    }
}

/// Reads the counts of a source.
#[derive(Debug)]
pub(crate) struct Counters {
    /// With their queues.
    sockets: Vec<(u32, OwnedFd)>,
    /// Queues without a socket that are counted here.
    pub(super) others: Vec<u32>,
    program: steer::StatisticsReader,
}

impl Counters {
    /// What reads the counts of these sockets, and of the queues `others`, which have none.
    pub(super) fn new(
        program: &steer::Program,
        sockets: &[Socket],
        others: Vec<u32>,
    ) -> Result<Self> {
        let duplicate = |socket: &Socket| {
            let copy = socket.as_fd().try_clone_to_owned();
            let copy = copy.map_err(|error| Error::system("duplicate a descriptor", error))?;
            Ok((socket.queue(), copy))
        };
        let sockets = sockets.iter().map(duplicate).collect::<Result<_>>()?;
        Ok(Self { sockets, others, program: program.statistics_reader()? })
    }

    /// The sum over the queues; [`Statistics::received`] is the reader's own and 0 here.
    pub(super) fn read(&self) -> Result<Statistics> {
        let mut sum = Statistics::default();
        self.read_queues()?.into_iter().for_each(|(_, counts)| sum += counts);
        Ok(sum)
    }

    /// The counts of the sockets and of the steering program, for each queue that had frames.
    pub(crate) fn read_queues(&self) -> Result<Vec<(u32, Statistics)>> {
        let sockets = self.sockets.iter().map(|(queue, socket)| (*queue, Some(socket)));
        let others = self.others.iter().map(|queue| (*queue, None));
        let read = |(queue, socket): (u32, Option<&OwnedFd>)| {
            let kernel = socket.map(xdp_statistics).transpose().map_err(|errno| {
                Error::system("read statistics of an AF_XDP socket", errno.into())
            })?;
            let of_socket = |kernel| Statistics::of_socket(&kernel, 0);
            let steer::Statistics { matched, unmatched, no_socket } = self.program.read(queue)?;
            let counts = kernel.map(of_socket).unwrap_or_default();
            Ok((queue, Statistics { matched, unmatched, no_socket, ..counts }))
        };
        let queues: Result<Vec<_>> = sockets.chain(others).map(read).collect();
        let had_frames = |(_, counts): &(u32, Statistics)| *counts != Statistics::default();
        Ok(queues?.into_iter().filter(had_frames).collect())
    }
}

linerate_net::sums! {
    Statistics {
        received, fill_empty, ring_full, too_long, ring_buffer_full, invalid_receive,
        invalid_transmit, matched, unmatched, no_socket, disordered
    }
}
