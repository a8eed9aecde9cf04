//! The two programs that experiments start: the `linerate` command, and this one for its helpers.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use linerate_testkit::{Command, Namespace};

/// `linerate ARGUMENTS` in `host`, on CPU `core`.
pub(crate) fn linerate(
    host: &Namespace,
    core: usize,
    arguments: impl IntoIterator<Item: Into<OsString>>,
) -> Result<Command> {
    Ok(on_core(host, core, linerate_path()?, arguments))
}

/// `linerate-lab helper ARGUMENTS` in `host`, on CPU `core`.
pub(crate) fn helper(
    host: &Namespace,
    core: usize,
    arguments: impl IntoIterator<Item: Into<OsString>>,
) -> Result<Command> {
    let arguments = arguments.into_iter().map(Into::into);
    Ok(on_core(host, core, current_exe()?, std::iter::once("helper".into()).chain(arguments)))
}

/// `program ARGUMENTS` in `host`, on CPU `core`.
pub(crate) fn on_core(
    host: &Namespace,
    core: usize,
    program: PathBuf,
    arguments: impl IntoIterator<Item: Into<OsString>>,
) -> Command {
    let mut command = host.command_killed_with_parent(program);
    command.args(arguments.into_iter().map(Into::into)).cpus([core]);
    command
}

/// This program, where it was at the first call.
pub(crate) fn current_exe() -> Result<PathBuf> {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = PATH.get() {
        return Ok(path.clone());
    }
    let path = env::current_exe().context("cannot tell where linerate-lab is")?;
    Ok(PATH.get_or_init(|| path).clone())
}

/// The `linerate` command: beside this program as it was built, in `bin` of the prefix that it was
/// installed under (PREFIX/libexec/linerate/linerate-lab), or in PATH.
pub(crate) fn linerate_path() -> Result<PathBuf> {
    let own = current_exe()?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let installed = folder.join("../../bin/linerate");
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join("linerate"));
    let mut places = [folder.join("linerate"), installed].into_iter().chain(in_path);
    match places.find(|place| place.is_file()) {
        Some(found) => Ok(found),
        None => bail!(
            "cannot find the linerate command, which experiments run: it is neither beside {} nor in \
             PATH; `make build` builds both, `make install` installs both",
            own.display()
        ),
    }
}

/// The arguments of a command line.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Whether `program` is in PATH.
pub(crate) fn installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
