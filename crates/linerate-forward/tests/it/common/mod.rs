//! What the tests of the accelerator share: two routers of the same configuration, the hosts around
//! them, and what leaves on every port.
pub(crate) mod accelerator;
pub(crate) mod capture;
pub(crate) mod host;
pub(crate) mod load;
pub(crate) mod router;
pub(crate) mod sink;
pub(crate) mod writer;

use std::path::Path;

use linerate_testkit::tools::compile_bpf;

/// Returns from a test without root, or on a kernel that no session can be learned on, and says so.
macro_rules! learner_or_skip {
    () => {
        linerate_testkit::root_or_skip!();
        linerate_testkit::probe_or_skip!(linerate_forward::runtime::program::unavailable());
    };
}

/// Compiles `NAME.bpf.c` beside this file; where the object is.
pub(crate) fn compiled(name: &str) -> String {
    let source = format!("{}/tests/it/common/{name}.bpf.c", env!("CARGO_MANIFEST_DIR"));
    let object = compile_bpf(source.as_ref(), Path::new(env!("CARGO_TARGET_TMPDIR")));
    object.to_str().expect("a path in UTF-8").to_owned()
}
