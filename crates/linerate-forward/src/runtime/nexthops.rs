//! Resilient nexthop groups (`net/ipv4/nexthop.c`): a bucket that no packet has used for the idle timer of its group
//! may go to another nexthop. The kernel sees the packets of a session only when it is revalidated.

use std::io;
use std::time::Duration;

use linerate_net::netlink::{Message, Protocol, Socket, attr_u32, attribute};

// Constants of `linux/nexthop.h` and `linux/rtnetlink.h` that libc lacks.
const RTM_GETNEXTHOP: u16 = 106;
const NHA_RES_GROUP: u16 = 12;
const NHA_RES_GROUP_IDLE_TIMER: u16 = 2;
/// Bytes of `struct nhmsg`.
const HEADER: usize = 8;
/// Clock ticks a second (`USER_HZ`).
const TICKS: u64 = 100;

/// The shortest idle timer of the groups of the namespace of the calling thread. Buckets without an idle timer do not
/// wait for packets.
///
/// # Errors
/// Where the kernel does not list them. A kernel without nexthop objects is none.
pub fn shortest_idle_timer() -> io::Result<Option<Duration>> {
    let mut shortest = None;
    let socket = Socket::open(Protocol::Route)?;
    let dump = socket.dump(RTM_GETNEXTHOP, &[0; HEADER], |message: Message<'_>| {
        let own = message.body.get(HEADER..).unwrap_or_default();
        let group = attribute(own, NHA_RES_GROUP).unwrap_or_default();
        let timer = attribute(group, NHA_RES_GROUP_IDLE_TIMER).and_then(attr_u32).unwrap_or(0);
        if timer > 0 {
            let timer = Duration::from_millis(u64::from(timer) * 1000 / TICKS);
            shortest = Some(shortest.map_or(timer, |shortest: Duration| shortest.min(timer)));
        }
    });
    match dump {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        other => other.map(|_| shortest),
    }
}

/// The time until a session is revalidated where `after` is configured: at most half of the idle timer.
pub fn revalidate_within(idle_timer: Option<Duration>, after: Duration) -> Duration {
    idle_timer.map_or(after, |timer| after.min(timer / 2))
}
