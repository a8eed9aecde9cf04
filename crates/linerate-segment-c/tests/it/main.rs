//! The library as C programs meet it.

mod building;
mod c;
mod handles;
mod header;
