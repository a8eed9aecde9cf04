//! XDP programs on an interface: attached by a BPF link, and found with what keeps them there.

pub(crate) mod attach;
mod attempt;
pub(crate) mod mode;
pub(crate) mod owner;
pub(crate) mod query;
mod socket;

pub use attempt::try_attach;
pub use mode::AttachMode;
pub use owner::Owner;
pub use query::{AttachedProgram, attached, map_ids, require_free};
pub use socket::open_socket;
