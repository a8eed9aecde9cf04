//! Compiles the programs of `src/bpf` and generates their skeletons.

#[path = "build/compile.rs"]
mod compile;

use std::hash::{DefaultHasher, Hasher};

fn main() {
    // Atomic operations that return the former value: Linux 5.12.
    compile::compile(&["accelerator", "preflight"], &["-mcpu=v3", "-Wall"]);
    // The runtime names this build by it, without a second copy of the object.
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let object = std::fs::read(format!("{out}/accelerator.bpf.o")).expect("it was compiled");
    let mut hasher = DefaultHasher::new();
    hasher.write(&object);
    println!("cargo:rustc-env=ACCELERATOR_HASH={:016x}", hasher.finish());
}
