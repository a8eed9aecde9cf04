#![doc = include_str!("../README.md")]
//!
//! [`Board`] serves the counts of a verb, and [`Manager`] notifies the service manager.
//!
//! A verb publishes its counts every [`INTERVAL`]. The server has a thread of its own and reads only the last published
//! counts, so a scrape never delays the threads that handle packets.
#![forbid(unsafe_code)]

mod address;
mod board;
mod manager;
mod object;
mod page;
mod process;
mod server;

pub use address::ListenAddress;
pub use board::{Board, INTERVAL};
pub use manager::Manager;
pub use object::Object;
pub use page::Page;
pub use prometheus_client::registry::Unit;
pub use server::Server;
