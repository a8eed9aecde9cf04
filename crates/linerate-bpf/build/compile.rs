//! Shared by the build scripts of all crates with BPF programs, which include this file by its path: so
//! libbpf-cargo is a build dependency only, and nothing is built twice.
//!
//! A build script calls [`compile`] with the names of the objects in `src/bpf`. The crate includes each with
//! `include!(concat!(env!("OUT_DIR"), "/NAME.rs"))`, which defines a private module `skeleton`.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use libbpf_cargo::SkeletonBuilder;

/// Generated code follows no lint, and its user needs a part of it only.
const ALLOW: &str = "#[allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks, dead_code, \
    missing_docs, non_camel_case_types, non_snake_case, unreachable_pub, unsafe_code, unsafe_op_in_unsafe_fn, \
    unused)]";

/// Compiles `src/bpf/NAME.bpf.c` for each name to `OUT_DIR/NAME.bpf.o` and generates its skeleton,
/// `OUT_DIR/NAME.rs`. `arguments` are passed to clang after the include directories of the target.
///
/// Where that fails, prints the error of clang, and what may be missing, and ends the build script.
///
/// # Panics
/// Outside a build script.
pub(crate) fn compile(names: &[&str], arguments: &[&str]) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=src/bpf");
    for name in names {
        let source = format!("src/bpf/{name}.bpf.c");
        let built = SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(
                // Lines without columns: a tenth of the object less.
                include_directories()
                    .into_iter()
                    .chain(["-gno-column-info"].iter().chain(arguments).map(OsString::from)),
            )
            .build_and_generate(out.join(format!("{name}.skel.rs")));
        if let Err(error) = built {
            eprintln!(
                "cannot compile {source}: {error:#}\n\
                 it takes clang with the BPF target (Debian and Ubuntu: apt install clang)"
            );
            std::process::exit(1);
        }
        compress(&out, name);
        let module = format!("{ALLOW}\nmod skeleton {{\n    include!(\"{name}.skel.rs\");\n}}\n");
        let path = out.join(format!("{name}.rs"));
        if let Err(error) = fs::write(&path, module) {
            eprintln!("cannot write {}: {error}", path.display());
            std::process::exit(1);
        }
    }
}

/// Replaces the object in the skeleton by its zlib data, a quarter of the size. `NAME.bpf.o` stays in `OUT_DIR`.
fn compress(out: &Path, name: &str) {
    let object = fs::read(out.join(format!("{name}.bpf.o"))).expect("it was compiled");
    let compressed =
        File::create(out.join(format!("{name}.bpf.zlib"))).expect("OUT_DIR can be written");
    let mut encoder = ZlibEncoder::new(compressed, Compression::best());
    encoder.write_all(&object).and_then(|()| encoder.finish()).expect("OUT_DIR can be written");
    let skeleton = out.join(format!("{name}.skel.rs"));
    let text = fs::read_to_string(&skeleton).expect("it was generated");
    let (before, rest) =
        text.split_once("#[unsafe(link_section").expect("the object is in the skeleton");
    let (_, after) = rest.split_once("];\n").expect("an array ends");
    let data = format!(
        "static DATA: std::sync::LazyLock<Vec<u8>> = \
         std::sync::LazyLock::new(|| linerate_bpf::decompress(include_bytes!(\"{name}.bpf.zlib\")));\n"
    );
    fs::write(skeleton, [before, &data, after].concat()).expect("OUT_DIR can be written");
}

/// The directory of `asm/types.h`: below the multiarch triple on Debian and its derivatives.
fn include_directories() -> Vec<OsString> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let directory = format!("/usr/include/{arch}-linux-gnu");
    if Path::new(&directory).is_dir() { vec!["-I".into(), directory.into()] } else { Vec::new() }
}
