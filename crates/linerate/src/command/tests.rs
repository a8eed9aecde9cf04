use super::*;

/// What a verb says against a command line that clap accepts.
fn refusal(line: &str) -> Option<String> {
    let checked = match Cli::try_parse_from(line.split(' ')).unwrap().verb {
        Verb::Capture(arguments) => capture::check(&arguments).map(drop),
        Verb::Extcap(arguments) => extcap::check(&arguments),
        Verb::Receive(arguments) => arguments.check(),
        Verb::Run(arguments) => run::check(&arguments),
        Verb::Segment(arguments) => segment::check(&arguments),
        Verb::Send(arguments) => arguments.check(),
        other => panic!("{other:?} has no check"),
    };
    checked.err().map(|error| error.to_string())
}

/// Command lines, each with words of the refusal.
const CONFLICTS: &[(&str, &str)] = &[
    ("capture --netns a --netns b -D", "-D and -L list one namespace"),
    ("capture --netns a --netns b -L", "-D and -L list one namespace"),
    ("capture --netns a --netns b -Z nobody", "-Z gives up what it takes to enter"),
    ("capture --netns a --netns a", "--netns a is given twice"),
    ("capture -i a -i a", "-i a is given twice"),
    ("capture -L -i a -i a", "-i a is given twice"),
    ("capture -i /a", "-i /a names no network namespace: write -i NAMESPACE/a"),
    ("capture -i b/a", "-i b/a is in another network namespace: give --netns b, too"),
    ("capture --netns a --netns b -i a/any -i b/c", "take two captures: the link types differ"),
    ("capture --netns a --netns b -i a/c", "--netns b is given, but every -i is of another"),
    ("capture -i any --source xdp", "-i any is for packet sockets"),
    ("capture -i any --source tee", "-i any is for packet sockets"),
    ("capture -i any --source trace", "-i any is for packet sockets"),
    ("capture --source trace -e", "print by tcpdump, which does not show verdicts"),
    ("capture --source drops -X", "print by tcpdump, which does not show verdicts"),
    ("capture --json -w -", "--json and -w - both write to standard output"),
    ("capture -w x -W 3", "nothing starts a new file: give -C SIZE or -G SECONDS too"),
    ("capture -w - -b files:3", "-b, --keep and --keep-free are for files"),
    ("capture -w - -C 1 --keep 1d", "-b, --keep and --keep-free are for files"),
    (
        "capture -w x -b files:3",
        "-b files: needs one of -b filesize:, duration:, interval:, packets: and signal:",
    ),
    ("capture -w x --skip-empty", "it needs -C, -G or -b"),
    ("capture -w - -G 1 --skip-empty", "a -w that is no -"),
    ("capture -w x --keep 1d", "they need -C, -G or -b, which start another file"),
    ("capture -w x --keep-free 10%", "they need -C, -G or -b, which start another file"),
    ("capture --flows ipfix://a --flows-keep 1d", "they need --flows FOLDER"),
    ("capture --flows ipfix://a --flows-keep-free 1G", "they need --flows FOLDER"),
    ("capture -w - --per-thread-files", "--per-thread-files writes several files"),
    ("capture -r x --filter-in kernel", "a file (-r) has no kernel side"),
    ("capture -r x --metrics 9819", "--metrics serves the counts of a capture from an interface"),
    ("capture -r x --web 9820", "--web serves the counts of a capture from an interface"),
    ("capture -r x -a duration:3", "-a duration: ends a capture from an interface"),
    ("extcap", "Wireshark's arguments are missing"),
    ("extcap --extcap-interface a", "what about the interface"),
    (
        "receive --bind 127.0.0.1:7 --calibrate 1s --backend gro",
        "--calibrate is for --backend auto",
    ),
    ("receive --bind 127.0.0.1:7 --take-over --backend gro", "--take-over is for --backend auto"),
    ("receive --bind 127.0.0.1:7 --ring 1M", "--ring is for the backend xdp: add --take-over"),
    ("receive --bind 127.0.0.1:7 --ring 1M --backend gro", "xdp: gro was asked for"),
    ("receive --bind 127.0.0.1:7 --xdp-delivery af-xdp --threads 2", "one reader and one port"),
    (
        "receive --bind 127.0.0.1:7 --ring 1M --take-over --reuseport flow",
        "one reader and one port",
    ),
    (
        "receive --bind 127.0.0.1:7 --backend xdp --busy-poll 9 --xdp-delivery ringbuf",
        "--busy-poll is for AF_XDP sockets",
    ),
    ("receive --bind 239.1.1.1:7", "nothing comes before it is joined: add --join 239.1.1.1@IFACE"),
    ("receive --bind 127.0.0.1:7 --timestamps --check time", "both measure the latency"),
    ("receive --bind 127.0.0.1:7 --only-v6", "--only-v6 is for an IPv6 address"),
    ("receive --bind 127.0.0.1:7 --cpu 0-2 --threads 2", "--cpu names 3 CPUs for 2 threads"),
    ("receive --bind 127.0.0.1:0 --reuseport flow", "--reuseport needs a port"),
    (
        "receive --bind 127.0.0.1:7 --bind-b 127.0.0.1:7 --feed moldudp64",
        "both lines of the feed would be 127.0.0.1:7",
    ),
    (
        "receive --bind 127.0.0.1:7 --backend uring --coalesce-usecs 9",
        "--coalesce-usecs is not for",
    ),
    ("run -x -- a", "run has no option -x; options of the program come after its name"),
    ("segment a -w - --json", "--json and -w - both want standard output"),
    ("send 127.0.0.1:0", "port 0 is reserved"),
    ("send 127.0.0.1:9 --size 5 --pattern sequence", "has no room for the pattern"),
];

/// The same options with other values.
const ACCEPTED: &[&str] = &[
    "capture",
    "capture --netns a -D",
    "capture --netns a --netns b -i c -i a/d",
    "capture -i any --source packet",
    "capture -i any --source drops",
    "capture --source trace -w x -e",
    "capture --source drops --flows x -e",
    "capture --source packet -e",
    "capture -w - -C 1 -W 3",
    "capture -w x -G 60 --keep 1d",
    "capture -w x -G 60 --skip-empty",
    "capture --flows ipfix://a --flows x --flows-keep 90d --flows-keep-free 10%",
    "capture -w x -b files:3 -b packets:9 --keep-free 10%",
    "capture -r x --filter-in user -a packets:3 -B 64M -p --immediate-mode -j adapter",
    "extcap --extcap-interfaces",
    "extcap --extcap-interface a --extcap-dlts",
    "receive --bind 127.0.0.1:7 --calibrate 1s --cpu 0",
    "receive --bind 127.0.0.1:7 --take-over --ring 1M --xdp-delivery af-xdp --busy-poll 9",
    "receive --bind 127.0.0.1:7 --backend xdp --take-over --xdp-delivery ringbuf",
    "receive --bind 239.1.1.1:7 --join 239.1.1.1@lo --timestamps --check sequence",
    "receive --bind [::]:7 --only-v6 --reuseport flow",
    "run -- a -x",
    "segment a -w x --json",
    "send 127.0.0.1:9 --size 12 --pattern sequence",
];

#[test]
fn options_that_conflict_by_value_are_refused() {
    for (line, words) in CONFLICTS {
        let refusal = refusal(&format!("linerate {line}")).unwrap_or_default();
        assert!(refusal.contains(words), "{line}: {refusal:?}");
    }
    for line in ACCEPTED {
        assert_eq!(refusal(&format!("linerate {line}")), None, "{line}");
    }
}

/// Letters of options are those of the field's tool for this job: tcpdump and dumpcap, tcpreplay.
#[test]
fn letters_of_options_mean_what_they_mean_in_the_fields_tools() {
    use clap::CommandFactory;

    const FIELD: &[(&str, &[(char, &str)])] = &[
        (
            "capture",
            &[
                ('a', "autostop"),
                ('B', "buffer-size"),
                ('b', "ring-buffer"),
                ('c', "count"),
                ('D', "list-interfaces"),
                ('i', "interface"),
                ('j', "time-stamp-type"),
                ('L', "list-data-link-types"),
                ('p', "no-promiscuous-mode"),
                ('Q', "direction"),
                ('q', "quiet"),
                ('r', "read"),
                ('s', "snapshot-length"),
                ('U', "packet-buffered"),
                ('v', "verbose"),
                ('w', "write"),
                ('y', "linktype"),
                ('Z', "relinquish-privileges"),
            ],
        ),
        (
            "replay",
            &[
                ('i', "interface"),
                ('L', "limit"),
                ('l', "loop"),
                ('M', "mbps"),
                ('p', "pps"),
                ('q', "quiet"),
                ('t', "topspeed"),
                ('v', "verbose"),
                ('x', "multiplier"),
            ],
        ),
    ];
    let mut command = Cli::command();
    command.build();
    for (verb, letters) in FIELD {
        let arguments = command.find_subcommand(verb).unwrap().get_arguments();
        let named = arguments.filter_map(|one| Some((one.get_short()?, one.get_long()?)));
        for (letter, name) in named.filter(|(letter, _)| *letter != 'h') {
            assert!(letters.contains(&(letter, name)), "{verb}: -{letter} is no --{name}");
        }
    }
}
