//! What the tests of the C libraries share: a library as it is installed, programs over it, and whether its
//! header is that of the sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library `linerate-NAME` as it is installed: under the names that linkers and programs look for.
pub(crate) fn install(folder: &Path, name: &str) {
    let tests = std::env::current_exe().unwrap();
    let file = format!("liblinerate_{name}_c.so");
    let built = tests.ancestors().skip(1).take(2).map(|folder| folder.join(&file));
    let built: PathBuf =
        built.into_iter().find(|path| path.is_file()).expect("the library is built");
    let soname = format!("liblinerate-{name}.so.0");
    fs::copy(built, folder.join(&soname)).unwrap();
    std::os::unix::fs::symlink(soname, folder.join(format!("liblinerate-{name}.so"))).unwrap();
}

/// Builds `examples/EXAMPLE.c` over the library in `folder`, without a warning.
pub(crate) fn compile(
    folder: &Path,
    example: &str,
    library: &str,
    flags: &[&str],
) -> Result<PathBuf, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(example);
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-I"])
        .arg(here.join("include"))
        .args(flags)
        .arg(here.join(format!("examples/{example}.c")))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(folder)
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .arg(format!("-llinerate-{library}"))
        .output()
        .map_err(|error| format!("cc: {error}"))?;
    if output.status.success() { Ok(program) } else { Err(text(&output.stderr)) }
}

/// The same with the address and undefined-behaviour sanitizers; `None`, with a line that says so, if the compiler
/// has none.
pub(crate) fn compile_sanitized(
    test: &str,
    folder: &Path,
    example: &str,
    library: &str,
) -> Option<PathBuf> {
    let flags = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    match compile(folder, example, library, &flags) {
        Ok(program) => Some(program),
        Err(why) if why.contains("asan") => {
            println!("skipped: {test}: no sanitizer: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

/// The command that runs `program` under valgrind, for errors and leaks.
pub(crate) fn under_valgrind(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["-q", "--error-exitcode=9", "--leak-check=full"]).arg(program);
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Compares `include/linerate/NAME.h` with what cbindgen makes of the sources, after `edit`.
pub(crate) fn hold_header(name: &str, edit: impl Fn(String) -> String) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(here, config).unwrap().write(&mut made);
    // Words of Rust that C has others for.
    let made = String::from_utf8(made).unwrap();
    let made = edit(made.replace("// # Safety\n", "// The caller sees to it that:\n"));
    let path = here.join(format!("include/linerate/{name}.h"));
    if std::env::var_os("LINERATE_WRITE_HEADER").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "{} is not that of the sources; run this test with LINERATE_WRITE_HEADER=1",
        path.display()
    );
}

/// Has a C++ compiler look at `program`, which includes the header.
pub(crate) fn hold_for_c_plus_plus(test: &str, program: &str) {
    if !installed("c++") {
        println!("skipped: {test}: no C++ compiler");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.cpp");
    fs::write(&source, program).unwrap();
    let output = Command::new("c++")
        .args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg(source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
