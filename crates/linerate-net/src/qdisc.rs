//! [`Qdisc`]: queueing disciplines of interfaces (`tc qdisc`), and whether filters are in them.

use crate::Result;
use crate::connection::Connection;
use crate::error::Context;
use crate::netlink::{attr_str, attribute, bytes_at};

/// Bytes of `struct tcmsg`.
const HEADER: usize = 20;
/// `TC_H_INGRESS` of `linux/pkt_sched.h`, which is `TC_H_CLSACT` too: the parent of `ingress` and `clsact`.
const TC_H_INGRESS: u32 = 0xffff_fff1;
/// The two directions of a clsact: `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`, and the same for egress.
const CLSACT_PARENTS: [u32; 2] = [INGRESS_FILTERS, EGRESS_FILTERS];
/// The parent of filters for what an interface receives.
pub const INGRESS_FILTERS: u32 = 0xffff_fff2;
/// The parent of filters for what an interface sends.
pub const EGRESS_FILTERS: u32 = 0xffff_fff3;

/// A tc filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// `u32`, `matchall`, `bpf` and the like.
    pub kind: String,
    /// Its priority.
    pub priority: u32,
}

/// A queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// `fq_codel`, `clsact` and the like.
    pub kind: String,
    /// Its handle; 0 where the kernel attached it by default.
    pub handle: u32,
    /// The handle of what it is attached to, a `TC_H_` number of `linux/pkt_sched.h`.
    pub parent: u32,
}

impl Qdisc {
    /// It is at the ingress of the stack: `ingress` or `clsact`, which exist only to hold filters.
    pub fn is_ingress(&self) -> bool {
        self.parent == TC_H_INGRESS
    }
}

impl Connection {
    /// The queueing disciplines of interface `index`.
    ///
    /// # Errors
    /// [`crate::Error::System`].
    pub fn qdiscs(&self, index: u32) -> Result<Vec<Qdisc>> {
        let read = |body: &[u8]| {
            let kind = attribute(body.get(HEADER..)?, libc::TCA_KIND)?;
            let handle = u32::from_ne_bytes(bytes_at(body, 8)?);
            let parent = u32::from_ne_bytes(bytes_at(body, 12)?);
            let here = bytes_at(body, 4)? == index.to_ne_bytes();
            here.then(|| Qdisc { kind: attr_str(kind), handle, parent })
        };
        self.list(libc::RTM_GETQDISC, &tcmsg(index, 0), read)
            .context(|| format!("list the queueing disciplines of interface {index}"))
    }

    /// Whether interface `index` has a clsact.
    ///
    /// # Errors
    /// [`crate::Error::System`].
    pub fn has_clsact(&self, index: u32) -> Result<bool> {
        Ok(self.qdiscs(index)?.iter().any(|qdisc| qdisc.kind == "clsact"))
    }

    /// How many filters are in the clsact of interface `index`, in both directions.
    ///
    /// # Errors
    /// [`crate::Error::System`].
    pub fn clsact_filters(&self, index: u32) -> Result<usize> {
        let count = |parent| Ok(self.filters(index, parent)?.len());
        CLSACT_PARENTS.into_iter().map(count).sum()
    }

    /// The filters of the qdisc with the handle `parent` on interface `index`, or of one direction of its clsact
    /// ([`INGRESS_FILTERS`], [`EGRESS_FILTERS`]).
    ///
    /// # Errors
    /// [`crate::Error::System`].
    pub fn filters(&self, index: u32, parent: u32) -> Result<Vec<Filter>> {
        let read = |body: &[u8]| {
            let kind = attr_str(attribute(body.get(HEADER..)?, libc::TCA_KIND)?);
            let info = u32::from_ne_bytes(bytes_at(body, 16)?);
            Some(Filter { kind, priority: info >> 16 })
        };
        self.list(libc::RTM_GETTFILTER, &tcmsg(index, parent), read)
            .context(|| format!("list the filters of interface {index}"))
    }
}

fn tcmsg(index: u32, parent: u32) -> [u8; HEADER] {
    let mut body = [0; HEADER];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[12..16].copy_from_slice(&parent.to_ne_bytes());
    body
}
