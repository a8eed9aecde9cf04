//! `linerate lab` as users run it.

mod forward;
mod forward_fib;
mod receive;
mod runs;
mod segment_rate;
mod segment_uplink;

use std::path::{Path, PathBuf};
use std::process::Command;

/// `linerate-lab`, and beside it the `linerate` command that experiments run, of the workspace above.
fn lab() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_linerate-lab"));
    if !program.with_file_name("linerate").exists() {
        let cargo = std::env::var_os("CARGO").expect("linerate beside linerate-lab: build both");
        let target = program.parent().unwrap().parent().unwrap();
        let build = Command::new(cargo)
            .args([
                "build",
                "--manifest-path",
                "../Cargo.toml",
                "--package",
                "linerate",
                "--target-dir",
            ])
            .arg(target)
            .status()
            .unwrap();
        assert!(build.success(), "linerate does not build");
    }
    Command::new(program)
}

/// A run of an experiment, narrowed down to these measurements.
struct Run {
    /// What it said.
    printed: String,
    /// Its folder.
    folder: PathBuf,
    _out: tempfile::TempDir,
}

impl Run {
    fn new(experiment: &str, only: &[&str]) -> Self {
        Self::of(lab(), experiment, only)
    }

    /// As [`Run::new`], by a command that starts the lab.
    fn of(mut command: Command, experiment: &str, only: &[&str]) -> Self {
        let out = tempfile::tempdir().unwrap();
        command.args(["run", experiment, "--quick", "--repeats", "1", "--out"]).arg(out.path());
        only.iter().for_each(|only| _ = command.args(["--only", only]));
        let output = command.output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        assert!(printed.contains("raw data and summary"), "{printed}");
        let folder = std::fs::read_dir(out.path()).unwrap().next().unwrap().unwrap().path();
        assert!(folder.join("summary.json").is_file());
        Self { printed, folder, _out: out }
    }

    /// One of its files.
    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name))
            .unwrap_or_else(|error| panic!("{error}: {}", self.printed))
    }
}
