//! Compiles the programs of `src/bpf` and generates their skeletons.

fn main() {
    linerate_bpf_build::compile(&["guard", "steer", "tee"], &[]);
}
