//! The program, on captures that tcpdump reads too.

mod ask;
mod find;
mod fleet;
mod ship;
mod support;
