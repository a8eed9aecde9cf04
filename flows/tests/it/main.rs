//! The program on captures that tcpdump reads, too, and beside the programs of fleets.

mod completion;
mod find;
mod fleet;
mod queries;
mod ship;
mod support;
