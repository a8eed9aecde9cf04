//! `make install` and `make uninstall`, as packagers use them: into a staged tree.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::LINERATE;

/// A staged tree, and the folder from which it is filled.
struct Stage {
    folder: tempfile::TempDir,
    /// Whether the C libraries were built, which a test of this package alone does not do.
    has_c_libraries: bool,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let built = folder.path().join("built");
        fs::create_dir(&built).unwrap();
        let mut stage = Self { folder, has_c_libraries: true };
        symlink(LINERATE, built.join("linerate")).unwrap();
        let capture = env!("CARGO_BIN_EXE_linerate-capture");
        symlink(capture, built.join("linerate-capture")).unwrap();
        for file in ["linerate-lab", "liblinerate_pcap.so", "liblinerate_sockets.so"] {
            let found =
                find(file).unwrap_or_else(|| panic!("{file} is not built: make test builds it"));
            symlink(found, built.join(file)).unwrap();
        }
        for name in ["segment", "udp"] {
            for file in [format!("liblinerate_{name}_c.so"), format!("liblinerate_{name}_c.a")] {
                match find(&file) {
                    Some(found) => symlink(found, built.join(file)).unwrap(),
                    None => stage.has_c_libraries = false,
                }
            }
        }
        stage
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// `make TARGETS DESTDIR=... PREFIX=/usr`, with what cargo has built already.
    fn make(&self, targets: &[&str]) -> Output {
        Command::new("make")
            .args(["-s", "-o", "build", "-o", "build-c", "PREFIX=/usr", "libdir=/usr/lib/some"])
            .arg(format!("DESTDIR={}", self.root().display()))
            .arg(format!("built={}", self.folder.path().join("built").display()))
            .args(targets)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .output()
            .unwrap()
    }

    fn must_make(&self, targets: &[&str]) {
        let output = self.make(targets);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "make {targets:?}: {errors}");
    }

    /// All files below the root, without the root's name, in order.
    fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        collect(&self.root(), &self.root(), &mut files);
        files.sort();
        files
    }
}

fn find(file: &str) -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().skip(1).take(2).map(|folder| folder.join(file)).find(|path| path.is_file())
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            collect(root, &entry.path(), files);
        } else {
            files.push(entry.path().strip_prefix(root).unwrap().display().to_string());
        }
    }
}

#[test]
fn a_staged_installation_works_and_leaves_nothing() {
    let stage = Stage::new();
    stage.must_make(&["install", "install-service"]);
    let files = stage.files();
    for expected in [
        "etc/linerate/forward.toml",
        "etc/systemd/system/linerate-capture@.service",
        "etc/systemd/system/linerate-forward.service",
        "usr/bin/linerate",
        "usr/bin/linerate-capture",
        "usr/include/linerate/pcap.h",
        "usr/lib/linerate/extcap/linerate",
        "usr/lib/linerate/liblinerate-sockets.so",
        "usr/lib/linerate/libpcap.so.0.8",
        "usr/lib/linerate/libpcap.so.1",
        "usr/libexec/linerate/linerate-lab",
        "usr/share/bash-completion/completions/linerate",
        "usr/share/doc/linerate/docs/capture.md",
        "usr/share/doc/linerate/licenses/MIT.txt",
        "usr/share/linerate/capture.toml",
        "usr/share/linerate/grafana/capture.json",
        "usr/share/man/man1/linerate-capture.1",
        "usr/share/zsh/site-functions/_linerate",
    ] {
        assert!(files.iter().any(|file| file == expected), "{expected} is not in {files:#?}");
    }
    let root = stage.root();
    let mode = |file: &str| fs::metadata(root.join(file)).unwrap().mode() & 0o7777;
    assert_eq!(mode("usr/bin/linerate"), 0o755);
    assert_eq!(mode("usr/lib/linerate/extcap/linerate"), 0o755);
    assert_eq!(mode("usr/share/man/man1/linerate.1"), 0o644);
    let unit =
        fs::read_to_string(root.join("etc/systemd/system/linerate-forward.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/linerate "), "{unit}");
    assert!(unit.contains("--config /etc/linerate/forward.toml"), "{unit}");
    assert!(!unit.contains('@') || unit.contains("=@") || unit.contains("~@"), "{unit}");

    // The installed command finds the installed lab and library, not those of the build.
    let listed =
        Command::new(root.join("usr/bin/linerate")).args(["lab", "list"]).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    assert!(String::from_utf8_lossy(&listed.stdout).contains("capture-rate"));

    let others = root.join("usr/share/man/man1/linerate-of-others.1");
    fs::write(&others, "a page of another package").unwrap();
    stage.must_make(&["uninstall"]);
    assert_eq!(stage.files(), ["usr/share/man/man1/linerate-of-others.1"]);
    assert!(!root.join("etc/linerate").exists() && !root.join("usr/lib/linerate").exists());
    // Folders that other packages use stay.
    assert!(root.join("usr/bin").exists());
}

/// The name of the folder is written into scripts and units, which quote in several ways.
#[test]
fn a_folder_that_cannot_be_written_into_a_script_is_refused() {
    let install = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install");
    let folder = tempfile::tempdir().unwrap();
    for name in ["a&b", "a|b", "it's", "a b", "a\\b", "a\"b", "a$b", "a`b", "100%"] {
        for variable in ["prefix", "libdir", "sysconfdir"] {
            let output = Command::new(install)
                .args(["install", "service"])
                .env("DESTDIR", folder.path())
                .env(variable, format!("/{name}"))
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && errors.contains(name), "{name}: {errors}");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The configuration that somebody wrote outlives both another installation and the removal.
#[test]
fn a_changed_configuration_stays() {
    let stage = Stage::new();
    stage.must_make(&["install-service"]);
    let config = stage.root().join("etc/linerate/forward.toml");
    fs::write(&config, "interfaces = [\"a\", \"b\"]\n").unwrap();
    stage.must_make(&["install-service"]);
    let removed = stage.make(&["uninstall"]);
    let said = String::from_utf8_lossy(&removed.stderr).into_owned();
    assert!(removed.status.success() && said.contains("etc/linerate/forward.toml"), "{said}");
    assert_eq!(stage.files(), ["etc/linerate/forward.toml"]);
    assert_eq!(fs::read_to_string(&config).unwrap(), "interfaces = [\"a\", \"b\"]\n");
}

/// The C libraries go where `libdir` says, and pkg-config finds them there.
#[test]
fn the_c_libraries_are_found_by_pkg_config() {
    let stage = Stage::new();
    if !stage.has_c_libraries {
        let reason = "`cargo test -p linerate` alone does not build the C libraries";
        linerate_testkit::skip!(reason);
    }
    stage.must_make(&["install-c"]);
    for name in ["segment", "udp"] {
        let asked = Command::new("pkg-config")
            .args(["--libs", &format!("linerate-{name}")])
            .env("PKG_CONFIG_LIBDIR", stage.root().join("usr/lib/some/pkgconfig"))
            .output()
            .unwrap();
        let flags = String::from_utf8_lossy(&asked.stdout).into_owned();
        assert!(flags.contains(&format!("-L/usr/lib/some -llinerate-{name}")), "{flags}");
        let library = stage.root().join(format!("usr/lib/some/liblinerate-{name}.so.0"));
        assert!(library.is_file());
    }
    stage.must_make(&["uninstall"]);
    assert_eq!(stage.files(), [""; 0]);
}

/// Where files are staged must not reach the builds of dependencies: some of them run make, and would install a
/// library of theirs into the stage, where cargo never finds it.
#[test]
fn builds_do_not_see_where_files_are_staged() {
    let folder = tempfile::tempdir().unwrap();
    let cargo = folder.path().join("cargo");
    let seen = folder.path().join("seen");
    fs::write(
        &cargo,
        format!(
            "#!/bin/sh\nenv | grep -E 'DESTDIR|PREFIX|MAKEFLAGS' >{}\nexit 9\n",
            seen.display()
        ),
    )
    .unwrap();
    fs::set_permissions(&cargo, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("make")
        .args(["install", "DESTDIR=/staged", "PREFIX=/elsewhere"])
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let seen = fs::read_to_string(&seen).unwrap_or_else(|_| {
        panic!("cargo was not run: {}", String::from_utf8_lossy(&output.stderr))
    });
    assert!(!seen.contains("/staged") && !seen.contains("/elsewhere"), "{seen}");
}
