//! Options of tcpdump and dumpcap that `linerate capture` does not have, and what to use instead.

/// What to use for options about printing.
const PRINTING: &str = "it concerns printing: `linerate capture -w - ... | tcpdump -r -` takes the options of tcpdump for \
                        that. A filter comes last, without an option";

/// What to use instead of an option that `linerate capture` does not have; `None` if tcpdump and dumpcap do not have it
/// either.
pub(crate) fn remedy(option: &str) -> Option<&'static str> {
    Some(match option {
        "-#"
        | "--number"
        | "-H"
        | "-K"
        | "--dont-verify-checksums"
        | "--absolute-tcp-sequence-numbers"
        | "-T"
        | "-u"
        | "-m"
        | "-E"
        | "--lengths" => PRINTING,
        "-f" => {
            "a filter comes last, without an option (-f of dumpcap). -f of tcpdump concerns printing: `linerate capture \
             -w - ... | tcpdump -r -` takes it"
        }
        "-N" => {
            "-B is the only buffer to choose (-N of dumpcap). -N of tcpdump concerns printing: `linerate capture -w - \
             ... | tcpdump -r -` takes it"
        }
        "-S" => {
            "--discard --stats 1s prints statistics (-S of dumpcap). -S of tcpdump concerns printing: `linerate capture \
             -w - ... | tcpdump -r -` takes it"
        }
        "-M" => {
            "--json makes the output of -D, -L and --stats machine-readable (-M of dumpcap). -M of tcpdump concerns \
             printing: `linerate capture -w - ... | tcpdump -r -` takes it"
        }
        "-g" => "--group NAME lets a group read the files",
        "-k" => "set the channel first: `iw dev NAME set freq MHZ`",
        "--capture-comment" => "`editcap --capture-comment TEXT` adds it to the file afterwards",
        "--temp-dir" => "there are no temporary files: -w names the file and its folder",
        "--ifname" | "--ifdescr" => {
            "files have the names of interfaces; -r reads a pipe, and keeps the names in it"
        }
        "--log-level" | "--log-fatal" | "--log-domains" | "--log-debug" | "--log-noisy" => {
            "-v shows more, twice for debugging; RUST_LOG selects by module"
        }
        "--log-file" => "messages go to standard error: redirect it with 2>FILE",
        "-d" | "-dd" | "-ddd" => "`tcpdump -d EXPRESSION` prints the BPF program of a filter",
        "-I" | "--monitor-mode" => {
            "put the interface into monitor mode first: `iw dev NAME set type monitor`"
        }
        "-J" | "--list-time-stamp-types" => "the types are host, host_lowprec and adapter (-j)",
        "--micro" => "--time-stamp-precision micro",
        "--nano" => "--time-stamp-precision nano",
        "-O" | "--no-optimize" => "filters are always optimised",
        "-P" => "--format pcap",
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

    /// The options that `dumpcap -h` of Wireshark 4.0 lists.
    #[test]
    fn every_option_of_dumpcap_is_ours_or_has_a_remedy() {
        let command = crate::Cli::command();
        let capture = command.find_subcommand("capture").expect("a verb");
        let ours: Vec<String> = capture
            .get_arguments()
            .flat_map(|argument| {
                let short = argument.get_short().map(|short| format!("-{short}"));
                short.into_iter().chain(argument.get_long().map(|long| format!("--{long}")))
            })
            // Those of the command itself.
            .chain(["-v", "-h", "--help", "--version"].map(str::to_owned))
            .collect();
        let dumpcap = "-i --interface --ifname --ifdescr -f -s --snapshot-length -p --no-promiscuous-mode -I \
                       --monitor-mode -B --buffer-size -y --linktype --time-stamp-type -D --list-interfaces -L \
                       --list-data-link-types --list-time-stamp-types -d -k -S -M -c -a --autostop -w -g -b --ring-buffer \
                       -n -P --capture-comment --temp-dir --log-level --log-fatal --log-domains --log-debug --log-noisy \
                       --log-file -N -C -t -q -v --version -h --help";
        for option in dumpcap.split_whitespace() {
            assert!(remedy(option).is_some() || ours.iter().any(|own| own == option), "{option}");
        }
    }
}
