//! Status codes.

use linerate_bpf::Error as BpfError;
use linerate_ring::Error as RingError;
use linerate_udp::Error;

/// The status of a call. The numbers are stable; new ones may be added.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum linerate_receive_status {
    /// Done.
    Ok = 0,
    /// No message arrived before the timeout, or a signal arrived.
    Timeout = 1,
    /// A required pointer is NULL, or what it points to is invalid.
    InvalidArgument = 2,
    /// No interface of this host has the address.
    AddressNotAvailable = 3,
    /// Another socket has the port, or another XDP program the interface.
    AddressInUse = 4,
    /// A capability is missing.
    Privilege = 5,
    /// There is no such interface.
    NoInterface = 6,
    /// A group cannot be joined or left.
    Group = 7,
    /// The backend is unavailable.
    BackendUnavailable = 8,
    /// The kernel refused for another reason.
    System = 10,
    /// The interface was removed, or moved to another network namespace.
    InterfaceGone = 11,
}

impl From<&Error> for linerate_receive_status {
    fn from(error: &Error) -> Self {
        match error {
            Error::AddressNotAvailable(_) => Self::AddressNotAvailable,
            Error::AddressInUse(_)
            | Error::Ring(RingError::Bpf(BpfError::ForeignProgram { .. })) => Self::AddressInUse,
            Error::Privilege { .. } => Self::Privilege,
            Error::NoInterface(_) => Self::NoInterface,
            Error::InterfaceGone(_) => Self::InterfaceGone,
            Error::Group { .. } => Self::Group,
            Error::BackendUnavailable { .. } => Self::BackendUnavailable,
            Error::Invalid(_) => Self::InvalidArgument,
            _ => Self::System,
        }
    }
}
