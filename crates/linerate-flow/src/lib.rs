#![doc = include_str!("../README.md")]
//!
//! [`meter::Meter`] counts packets, and makes [`FlowRecord`]s. [`file::Files`] writes them
//! to Parquet files. [`export::Exporter`] is both for the threads of a capture.
//!
//! [`FlowRecord`] is what is known of a flow. [`schema::FIELDS`] says how each of its fields is called, in which unit it
//! is, and how Parquet and IPFIX store it. [`ipfix`] sends records to collectors.
#![forbid(unsafe_code)]

mod error;
pub mod export;
pub mod file;
pub mod ipfix;
pub mod meter;
mod record;
pub mod schema;

pub use error::{Error, Result};
pub use record::{
    BiflowDirection, Direction, EndReason, FlowKey, FlowRecord, NatEvent, PacketLocation,
    Translation,
};
