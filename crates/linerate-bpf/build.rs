//! Compiles the programs of `src/bpf` and generates their skeletons.

#[path = "build/compile.rs"]
mod compile;

fn main() {
    compile::compile(&["ingress_drop", "netfilter", "steer", "tee"], &[]);
    // An addition that returns the value before it is an instruction of the third version.
    compile::compile(&["drops", "probe", "process", "trace"], &["-mcpu=v3"]);
}
