//! Compiles the programs of `src/bpf` and generates their skeletons.

use std::env;

#[path = "../linerate-bpf/build/compile.rs"]
mod compile;

fn main() {
    // Atomics that return what was there: Linux 5.12.
    let mut arguments = vec!["-mcpu=v3", "-Wall"];
    // Where loads stay in order with loads, and stores with stores (`session.h`).
    if matches!(env::var("CARGO_CFG_TARGET_ARCH").as_deref(), Ok("x86" | "x86_64")) {
        arguments.push("-DFORWARD_ORDERED");
    }
    compile::compile(&["forward", "preflight"], &arguments);
}
