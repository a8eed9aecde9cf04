//! Building peers from the sources that this program carries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

/// The files of a Cargo package, by name.
pub(super) type Sources = [(&'static str, &'static str); 3];

/// Builds the package `name`, whose program is `peer-NAME`, in `folder/NAME`.
pub(super) fn cargo(folder: &Path, name: &str, sources: &Sources) -> Result<PathBuf> {
    // Cargo runs in there, and the program elsewhere.
    let source = std::path::absolute(folder)?.join(name);
    fs::create_dir_all(source.join("src"))?;
    for (name, text) in sources {
        fs::write(source.join(name), text)?;
    }
    output(
        Command::new("cargo")
            .args(["build", "--quiet", "--release", "--locked", "--target-dir"])
            .arg(source.join("target"))
            .current_dir(&source)
            .env_remove("CARGO_TARGET_DIR"),
    )?;
    Ok(source.join("target/release").join(format!("peer-{name}")))
}

/// Runs `command` to its end.
pub(super) fn output(command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| program.clone())?;
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = stderr.lines().find(|line| line.contains("error")).unwrap_or("it failed");
    bail!("{program} could not build it: {line}")
}
