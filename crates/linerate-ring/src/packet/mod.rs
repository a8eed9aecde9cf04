//! Packet sockets with rings in shared memory: AF_PACKET, which every Linux has.
//!
//! [`Ring`] receives without a system call or an allocation per frame: the kernel copies frames
//! into blocks of a ring and hands over a block at a time, a [`Batch`]. [`TxRing`] sends frames
//! that were written into a separate ring. Neither takes traffic away from the host.
//!
//! The memory of these rings is the kernel's: it maps it page by page, whatever the pages behind it. So
//! there is no choice of page size here, unlike in a [`Region`](crate::Region).

mod direction;
mod fanout;
mod layout;
mod memory;
mod options;
mod owner;
mod program;
mod promiscuous;
mod receive;
pub mod rules;
mod sender;
mod socket;
mod statistics;
#[cfg(test)]
mod tests;
mod timestamps;
mod transmit;
pub mod walk;

pub use direction::DirectionFilter;
pub use fanout::{Fanout, Mode};
pub use options::{DEFAULT_BUFFER, Options};
pub use promiscuous::Promiscuous;
pub use receive::{Batch, Ring};
pub use sender::Sender;
pub use statistics::Statistics;
pub use timestamps::TimestampClock;
pub use transmit::{TxFrame, TxRing, TxStatistics};

use crate::Result;

/// Whether this process can use packet rings here, found by making the smallest one.
///
/// # Errors
/// Why not: [`Error::Privilege`](crate::Error::Privilege) without CAP_NET_RAW, with the way to
/// grant it; [`Error::Invalid`](crate::Error::Invalid) for a kernel without packet sockets;
/// [`Error::System`](crate::Error::System) for one whose rings are too old.
pub fn probe() -> Result<()> {
    let page = u32::try_from(crate::region::base_page_size()).unwrap_or(u32::MAX);
    let request = rules::RingConfig {
        kind: rules::Kind::Receive,
        block_size: page,
        blocks: 1,
        frame_size: page,
        frames: 0,
        retire_ms: 1,
        reserve: 0,
    };
    socket::Socket::open()?.map(request.with_frames()?, "any").map(drop)
}
