//! `linerate manual DIR`: the man pages, made from the same definitions as `--help`.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use jiff::Timestamp;

/// Arguments of `linerate manual`.
#[derive(Debug, Args)]
#[command(after_help = "\
The pages have today's date, or that of SOURCE_DATE_EPOCH, in seconds since 1970.

Examples:
  linerate manual /usr/local/share/man/man1")]
pub(crate) struct Arguments {
    /// The folder that receives linerate.1 and one page for each verb; made if it is not there.
    directory: PathBuf,
}

/// The exit status of verbs whose help says nothing else.
const EXIT_STATUS: &str = "0 on success, 1 on failure, 2 on a wrong command line.";

/// Files that verbs use, each with the pages that it is named on.
const FILES: &[(&str, &str, &[&str])] = &[
    (
        "/etc/linerate/forward.toml",
        "Configuration of the service linerate-forward.",
        &["linerate-forward", "linerate-forward-run", "linerate-forward-check-config"],
    ),
    (
        "/sys/fs/bpf/linerate/forward/INSTANCE/",
        "Programs and maps of an instance. They outlive its daemon.",
        &[
            "linerate-forward",
            "linerate-forward-run",
            "linerate-forward-status",
            "linerate-forward-sessions",
            "linerate-forward-detach",
        ],
    ),
    (
        "/etc/linerate/pcap.toml",
        "Source and options of each interface, for programs that use libpcap. LINERATE_CONFIG names another file.",
        &["linerate-run"],
    ),
    (
        "PREFIX/lib/linerate/libpcap.so.0.8",
        "The library that takes libpcap's place in the program.",
        &["linerate-run"],
    ),
    (
        "/var/lib/linerate/doctor.json",
        "Former values of what --fix has changed.",
        &["linerate-doctor"],
    ),
    (
        "/etc/sysctl.d/90-linerate-doctor.conf, /etc/tmpfiles.d/linerate-doctor.conf, \
        /etc/systemd/system/linerate-doctor-IFACE.service",
        "What --persist writes.",
        &["linerate-doctor"],
    ),
    (
        "PREFIX/lib/linerate/extcap/linerate",
        "The script that Wireshark runs from its extcap folder.",
        &["linerate-extcap"],
    ),
    (
        "PREFIX/libexec/linerate/linerate-lab",
        "The program that does the work.",
        &[
            "linerate-lab",
            "linerate-lab-demo",
            "linerate-lab-list",
            "linerate-lab-report",
            "linerate-lab-run",
        ],
    ),
    ("runs/", "Raw data of runs.", &["linerate-lab-run", "linerate-lab-report"]),
    (
        "PREFIX/share/doc/linerate/docs/",
        "The manuals: what a verb is for and how it works.",
        &["linerate"],
    ),
];

/// Pages of other programs that a page refers to.
const RELATED: &[(&str, &[&str])] = &[
    ("linerate-capture", &["tcpdump(8)", "dumpcap(1)", "pcap-filter(7)", "packet(7)"]),
    ("linerate-doctor", &["ethtool(8)", "sysctl(8)"]),
    ("linerate-extcap", &["wireshark(1)", "tshark(1)", "extcap(4)"]),
    ("linerate-forward", &["ip(8)", "nft(8)", "bpftool(8)"]),
    ("linerate-forward-run", &["systemd.service(5)"]),
    ("linerate-generate", &["tcpreplay(1)"]),
    ("linerate-receive", &["recvmmsg(2)", "udp(7)"]),
    ("linerate-replay", &["tcpreplay(1)"]),
    ("linerate-run", &["pcap(3PCAP)", "ld.so(8)"]),
    ("linerate-segment", &["editcap(1)"]),
    ("linerate-send", &["sendmmsg(2)", "udp(7)"]),
    ("linerate-uplink", &["ip-link(8)"]),
];

/// Writes the pages of `command`.
pub(crate) fn run(arguments: &Arguments, command: Command) -> Result<()> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the folder {}", directory.display()))?;
    let date = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => seconds
            .parse()
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .with_context(|| format!("SOURCE_DATE_EPOCH is '{seconds}', not seconds since 1970"))?,
        Err(_) => Timestamp::now(),
    };
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let version = command.get_version().unwrap_or_default().to_owned();
    let book = Book { date: date.strftime("%Y-%m-%d").to_string(), version };
    book.write(&command, None, directory)
        .with_context(|| format!("cannot write man pages to {}", directory.display()))
}

/// What all pages have in common.
struct Book {
    date: String,
    version: String,
}

impl Book {
    /// Writes the page of a command and those of the commands below it.
    fn write(&self, command: &Command, above: Option<&str>, directory: &Path) -> Result<()> {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        let path = directory.join(format!("{name}.1"));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        // Through no link that others have put there.
        File::create_new(path)?.write_all(self.page(command, name, above)?.as_bytes())?;
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            self.write(below, Some(name), directory)?;
        }
        Ok(())
    }

    fn page(&self, command: &Command, name: &str, above: Option<&str>) -> Result<String> {
        let help =
            Help::parse(&command.get_after_help().map(ToString::to_string).unwrap_or_default());
        let about = command.get_long_about().or(command.get_about());
        let about = about.map(ToString::to_string).unwrap_or_default();
        let standard = command
            .clone()
            .after_help(None::<&'static str>)
            .long_about([vec![about], help.description].concat().join("\n\n"));
        let mut page = Vec::new();
        Man::new(standard)
            .title(name)
            .date(&*self.date)
            .source(format!("Linerate {}", self.version))
            .manual("Linerate")
            .render(&mut page)?;

        let mut roff = Roff::new();
        roff.control("SH", ["EXIT STATUS"]);
        roff.text([roman(help.exit_status.unwrap_or_else(|| EXIT_STATUS.to_owned()))]);
        let mut files = FILES.iter().filter(|(_, _, pages)| pages.contains(&name)).peekable();
        if files.peek().is_some() {
            roff.control("SH", ["FILES"]);
        }
        for (file, what, _) in files {
            roff.control("TP", []);
            roff.text([italic(*file)]);
            roff.text([roman(*what)]);
        }
        if !help.examples.is_empty() {
            roff.control("SH", ["EXAMPLES"]);
            roff.control("nf", []);
            for example in &help.examples {
                roff.text([roman(example)]);
            }
            roff.control("fi", []);
        }
        roff.control("SH", ["SEE ALSO"]);
        roff.text(see_also(command, name, above));
        let page = String::from_utf8(page)? + &roff.to_roff();
        Ok(without_empty_breaks(&page))
    }
}

/// The page above, those below, and those of other programs, with commas in between.
fn see_also(command: &Command, name: &str, above: Option<&str>) -> Vec<Inline> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    let below = below.filter_map(|below| below.get_display_name());
    let own = above.into_iter().chain(below).map(|page| (page, "1)"));
    let related = RELATED.iter().filter(|(page, _)| *page == name).flat_map(|(_, pages)| *pages);
    let pages = own.chain(related.filter_map(|page| page.split_once('(')));
    let mut line = Vec::new();
    for (page, section) in pages {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(page), roman(format!("({section}"))]);
    }
    line
}

/// Without empty lines, and without line breaks that do nothing: before or after vertical space or another one.
fn without_empty_breaks(page: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for line in page.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        match (kept.last(), line) {
            (Some(&(".sp" | ".PP" | ".br")), ".br") => {}
            (Some(&".br"), ".sp" | ".PP") => *kept.last_mut().expect("there is a line") = line,
            _ => kept.push(line),
        }
    }
    kept.join("\n") + "\n"
}

/// The text below the options of `--help`, by sections of a man page.
#[derive(Default)]
struct Help {
    description: Vec<String>,
    exit_status: Option<String>,
    examples: Vec<String>,
}

impl Help {
    fn parse(text: &str) -> Self {
        let mut help = Self::default();
        for paragraph in text.split("\n\n") {
            let (text, examples) = match paragraph.split_once("Examples:\n") {
                Some((text, examples)) => (text.trim_end(), examples),
                None => (paragraph, ""),
            };
            help.examples.extend(examples.lines().map(|line| line.trim().to_owned()));
            match text.strip_prefix("Exit status: ") {
                Some(status) => help.exit_status = Some(status.to_owned()),
                None if text.is_empty() => {}
                None => help.description.push(text.to_owned()),
            }
        }
        help
    }
}
