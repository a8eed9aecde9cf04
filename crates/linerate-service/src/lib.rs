#![doc = include_str!("../README.md")]
//!
//! [`Board`] serves the counts of a verb, and [`Manager`] talks to the service manager.
//!
//! A verb gives its counts to the board once in a while. The server has a thread of its own and reads only what was
//! given last, so no scrape reaches the threads that move packets.
#![forbid(unsafe_code)]

mod address;
mod board;
mod manager;
mod page;
mod process;
mod server;

pub use address::ListenAddress;
pub use board::{Board, INTERVAL};
pub use manager::Manager;
pub use page::Page;
pub use prometheus_client::registry::Unit;
pub use server::Server;
