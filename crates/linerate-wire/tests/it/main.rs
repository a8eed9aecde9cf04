//! Views, emitters and checksums, against other implementations.

mod checksum;
mod total;
mod tunnels;
mod views;
