//! Compiles the programs of `src/bpf` and generates their skeletons.

#[path = "build/compile.rs"]
mod compile;

fn main() {
    // Atomic operations that return the former value: Linux 5.12.
    compile::compile(&["accelerator", "preflight"], &["-mcpu=v3", "-Wall"]);
}
