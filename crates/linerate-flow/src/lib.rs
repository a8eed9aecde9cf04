#![doc = include_str!("../README.md")]
//!
//! [`meter::Meter`] counts packets, and makes [`FlowRecord`]s. [`file::Files`] writes them to Parquet files.
//! [`ipfix::Exporter`] sends them to a collector. [`outputs::Outputs`] has several of both. [`writer::Writer`] is
//! the thread that feeds them, and [`export::RecordWriter`] connects the meters of a capture's threads with it.
//!
//! [`FlowRecord`] is what is known of a flow. [`schema::FIELDS`] says how each of its fields is called, in which unit
//! it is, and how Parquet and IPFIX store it.
#![forbid(unsafe_code)]

#[cfg(feature = "parquet")]
pub mod community_id;
mod error;
pub mod export;
pub mod file;
mod icmp;
pub mod ipfix;
pub mod meter;
pub mod outputs;
mod record;
pub mod schema;
pub mod writer;

pub use error::{Error, Result};
pub use record::{
    BiflowDirection, Details, Direction, DirectionDetails, EndReason, FlowKey, FlowRecord,
    NatEvent, ProcessFields, Processes, Translation,
};
