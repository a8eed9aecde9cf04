//! Whose packets they are: real processes, in control groups and network namespaces.

mod sockets;
mod support;
mod surface;
