//! Packet generator (XDP live frames) and replay of capture files.
#![deny(unsafe_code)]
