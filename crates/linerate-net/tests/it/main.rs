//! The kernel is the oracle: what this crate reads is what iproute2 and ethtool show in a namespace that the
//! test has made.

mod change;
mod evaluate;
mod interface;
mod link;
mod namespace;
mod neighbour;
mod qdisc;
mod route;
mod ruleset;
mod steering;
mod support;
mod xtables;
