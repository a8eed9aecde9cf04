//! `linerate flows` and `linerate find`: queries of flow records, and the packets behind them. A separate program,
//! `linerate-flows`, runs them: it has DataFusion, which takes minutes to build.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cli::companion::Companion;

/// Arguments of `linerate-flows`, which also prints the help.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct FlowsArguments {
    /// top, list, sum, query or ship, with its options; `linerate flows top --help` prints them.
    #[arg(value_name = "COMMAND", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

/// Arguments of `linerate-flows`, which also prints the help.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct FindArguments {
    /// An address or a filter, with options: -r LOCATION for the records, -w FILE, --after TIME, --before TIME,
    /// --packets DIR; `linerate find --help` prints all.
    #[arg(value_name = "FILTER", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

/// The program of these verbs.
fn companion(verb: &'static str) -> Companion {
    let remedy = "the package linerate-flows has it; from source, `make flows` builds it and \
        `make install-flows` installs it";
    Companion { program: "linerate-flows", verb, remedy }
}

/// If a shell completes one of these verbs, becomes `linerate-flows`, which knows their options. `words` are those of
/// the command line, and the last one may be incomplete.
pub(crate) fn complete(words: &[OsString]) {
    let [_, verb, _, ..] = words else { return };
    let verbs = ["flows", "find"];
    if let Some(verb) = verbs.into_iter().find(|one| verb == one) {
        // Without the program there is nothing to complete.
        let _ = companion(verb).exec(std::env::args_os().skip(1));
    }
}

/// Becomes `linerate-flows`, with the same arguments.
pub(crate) fn run(verb: &'static str) -> Result<ExitCode> {
    let companion = companion(verb);
    let [_, after] = companion.arguments();
    let is_verbose = |word: &OsString| {
        let letters = word.to_str().and_then(|word| word.strip_prefix('-'));
        letters.is_some_and(|letters| {
            letters == "-verbose" || !letters.is_empty() && letters.bytes().all(|one| one == b'v')
        })
    };
    // The program has no log.
    let words = after.into_iter().skip_while(is_verbose);
    companion.exec([verb.into()].into_iter().chain(words))
}
