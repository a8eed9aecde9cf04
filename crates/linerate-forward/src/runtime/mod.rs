//! What runs an instance: the daemon, the programs and their pins, and the daemon's kernel interface:
//! sysctls, links and change notifications.

pub(crate) mod clsact;
pub mod conntrack;
mod ctnetlink;
pub mod daemon;
mod datapath;
pub mod flows;
pub mod heartbeat;
pub mod instance;
mod instance_reader;
mod link;
pub mod memory;
pub mod nexthops;
pub mod pins;
pub mod preflight;
pub mod program;
pub mod rules;
mod timeouts;
pub mod upper_devices;
pub mod watch;
