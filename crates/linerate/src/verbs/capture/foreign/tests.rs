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
