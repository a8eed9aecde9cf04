#![doc = include_str!("../README.md")]
//!
//! [`meter::Meter`] counts packets, and makes [`FlowRecord`]s.
//! [`FlowRecord`] is what is known of a flow. [`schema::FIELDS`] says how each of its fields is called, in which unit it
//! is, and how Parquet and IPFIX store it. [`ipfix`] sends records to collectors.
#![forbid(unsafe_code)]

pub mod ipfix;
pub mod meter;
mod record;
pub mod schema;

pub use record::{
    BiflowDirection, Direction, EndReason, FlowKey, FlowRecord, NatEvent, PacketLocation,
    Translation,
};
