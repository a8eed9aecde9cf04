//! `linerate lab` becomes `linerate-lab`, wherever that is. The tests of what it does are those of its crate.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

/// A copy of the command as `BIN/linerate` in its own folder, and what it prints.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Self {
        let prefix = tempfile::tempdir().unwrap();
        fs::create_dir(prefix.path().join("bin")).unwrap();
        fs::hard_link(env!("CARGO_BIN_EXE_linerate"), prefix.path().join("bin/linerate"))
            .or_else(|_| {
                let copy = prefix.path().join("bin/linerate");
                fs::copy(env!("CARGO_BIN_EXE_linerate"), copy).map(drop)
            })
            .unwrap();
        Self(prefix)
    }

    /// Puts a script in the place of `linerate-lab`.
    fn script(&self, at: &str, text: &str) {
        let path = self.0.path().join(at);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn linerate(&self, arguments: &[&str], path: &Path) -> Output {
        Command::new(self.0.path().join("bin/linerate"))
            .args(arguments)
            .env("PATH", path)
            .output()
            .unwrap()
    }
}

#[test]
fn the_lab_is_found_beside_the_command_then_below_its_prefix_then_in_the_path() {
    let installed = Installed::new();
    let elsewhere = installed.0.path().join("elsewhere");
    let missing = installed.linerate(&["lab", "list"], &elsewhere);
    let printed = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(missing.status.code(), Some(1), "{printed}");
    for words in ["bin/linerate-lab", "libexec/linerate/linerate-lab", "make install"] {
        assert!(printed.contains(words), "no {words}: {printed}");
    }
    // Each place comes before the ones that were tried before it.
    for place in ["elsewhere/linerate-lab", "libexec/linerate/linerate-lab", "bin/linerate-lab"] {
        installed.script(place, &format!("echo {place} \"$@\""));
        let found = installed.linerate(&["-v", "lab", "run", "lab", "--quick"], &elsewhere);
        let printed = String::from_utf8(found.stdout).unwrap();
        assert_eq!(printed, format!("{place} -v run lab --quick\n"));
    }
}

#[test]
fn the_lab_ends_the_command_with_its_own_status_or_signal() {
    let installed = Installed::new();
    installed.script("bin/linerate-lab", "exit 7");
    assert_eq!(installed.linerate(&["lab", "list"], Path::new("")).status.code(), Some(7));
    installed.script("bin/linerate-lab", "kill -TERM $$");
    assert_eq!(installed.linerate(&["lab", "list"], Path::new("")).status.signal(), Some(15));
    // The command knows the lab's arguments, so that it refuses wrong ones without it.
    assert_eq!(installed.linerate(&["lab", "lost"], Path::new("")).status.code(), Some(2));
}

#[test]
fn flows_and_find_become_their_own_program_or_say_how_to_get_it() {
    let installed = Installed::new();
    let missing = installed.linerate(&["find", "-w", "-", "10.0.0.1"], Path::new(""));
    assert!(!missing.status.success());
    let error = String::from_utf8_lossy(&missing.stderr);
    for words in ["bin/linerate-flows", "libexec/linerate/linerate-flows", "make flows"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    installed.script("bin/linerate-flows", "echo \"$@\"");
    for words in [
        &["flows", "top", "--by", "port", "-n", "3", "--help", "not", "tcp"][..],
        // It lists its commands, and what it needs.
        &["flows"],
        &["find"],
        &["find", "-r", "place", "-w", "-", "--after", "-2h", "host", "10.0.0.1"],
    ] {
        let found = installed.linerate(words, Path::new(""));
        assert_eq!(String::from_utf8_lossy(&found.stdout).trim_end(), words.join(" "));
    }
    // The help is the program's, which has no log.
    let help = installed.linerate(&["find", "-v", "--help"], Path::new(""));
    assert_eq!(String::from_utf8_lossy(&help.stdout).trim_end(), "find --help");
}
