//! What the build scripts of crates with BPF programs share.
//!
//! A build script calls [`compile`] with the names of the objects in `src/bpf`; the crate takes each in with
//! `include!(concat!(env!("OUT_DIR"), "/NAME.rs"))`, which is a private module `skeleton`.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

/// Generated code answers to nobody's style, and its user takes what he needs of it.
const ALLOW: &str = "#[allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks, dead_code, \
    missing_docs, non_camel_case_types, non_snake_case, unreachable_pub, unsafe_code, unsafe_op_in_unsafe_fn, \
    unused)]";

/// Compiles `src/bpf/NAME.bpf.c` for each name to `OUT_DIR/NAME.bpf.o` and generates its skeleton,
/// `OUT_DIR/NAME.rs`. `arguments` go to clang, behind where the headers of the target lie.
///
/// Ends the build script with what clang says, and with what is missing, where that fails.
///
/// # Panics
///
/// Outside a build script.
pub fn compile(names: &[&str], arguments: &[&str]) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=src/bpf");
    for name in names {
        let source = format!("src/bpf/{name}.bpf.c");
        let built = SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(
                include_directories().into_iter().chain(arguments.iter().map(OsString::from)),
            )
            .build_and_generate(out.join(format!("{name}.skel.rs")));
        if let Err(error) = built {
            eprintln!(
                "cannot compile {source}: {error:#}\n\
                 it takes clang with the BPF target (Debian and Ubuntu: apt install clang)"
            );
            std::process::exit(1);
        }
        let module = format!("{ALLOW}\nmod skeleton {{\n    include!(\"{name}.skel.rs\");\n}}\n");
        let path = out.join(format!("{name}.rs"));
        if let Err(error) = std::fs::write(&path, module) {
            eprintln!("cannot write {}: {error}", path.display());
            std::process::exit(1);
        }
    }
}

/// Where `asm/types.h` lives: below the multiarch triple on Debian and its kin.
fn include_directories() -> Vec<OsString> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let directory = format!("/usr/include/{arch}-linux-gnu");
    if Path::new(&directory).is_dir() { vec!["-I".into(), directory.into()] } else { Vec::new() }
}
