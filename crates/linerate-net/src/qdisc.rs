//! [`Qdisc`]: queueing disciplines of interfaces (`tc qdisc`), and the filters that are in them.

use std::collections::HashSet;

use crate::Result;
use crate::connection::Connection;
use crate::error::Context;
use crate::netlink::{attr_str, attribute, attributes, bytes_at};

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

/// `TCA_ACT_KIND`.
const ACTION_KIND: u16 = 1;
/// `TCA_FLOWER_KEY_CT_STATE` to `TCA_FLOWER_KEY_CT_LABELS_MASK`.
const FLOWER_CONNECTION_KEYS: std::ops::RangeInclusive<u16> = 91..=98;
/// `TCA_CAKE_NAT`.
const CAKE_NAT: u16 = 11;

/// A tc filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// `u32`, `matchall`, `bpf` and the like.
    pub kind: String,
    /// Its priority.
    pub priority: u32,
    /// The kinds of its actions: `mirred`, `police` and the like.
    pub actions: Vec<String>,
    /// It matches what conntrack says of the packet (`ct_state` and the like of `flower`).
    pub matches_connection: bool,
}

impl Filter {
    fn read(body: &[u8]) -> Option<Self> {
        let own = body.get(HEADER..)?;
        let kind = attr_str(attribute(own, libc::TCA_KIND)?);
        let info = u32::from_ne_bytes(bytes_at(body, 16)?);
        let options = attribute(own, libc::TCA_OPTIONS).unwrap_or_default();
        let keys = || attributes(options).map(|(kind, _)| kind);
        // `TCA_U32_ACT`, `TCA_FLOWER_ACT` and so on.
        let actions = match kind.as_str() {
            "u32" => 7,
            "fw" => 4,
            "flower" => 3,
            "matchall" => 2,
            "bpf" => 1,
            _ => u16::MAX,
        };
        let actions = attributes(attribute(options, actions).unwrap_or_default());
        let actions = actions.filter_map(|(_, one)| attribute(one, ACTION_KIND).map(attr_str));
        Some(Self {
            priority: info >> 16,
            actions: actions.collect(),
            matches_connection: kind == "flower"
                && keys().any(|key| FLOWER_CONNECTION_KEYS.contains(&key)),
            kind,
        })
    }
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
    /// It looks connections up to tell hosts apart behind NAT (`nat` of `cake`).
    pub reads_connection: bool,
}

impl Qdisc {
    fn read(body: &[u8]) -> Option<Self> {
        let own = body.get(HEADER..)?;
        let kind = attr_str(attribute(own, libc::TCA_KIND)?);
        let nat = || attribute(attribute(own, libc::TCA_OPTIONS)?, CAKE_NAT);
        Some(Self {
            reads_connection: kind == "cake"
                && nat().is_some_and(|nat| nat.iter().any(|byte| *byte != 0)),
            kind,
            handle: u32::from_ne_bytes(bytes_at(body, 8)?),
            parent: u32::from_ne_bytes(bytes_at(body, 12)?),
        })
    }

    /// It is at the ingress of the stack: `ingress` or `clsact`, which exist only to hold filters.
    pub fn is_ingress(&self) -> bool {
        self.parent == TC_H_INGRESS
    }
}

impl Connection {
    /// The queueing disciplines of interface `index`.
    pub fn qdiscs(&self, index: u32) -> Result<Vec<Qdisc>> {
        let read = |body: &[u8]| {
            let here = bytes_at(body, 4)? == index.to_ne_bytes();
            here.then(|| Qdisc::read(body)).flatten()
        };
        self.list(libc::RTM_GETQDISC, &tcmsg(index, 0), read)
            .context(|| format!("list the queueing disciplines of interface {index}"))
    }

    /// Whether interface `index` has a clsact.
    pub fn has_clsact(&self, index: u32) -> Result<bool> {
        Ok(self.qdiscs(index)?.iter().any(|qdisc| qdisc.kind == "clsact"))
    }

    /// How many filters are in the clsact of interface `index`, in both directions.
    pub fn clsact_filters(&self, index: u32) -> Result<usize> {
        let count = |parent| Ok(self.filters(index, parent)?.len());
        CLSACT_PARENTS.into_iter().map(count).sum()
    }

    /// The filters of the qdisc or class with the handle `parent` on interface `index`, or of one direction of its
    /// clsact ([`INGRESS_FILTERS`], [`EGRESS_FILTERS`]). An `ingress` qdisc gives the same filters for both.
    pub fn filters(&self, index: u32, parent: u32) -> Result<Vec<Filter>> {
        self.list(libc::RTM_GETTFILTER, &tcmsg(index, parent), Filter::read)
            .context(|| format!("list the filters of interface {index}"))
    }

    /// The handles of the classes on interface `index` that have classes below them. Only these classify by filters of
    /// their own (`htb_classify`, `hfsc_classify`).
    pub fn inner_classes(&self, index: u32) -> Result<Vec<u32>> {
        let read = |body: &[u8]| {
            let number = |at| Some(u32::from_ne_bytes(bytes_at(body, at)?));
            Some((number(8)?, number(12)?))
        };
        let classes = self
            .list(libc::RTM_GETTCLASS, &tcmsg(index, 0), read)
            .context(|| format!("list the classes of interface {index}"))?;
        let parents: HashSet<_> = classes.iter().map(|(_, parent)| *parent).collect();
        Ok(classes.iter().map(|(handle, _)| *handle).filter(|one| parents.contains(one)).collect())
    }
}

fn tcmsg(index: u32, parent: u32) -> [u8; HEADER] {
    let mut body = [0; HEADER];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[12..16].copy_from_slice(&parent.to_ne_bytes());
    body
}

#[cfg(test)]
mod tests;
