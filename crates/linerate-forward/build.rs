//! Compiles the programs of `src/bpf` and generates their skeletons.

fn main() {
    // Atomics that return the former value: Linux 5.12.
    linerate_bpf_build::compile(&["accelerator", "preflight"], &["-mcpu=v3", "-Wall"]);
}
