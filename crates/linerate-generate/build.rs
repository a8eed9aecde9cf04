//! Compiles the generating program of `src/bpf` and generates its skeleton.

fn main() {
    linerate_bpf_build::compile(&["generate"], &[]);
}
