//! `linerate lab` as users run it.

#[path = "../browser/mod.rs"]
mod browser;
mod forward;
mod forward_baselines;
mod receive;
mod runs;
mod segment_rate;
mod segment_uplink;

use std::path::Path;
use std::process::Command;

/// `linerate-lab`, and beside it the `linerate` command that experiments run: cargo builds that one with the
/// whole workspace, but not for this package alone.
fn lab() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_linerate-lab"));
    if !program.with_file_name("linerate").exists() {
        let cargo = std::env::var_os("CARGO").expect("linerate beside linerate-lab: build both");
        let build = Command::new(cargo).args(["build", "--package", "linerate"]).status().unwrap();
        assert!(build.success(), "linerate does not build");
    }
    Command::new(program)
}
