//! [`DirectionFilter`]: which frames to capture, by their direction.

/// Which frames to capture, seen from the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DirectionFilter {
    /// Those that the interface received.
    In,
    /// Those that the host sends.
    Out,
    /// Both; on the loopback interface, where each frame is sent and received, once each.
    #[default]
    InOut,
}
