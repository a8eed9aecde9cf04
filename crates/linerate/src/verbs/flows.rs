//! `linerate flows` and `linerate find`: queries of flow records, and the packets behind them. A separate program,
//! `linerate-flows`, runs them: it has DataFusion, which takes minutes to build.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cli::companion::Companion;

/// What the program gets.
#[derive(Debug, Args)]
pub(crate) struct FlowsArguments {
    /// top, list, sum, query or ship, with its options; `linerate flows help top` prints them.
    #[arg(value_name = "COMMAND", required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

/// What the program gets.
#[derive(Debug, Args)]
pub(crate) struct FindArguments {
    /// An address or a filter, with options: -r LOCATION for the records, -w FILE, --after TIME, --before TIME,
    /// --packets DIR.
    #[arg(value_name = "FILTER", required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

/// Becomes `linerate-flows`, with the same arguments.
pub(crate) fn run(verb: &'static str) -> Result<ExitCode> {
    let remedy = "the package linerate-flows has it; from source, `make flows` builds it and \
        `make install-flows` puts it in its place";
    let companion = Companion { program: "linerate-flows", verb, remedy };
    let [_, after] = companion.arguments();
    companion.exec([verb.into()].into_iter().chain(after))
}
