//! Options of tcpdump and dumpcap that `linerate capture` does not have, and what to use instead.

/// What to use instead of an option that `linerate capture` does not have; `None` if tcpdump and dumpcap do not have it
/// either.
pub(crate) fn remedy(option: &str) -> Option<&'static str> {
    Some(match option {
        "-#"
        | "--number"
        | "-f"
        | "-H"
        | "-K"
        | "--dont-verify-checksums"
        | "-N"
        | "-S"
        | "--absolute-tcp-sequence-numbers"
        | "-T"
        | "-u"
        | "-m"
        | "-M"
        | "-E"
        | "--lengths" => {
            "it concerns printing: `linerate capture -w - ... | tcpdump -r -` takes the options of tcpdump for that. A \
             filter comes last, without an option"
        }
        "-d" | "-dd" | "-ddd" => "`tcpdump -d EXPRESSION` prints the BPF program of a filter",
        "-I" | "--monitor-mode" => {
            "put the interface into monitor mode first: `iw dev NAME set type monitor`"
        }
        "-J" | "--list-time-stamp-types" => "the types are host, host_lowprec and adapter (-j)",
        "--micro" => "--time-stamp-precision micro",
        "--nano" => "--time-stamp-precision nano",
        "-O" | "--no-optimize" => "filters are always optimised",
        "-P" => "--format pcap",
        "--print" => "write with -w - and print with `tcpdump -r -`, or capture twice",
        "--skip" => "read with -r, and filter by time with `editcap -A`",
        "-V" => "give -r one file at a time, or join them with `mergecap`",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn options_that_we_have_need_no_remedy() {
        let command = crate::Cli::command();
        let capture = command.find_subcommand("capture").expect("a verb");
        for argument in capture.get_arguments() {
            let short = argument.get_short().map(|short| format!("-{short}"));
            let long = argument.get_long().map(|long| format!("--{long}"));
            for option in short.into_iter().chain(long) {
                assert_eq!(remedy(&option), None, "{option}");
            }
        }
        assert_eq!(remedy("--nano"), Some("--time-stamp-precision nano"));
    }
}
