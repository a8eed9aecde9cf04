//! Programs that use libpcap, run with and without this library on the end of a veth pair.

pub(crate) mod traffic;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_testkit::{Namespace, Veth, VethOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long anything may take that takes an instant, or some seconds, on a machine that does ten other things.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(240);

/// The two ends of the veth pair. Frames are sent on the first, programs listen on the second.
pub(crate) const NEAR: &str = "pc-near";
pub(crate) const FAR: &str = "pc-far";

/// How a program gets its libpcap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Libpcap {
    /// The system's.
    System,
    /// This one, preloaded, with these variables.
    Preloaded(&'static [(&'static str, &'static str)]),
    /// This one, found under libpcap's name.
    InLibraryPath(&'static [(&'static str, &'static str)]),
}

pub(crate) const PACKET: &[(&str, &str)] = &[("LINERATE_SOURCE", "packet")];
pub(crate) const TEE: &[(&str, &str)] = &[("LINERATE_SOURCE", "tee")];
pub(crate) const BUFFER: &[(&str, &str)] = &[
    ("LINERATE_SOURCE", "xdp"),
    ("LINERATE_TAKE_OVER", "1"),
    ("LINERATE_XDP_DELIVERY", "ringbuf"),
];
pub(crate) const SOCKET: &[(&str, &str)] = &[
    ("LINERATE_SOURCE", "xdp"),
    ("LINERATE_TAKE_OVER", "1"),
    ("LINERATE_XDP_DELIVERY", "af-xdp"),
    ("LINERATE_BUFFER", "16384"),
];

/// All sources, both ways in.
pub(crate) const EVERY_SOURCE: [Libpcap; 5] = [
    Libpcap::Preloaded(PACKET),
    Libpcap::InLibraryPath(PACKET),
    Libpcap::Preloaded(TEE),
    Libpcap::InLibraryPath(BUFFER),
    Libpcap::Preloaded(SOCKET),
];

/// The library, installed under libpcap's names in its own folder.
pub(crate) struct Library {
    folder: tempfile::TempDir,
}

impl Library {
    pub(crate) fn install() -> Self {
        let tests = std::env::current_exe().unwrap();
        let mut places = tests.ancestors().skip(1).take(2).map(|f| f.join("liblinerate_pcap.so"));
        let built = places.find(|path| path.is_file()).expect("the library is built");
        let folder = tempfile::tempdir().unwrap();
        fs::copy(built, folder.path().join("libpcap.so.0.8")).unwrap();
        for name in ["libpcap.so.1", "libpcap.so"] {
            std::os::unix::fs::symlink("libpcap.so.0.8", folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("libpcap.so.0.8")
    }

    pub(crate) fn variables(&self, libpcap: Libpcap) -> Vec<(&'static str, String)> {
        let own = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
        let mut all = vec![("LINERATE_QUIET", "1".to_owned())];
        match libpcap {
            Libpcap::System => {}
            Libpcap::Preloaded(variables) => {
                all.push(("LD_PRELOAD", self.path().display().to_string()));
                all.extend(variables.iter().map(own));
            }
            Libpcap::InLibraryPath(variables) => {
                all.push(("LD_LIBRARY_PATH", self.folder.path().display().to_string()));
                all.extend(variables.iter().map(own));
            }
        }
        all
    }
}

/// Two ends of a veth pair in one namespace.
pub(crate) struct Cable {
    pub(crate) namespace: Namespace,
    veth: Veth,
}

impl Cable {
    pub(crate) fn new() -> Self {
        Self::with_queues(1)
    }

    pub(crate) fn with_queues(queues: u32) -> Self {
        let namespace = Namespace::create("pcap").unwrap();
        namespace.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        namespace.sysctl("net.ipv6.conf.all.disable_ipv6", "1").unwrap();
        let options = VethOptions { queues, ..VethOptions::default() };
        let veth = Veth::create(&namespace, NEAR, &namespace, FAR, options).unwrap();
        // The host uses the interface; no packet has this address.
        veth.b.add_address("192.0.2.1".parse().unwrap(), 32).unwrap();
        Self { namespace, veth }
    }

    /// Whether an XDP program is on the peer.
    pub(crate) fn has_program(&self) -> bool {
        self.veth.b.has_xdp().unwrap()
    }

    /// Starts a program that captures on the peer.
    pub(crate) fn start(
        &self,
        library: &Library,
        libpcap: Libpcap,
        line: &[&str],
        folder: &Path,
    ) -> Running {
        start(&self.namespace, library, libpcap, line, folder)
    }

    /// Waits until the program has its handle: a packet socket on the peer, which a handle of ours has
    /// moved to where no frame comes.
    pub(crate) fn wait_until_it_listens(&self, libpcap: Libpcap, running: &mut Running) {
        let index = self.veth.b.index().to_string();
        let protocol = if libpcap == Libpcap::System { "0003" } else { "ffff" };
        let listens = || {
            let list = fs::read_to_string("/proc/thread-self/net/packet").unwrap();
            list.lines().any(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                words.get(3) == Some(&protocol) && words.get(4) == Some(&index.as_str())
            })
        };
        running.wait_for("a handle", |_| self.namespace.run(listens).unwrap());
    }
}

/// Starts a program in a namespace.
pub(crate) fn start(
    namespace: &Namespace,
    library: &Library,
    libpcap: Libpcap,
    line: &[&str],
    folder: &Path,
) -> Running {
    let mut command = namespace.command_killed_with_parent(line[0]);
    command.args(&line[1..]).current_dir(folder).stdin(Stdio::null());
    for (name, value) in library.variables(libpcap) {
        command.env(name, value);
    }
    let open = |name| fs::File::create(folder.join(name)).unwrap();
    command.stdout(open("stdout")).stderr(open("stderr"));
    Running { child: command.spawn().unwrap(), folder: folder.to_owned(), line: line.join(" ") }
}

/// A program that was started.
pub(crate) struct Running {
    child: Child,
    folder: PathBuf,
    line: String,
}

impl Running {
    /// What it wrote so far.
    pub(crate) fn stdout(&self) -> String {
        read(&self.folder.join("stdout"))
    }

    pub(crate) fn stderr(&self) -> String {
        read(&self.folder.join("stderr"))
    }

    /// Waits until something holds.
    pub(crate) fn wait_for(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "no {what} of {}: {ended:?}\n{}{}",
                self.line,
                self.stdout(),
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The effective capabilities that it has (`CapEff` of proc_pid_status(5)).
    pub(crate) fn capabilities(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    pub(crate) fn interrupt(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Waits until it ends; its status.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("{} does not end:\n{}{}", self.line, self.stdout(), self.stderr());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Compiles a C program against the system's header files.
pub(crate) fn compile(source: &str, into: &Path, flags: &[&str]) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let program = into.join(Path::new(source).file_stem().unwrap());
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-o"])
        .arg(&program)
        .args(flags)
        .arg(from)
        .args(["-lpcap", "-lpthread"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Whether there is such a program; prints that the test is skipped if there is none.
pub(crate) fn has(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file());
    if !found {
        linerate_testkit::print_skipped(test, &format!("there is no {program}"));
    }
    found
}
