//! Tests that skip themselves, by name and with the reason.

use linerate_net::privilege::{self, CapabilitySet};

/// Whether this process may make namespaces and interfaces: it has CAP_SYS_ADMIN and CAP_NET_ADMIN
/// in its effective set (`capabilities(7)`), as root has.
pub fn is_root() -> bool {
    privilege::has(CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN)
}

/// The name of the function that calls this.
#[macro_export]
macro_rules! test_name {
    () => {{
        fn here() {}
        $crate::function_name(std::any::type_name_of_val(&here))
    }};
}

/// Returns from a test that cannot run here, saying so on standard error: `skipped: NAME: REASON`, which the
/// test runner counts.
#[macro_export]
macro_rules! skip {
    ($reason:expr) => {{
        $crate::print_skipped($crate::test_name!(), $reason);
        return;
    }};
}

/// Returns from a test that needs root when there is none, saying so. With root, the test waits while another
/// one of its process runs [`exclusive`](crate::exclusive)ly. Helpers of several tests give the name of theirs.
#[macro_export]
macro_rules! root_or_skip {
    () => {
        $crate::root_or_skip!($crate::test_name!());
    };
    ($name:expr) => {
        if !$crate::is_root() {
            $crate::print_skipped($name, "needs root");
            return;
        }
        let _shared = $crate::shared();
    };
}

/// Returns from a test whose kernel lacks what it needs, saying so in the words of the probe. A `None` goes on.
///
/// Give this only what a probe found missing in the kernel: a machine that is set up wrongly, or a defect, has
/// to fail.
#[macro_export]
macro_rules! probe_or_skip {
    ($reason:expr) => {
        $crate::probe_or_skip!($crate::test_name!(), $reason);
    };
    ($name:expr, $reason:expr) => {
        if let Some(reason) = $reason {
            $crate::print_skipped($name, &reason.to_string());
            return;
        }
    };
}

/// The last part of the path of a function, from that of a function inside it.
#[doc(hidden)]
pub fn function_name(inner: &'static str) -> &'static str {
    let path = inner.trim_end_matches("::here").trim_end_matches("::{{closure}}");
    path.rsplit_once("::").map_or(path, |(_, name)| name)
}

/// Prints `skipped: NAME: REASON` to standard error itself, which the test harness does not capture.
pub fn print_skipped(name: &str, reason: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "skipped: {name}: {reason}");
}
