//! `linerate manual DIR`: the man pages, made from the same definitions as `--help`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};

/// Arguments of `linerate manual`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folder that receives linerate.1 and one page for each verb; made if it is not there.
    directory: PathBuf,
}

/// Writes the pages of `command`.
pub(crate) fn run(arguments: &Arguments, command: Command) -> Result<()> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the folder {}", directory.display()))?;
    clap_mangen::generate_to(command, directory)
        .with_context(|| format!("cannot write man pages to {}", directory.display()))?;
    Ok(())
}
