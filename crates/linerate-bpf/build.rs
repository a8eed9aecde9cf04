//! Compiles the programs of `src/bpf` and generates their skeletons.

#[path = "build/compile.rs"]
mod compile;

fn main() {
    compile::compile(&["ingress_drop", "steer", "tee"], &[]);
}
