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
mod tests;
