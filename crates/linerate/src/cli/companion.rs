//! Programs of their own that verbs become: `linerate-lab`, `linerate-flows`.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// A program that is installed beside the command, or not.
pub(crate) struct Companion {
    /// Its name. `make install` puts it below PREFIX/libexec/linerate.
    pub(crate) program: &'static str,
    /// The verb that starts it.
    pub(crate) verb: &'static str,
    /// How to get it.
    pub(crate) remedy: &'static str,
}

impl Companion {
    /// The arguments of this process before the verb and behind it.
    pub(crate) fn arguments(&self) -> [Vec<OsString>; 2] {
        let mut arguments = env::args_os().skip(1);
        let before = arguments.by_ref().take_while(|argument| argument != self.verb).collect();
        [before, arguments.collect()]
    }

    /// Becomes the program with these arguments.
    pub(crate) fn exec(&self, arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode> {
        let own = env::current_exe().context("cannot tell where this command is")?;
        let program = self.find(&own)?;
        let error = Command::new(&program).args(arguments).exec();
        Err(error).with_context(|| format!("cannot run {}", program.display()))
    }

    /// Searches beside the built command, below the installation prefix, and in PATH.
    fn find(&self, own: &Path) -> Result<PathBuf> {
        let beside = own.parent().unwrap_or(Path::new("/"));
        let prefix = beside.parent().unwrap_or(Path::new("/"));
        let places =
            [beside.join(self.program), prefix.join("libexec/linerate").join(self.program)];
        let path = env::var_os("PATH").unwrap_or_default();
        let in_path = env::split_paths(&path).map(|folder| folder.join(self.program));
        match places.iter().cloned().chain(in_path).find(|place| place.is_file()) {
            Some(found) => Ok(found),
            None => bail!(
                "the program that `linerate {}` starts is neither {} nor {} nor in PATH: {}",
                self.verb,
                places[0].display(),
                places[1].display(),
                self.remedy
            ),
        }
    }
}
