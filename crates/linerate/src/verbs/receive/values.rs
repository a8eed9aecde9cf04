//! How the values of the options of `linerate receive` and `linerate send` are written.

use crate::cli::values::{bytes, within};
use linerate_udp::{MAX_BATCH_SIZE, MAX_MESSAGE_SIZE, Reuseport};

/// Messages of a batch.
pub(in crate::verbs) fn batch(text: &str) -> Result<usize, String> {
    within(text, 1, MAX_BATCH_SIZE, "messages in a batch")
}

/// Bytes of the longest message.
pub(super) fn message_size(text: &str) -> Result<usize, String> {
    within(text, 1, MAX_MESSAGE_SIZE, "bytes, which is what a UDP message can have")
}

/// Bytes of a socket's buffer: the kernel takes what it can double in 31 bits.
pub(super) fn buffer(text: &str) -> Result<usize, String> {
    bytes(text, 1, (1 << 30) - 1)
}

/// Bytes of the rings of xdp: what either delivery accepts.
pub(super) fn ring(text: &str) -> Result<usize, String> {
    bytes(text, 256 << 10, 1 << 30)
}

/// Who shares the port, and which of them gets a message.
pub(super) fn steering(text: &str) -> Result<Reuseport, String> {
    let sockets = |number: &str| number.parse().ok().filter(|number| *number > 0);
    let steering = match text.split_once(':') {
        None if text == "flow" => Some(Reuseport::Flow),
        Some(("cpu", number)) => sockets(number).map(|sockets| Reuseport::Cpu { sockets }),
        Some(("spread", number)) => sockets(number).map(|sockets| Reuseport::Spread { sockets }),
        _ => None,
    };
    steering.ok_or_else(|| {
        "write flow, or cpu:N or spread:N with the number of receivers that share the port"
            .to_owned()
    })
}

#[cfg(test)]
mod tests;
