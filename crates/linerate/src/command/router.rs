//! The command of `linerate-router`.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::cli::{self, logging};
use crate::verbs::forward::RouterCommand;

/// Forward packets in XDP as the kernel forwarded their session before.
#[derive(Debug, Parser)]
#[command(name = "linerate", version, max_term_width = 100)]
#[command(after_help = "\
Exit status: 0 on success, 1 on failure, 2 on a wrong command line.\n\
\n\
This is linerate-router, for small routers: the package `linerate` has the other verbs, `forward top`, Parquet files \
of flow records and TLS to collectors.\n\
\n\
Examples:\n  \
linerate forward run -i eth1 -i eth2\n  \
linerate forward status")]
struct Router {
    /// More detail on standard error; twice for debugging. RUST_LOG overrides it.
    #[arg(short = 'v', long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Forward packets in XDP as the kernel forwarded their session before.
    #[command(subcommand)]
    Forward(RouterCommand),
}

/// Runs the command line of a router.
pub fn run_router() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    cli::start(&words, &Router::command());
    let Router { verbose, verb: Verb::Forward(command) } = match Router::try_parse() {
        Ok(router) => router,
        Err(error) => return cli::refuse(&error),
    };
    logging::start(verbose, command.log());
    super::raise_open_files();
    cli::exit_status(command.run())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_has_the_commands_of_forward_without_top() {
        Router::command().debug_assert();
        let words = |line: &str| Router::try_parse_from(line.split(' '));
        assert!(words("linerate forward run -i eth1 -i eth2 --persist").is_ok());
        assert!(words("linerate forward sessions --limit 3 --json").is_ok());
        let error = words("linerate forward top").unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::InvalidSubcommand);
        assert!(words("linerate capture -i eth0").is_err());
    }
}
