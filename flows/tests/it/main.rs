//! The program on captures that tcpdump reads, too, and beside the programs of fleets.

mod ask;
mod find;
mod fleet;
mod ship;
mod support;
