//! Sources, filters and sinks of a packet capture.
#![forbid(unsafe_code)]
