//! What the tests of the accelerator share: two routers of the same configuration, the hosts around
//! them, and what leaves on every port.
pub(crate) mod accelerator;
pub(crate) mod capture;
pub(crate) mod host;
pub(crate) mod load;
pub(crate) mod router;
pub(crate) mod sink;

use std::path::Path;

use linerate_testkit::tools::compile_bpf;

/// Compiles `NAME.bpf.c` beside this file; where the object is.
pub(crate) fn compiled(name: &str) -> String {
    let source = format!("{}/tests/it/common/{name}.bpf.c", env!("CARGO_MANIFEST_DIR"));
    let object = compile_bpf(source.as_ref(), Path::new(env!("CARGO_TARGET_TMPDIR")));
    object.to_str().expect("a path in UTF-8").to_owned()
}
