#![doc = include_str!("../README.md")]
//!
//! [`FlowRecord`] is what is known of a flow. [`schema::FIELDS`] says how each of its fields is called, in which unit it
//! is, and how Parquet and IPFIX store it.
#![forbid(unsafe_code)]

mod record;
pub mod schema;

pub use record::{
    BiflowDirection, Direction, EndReason, FlowKey, FlowRecord, NatEvent, PacketLocation,
    Translation,
};
