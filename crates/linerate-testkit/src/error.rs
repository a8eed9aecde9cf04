//! What can go wrong, and what to do about it.

use std::io;

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a namespace, an interface or a program in a namespace could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A namespace could not be made, entered or removed.
    #[error("cannot {action} network namespace {name}: {source}{}", advice(.source))]
    Namespace {
        /// The namespace as `ip netns` shows it.
        name: String,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused a request about an interface.
    #[error(
        "cannot {action} on interface {interface} in network namespace {namespace}: \
         {source}{}", advice(.source)
    )]
    Interface {
        /// The interface.
        interface: String,
        /// The namespace it is in.
        namespace: String,
        /// What was tried.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A name that the kernel would not take for an interface.
    #[error(
        "{name:?} is not an interface name: it needs 1 to 15 characters without '/', ':' or a space; \
         choose a shorter or plainer one"
    )]
    InterfaceName {
        /// The name that was asked for.
        name: String,
    },
    /// A setting under /proc/sys could not be written.
    #[error("cannot set {key} to {value} in network namespace {namespace}: {source}{}", advice(.source))]
    Sysctl {
        /// The setting with dots, as sysctl(8) names it.
        key: String,
        /// The value that was to be written.
        value: String,
        /// The namespace.
        namespace: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A program could not be started in a namespace.
    #[error("cannot start {program} in network namespace {namespace}: {source}{}", advice(.source))]
    Spawn {
        /// The program.
        program: String,
        /// The namespace.
        namespace: String,
        /// What the kernel said.
        source: io::Error,
    },
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            " (needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run it as root)"
        }
        io::ErrorKind::NotFound => " (is it installed, and in PATH?)",
        _ => "",
    }
}
