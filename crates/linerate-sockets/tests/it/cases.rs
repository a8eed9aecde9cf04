//! `tests/c/cases.c`: one case each for what a program can tell of a UDP socket.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use linerate_testkit::{Namespace, print_skipped, root_or_skip};

/// As this test's build has made it.
pub(crate) fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.with_file_name("liblinerate_sockets.so")
}

/// Cases in which the library may not read ahead at all.
const PLAIN: [&str; 3] = ["epoll-nested", "epoll-once", "rights"];
/// Cases after which it may no longer: another program has the socket.
const PASSED_ON: [&str; 3] = ["executed", "rights", "vforked"];

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn compiled(folder: &Path) -> Option<PathBuf> {
    let program = folder.join("cases");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/cases.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-D_FORTIFY_SOURCE=2", "-o"]);
    let output = compiler.arg(&program).arg(source).output().ok()?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(program)
}

#[test]
fn a_program_cannot_tell() {
    root_or_skip!();
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(folder.path()) else {
        return print_skipped("a_program_cannot_tell", "no C compiler");
    };
    let namespace = Namespace::create("cases").unwrap();
    namespace.interface("lo").unwrap().up().unwrap();
    let run = |case: &str, library: Option<&Path>| -> Output {
        let mut command = namespace.command("timeout");
        command.arg("60").arg(&program).arg(case);
        if let Some(library) = library {
            command.env("LD_PRELOAD", library).env("LINERATE_LOG", "1");
        }
        command.output().unwrap()
    };
    let names = text(&Command::new(&program).output().unwrap().stdout);
    assert!(names.lines().count() > 30, "{names}");
    let mut differ = Vec::new();
    for case in names.lines() {
        let (alone, with) = (run(case, None), run(case, Some(&library())));
        let said = text(&with.stderr);
        if (alone.status, &alone.stdout) != (with.status, &with.stdout) || alone.stdout.is_empty() {
            let alone = text(&alone.stdout) + &text(&alone.stderr);
            differ.push(format!("{case}: {alone}\nwith the library: {}{said}", text(&with.stdout)));
        }
        if PASSED_ON.contains(&case) && !said.contains("UDP socket 3: plain from now on") {
            differ.push(format!("{case}: the socket did not become plain: {said}"));
        }
        // The last case ends as another program, and a child ends by _exit.
        let silent = PLAIN.contains(&case) || ["daemon", "executed"].contains(&case);
        if !silent && !said.contains("were read ahead") {
            differ.push(format!("{case}: nothing was read ahead: {said}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
