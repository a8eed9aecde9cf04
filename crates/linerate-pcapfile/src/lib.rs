#![doc = include_str!("../README.md")]
//!
//! A [`Reader`] lends one packet at a time, a [`BlockReader`] one block at a time. An [`Encoder`] turns a
//! packet into a record of either format; a [`Writer`] puts records into a file. After a failed write
//! the file still ends with a whole record.
//!
//! This crate knows file formats only. The threads that write a running capture, their buffers, the time
//! order of several readers and file rotation are policy of the capture engine: they decide which
//! packets are lost when a disk is slow. So they live in `linerate-capture`, above [`Encoder`] and
//! [`OutputFile`].
#![forbid(unsafe_code)]

mod compression;
pub mod edit;
mod error;
mod foreign;
mod format;
mod group;
mod keep_free;
mod location;
pub mod read;
mod record;
mod time;
pub mod write;

pub use compression::Compression;
pub use error::{Error, Result};
pub use foreign::{allow_foreign_pipes, create_own, refuse_foreign};
pub use format::Format;
pub use group::{FILE_MODE, UserGroup};
pub use keep_free::KeepFree;
pub use location::{ByteRange, PacketLocation};
pub use read::{Block, BlockReader, BlockType, DescribedRecord, Reader};
pub use record::{InterfaceDescription, InterfaceStatistics, Record, SectionHeader};
pub use time::Resolution;
pub use write::{
    Encoder, FileWriter, OutputFile, PacketOptions, Writer, refuse_numbered_in_use,
    refuse_terminal, same_file,
};
