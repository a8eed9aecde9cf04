//! What the verifier says of a program that libbpf loads for a skeleton.

use std::cell::RefCell;

use crate::error::{Error, cause};

/// libbpf puts the verifier's log between these, in one message.
const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
const END: &str = "-- END PROG LOAD LOG --";

/// How many of the log's last lines an error has.
const LAST_LINES: usize = 3;

thread_local! {
    /// The program that the verifier refused last in this thread, and the end of its log.
    static REFUSED: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Keeps the end of the verifier's log, if this message of libbpf has it.
pub(crate) fn observe(message: &str) {
    if let Some(refused) = refused(message) {
        REFUSED.set(Some(refused));
    }
}

/// The error of a skeleton that could not be loaded while doing `action`, if the verifier refused one of its programs
/// in this thread. It names the program and has the last lines of the log. [`crate::log_to_tracing`] comes before.
pub fn refusal(action: &str, source: &libbpf_rs::Error) -> Option<Error> {
    let (program, reason) = REFUSED.take()?;
    Some(Error::Verifier {
        program: format!("{action} (program {program})"),
        reason,
        source: cause(source),
    })
}

/// The program and the last lines of the log in a message like `prog 'NAME': BEGIN … END`.
fn refused(message: &str) -> Option<(String, String)> {
    let (head, log) = message.split_once(BEGIN)?;
    let log = log.split_once(END).map_or(log, |(log, _)| log);
    let program = head.split('\'').nth(1).unwrap_or("?").to_owned();
    // The log ends with statistics; the reason is before them.
    let mut lines: Vec<_> = (log.lines().map(str::trim))
        .filter(|line| !line.is_empty() && !line.starts_with("processed "))
        .rev()
        .take(LAST_LINES)
        .collect();
    lines.reverse();
    (!lines.is_empty()).then(|| (program, lines.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::refused;

    #[test]
    fn a_refused_program_gives_its_name_and_the_last_lines_of_the_log() {
        let message = "libbpf: prog 'learn': -- BEGIN PROG LOAD LOG --\n0: R1=ctx()\n1: (85) call 1\n\
            2: (0f) r0 += r1\nR0 pointer arithmetic prohibited\nprocessed 9 insns\n-- END PROG LOAD LOG --\n";
        let expected = "1: (85) call 1; 2: (0f) r0 += r1; R0 pointer arithmetic prohibited";
        assert_eq!(refused(message), Some(("learn".to_owned(), expected.to_owned())));
    }

    #[test]
    fn other_messages_give_nothing() {
        assert_eq!(refused("libbpf: prog 'learn': BPF program load failed: -13"), None);
        assert_eq!(refused("-- BEGIN PROG LOAD LOG ---- END PROG LOAD LOG --"), None);
    }
}
