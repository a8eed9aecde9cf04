//! The matches and targets of x_tables, which iptables-legacy and, by `match` and `target`, iptables-nft use.

use super::evaluate::{Scope, Verdict, Writes};
use super::sessions::Match;

/// What a target does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// It does something to each packet that the fast path would not repeat.
    pub acts: bool,
    pub verdict: Verdict,
}

/// Which sessions a match of this name, revision and `info` matches; and whether it acts on each packet that it sees, as
/// a limit does, which counts it.
pub(super) fn matched(
    _name: &[u8],
    _revision: u32,
    _info: &[u8],
    _scope: &Scope<'_>,
) -> (Match, bool) {
    (Match::varying(), true)
}

/// What the target of this name, revision and `info` does.
pub(super) fn target(_name: &[u8], _revision: u32, _info: &[u8], _scope: &Scope<'_>) -> Target {
    Target { acts: true, verdict: Verdict::Continue }
}

/// What the target of this name writes.
pub(super) fn writes(_name: &[u8]) -> Writes {
    Writes { mark: true, dscp: true }
}

/// Whether a match of this name looks at routes.
pub(super) fn looks_at_routes(name: &[u8]) -> bool {
    matches!(name, b"rpfilter" | b"realm")
}
