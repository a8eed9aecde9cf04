//! The session table and what else user space shares with the programs: the layout, the control page, the
//! deny list and the rules. Nothing here depends on the daemon.

pub mod accounting;
pub mod ageing;
pub mod clock;
pub mod control;
pub mod deny;
pub mod flows;
mod hops;
pub mod layout;
mod mapped;
pub mod rules;
pub mod session;

pub use mapped::Table;

#[cfg(test)]
#[allow(dead_code, reason = "the integration tests have more of it")]
#[path = "../../tests/it/common/writer.rs"]
pub(crate) mod writer;
