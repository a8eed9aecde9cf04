//! What the verbs share: output, errors, logging, signals, the values of options, progress.

pub(crate) mod companion;
mod errors;
pub mod json;
pub mod logging;
pub(crate) mod metrics;
pub(crate) mod progress;
pub(crate) mod signals;
pub mod stdio;
pub(crate) mod values;

pub(crate) use errors::{as_usage_error, eprint_message, refuse, remedy, start};
pub use errors::{exit_status, format_error_chain, usage_error};
