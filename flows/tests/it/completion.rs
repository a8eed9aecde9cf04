//! What a shell completes, through the environment of clap's scripts.

use std::process::Command;

/// Candidates for the last of these words.
fn candidates(words: &[&str]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate-flows"));
    command.env("LINERATE_COMPLETE", "bash");
    command.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    let output = command.arg("--").args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn queries_options_and_their_values_are_completed() {
    let queries = candidates(&["linerate", "flows", ""]);
    for query in ["top", "list", "sum", "query", "ship"] {
        assert!(queries.iter().any(|one| one == query), "{queries:?}");
    }
    let options = candidates(&["linerate", "find", "--"]);
    for option in ["--after", "--before", "--packets"] {
        assert!(options.iter().any(|one| one == option), "{options:?}");
    }
    assert_eq!(candidates(&["linerate", "flows", "top", "--by", "por"]), ["port"]);
}
