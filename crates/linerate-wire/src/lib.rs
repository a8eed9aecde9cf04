//! Header views, parsing and emitting, checksums and flow keys.
#![forbid(unsafe_code)]
