#![doc = include_str!("../README.md")]
//!
//! [`Published`] serves the counts of a verb, and [`Manager`] notifies the service manager.
//!
//! A verb publishes its counts every [`INTERVAL`]. The server has a thread of its own and reads only the last published
//! counts, so a scrape never delays the threads that handle packets.
#![forbid(unsafe_code)]

mod address;
mod connection;
mod encoder;
mod manager;
mod object;
mod page;
mod process;
mod published;
mod server;

pub use address::ListenAddress;
pub use encoder::MetricEncoder;
pub use manager::Manager;
pub use object::Object;
pub use page::STYLE;
pub use prometheus_client::registry::Unit;
pub use published::{INTERVAL, Published};
pub use server::{Server, answer_unavailable};
