//! Records reach SeaweedFS's object store, even if it is unreachable for a while.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fleet::{Fleet, figure, fleet_or_skip, thorough};
use crate::support::{START, meter, parquet, traffic, write};

/// An object store.
pub(crate) struct Store {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    server: Option<Child>,
}

impl Store {
    /// A key and its secret.
    pub(crate) const KEYS: [&str; 2] = ["key", "secret"];

    /// A store that does not run yet, with its data in this folder.
    pub(crate) fn new(fleet: &Fleet, folder: &Path) -> Self {
        static STORES: AtomicU16 = AtomicU16::new(0);
        let port = 20_000 + (std::process::id() % 5_000) as u16;
        let port = port + 10 * STORES.fetch_add(1, Ordering::Relaxed);
        Self { program: fleet.weed(), folder: folder.to_owned(), port, server: None }
    }

    pub(crate) fn start(&mut self) {
        let mut command = Command::new(&self.program);
        let port = |name: &str, offset: u16| format!("-{name}={}", self.port + offset);
        command.args([
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-s3",
            "-s3.autoCreateBucket",
        ]);
        command
            .args([
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                "-volume.max=20",
                "-master.volumeSizeLimitMB=64",
            ])
            .arg("-volume.minFreeSpace=100MiB")
            .arg(format!("-dir={}", self.folder.display()));
        command.args([
            port("master.port", 0),
            port("volume.port", 1),
            port("filer.port", 2),
            port("s3.port", 3),
        ]);
        command.envs(self.environment()).stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(command.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(self.endpoint()).is_err() {
            assert!(Instant::now() < deadline, "SeaweedFS does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Host and port of its S3 interface.
    pub(crate) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port + 3)
    }

    fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ACCESS_KEY_ID", Self::KEYS[0].into()),
            ("AWS_SECRET_ACCESS_KEY", Self::KEYS[1].into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ENDPOINT_URL", format!("http://{}", self.endpoint())),
            ("AWS_ALLOW_HTTP", "true".into()),
        ]
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate-flows"));
        command.args(arguments).envs(self.environment());
        command
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn nothing_is_lost_or_double_while_the_store_is_away() {
    let fleet = fleet_or_skip!();
    let data = tempfile::tempdir().unwrap();
    let mut store = Store::new(&fleet, data.path());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcapng");
    write(&file, &traffic(4_000, false), START);
    let records = meter(&[file]);
    let spool = folder.path().join("flows");
    let parts: Vec<_> = records.chunks(records.len().div_ceil(12)).collect();
    let add = |n: usize| {
        parquet(&spool.join(format!("hour={:02}/sensor=a/{n:02}.parquet", n / 4)), parts[n])
    };
    let (spool_text, url) = (spool.to_str().unwrap(), "s3://flows/site");
    (0..4).for_each(add);
    // A file that is still written has another name.
    fs::write(spool.join("hour=00/.05.parquet.tmp"), "half").unwrap();

    store.start();
    let mut shipping = store
        .command(&["flows", "ship", spool_text, url, "--delete", "--follow", "200ms", "--json"]);
    let mut shipping = shipping.stdout(Stdio::piped()).spawn().unwrap();
    let waits = |count: usize| {
        let deadline = Instant::now() + Duration::from_secs(120);
        let waiting = || {
            (0..parts.len())
                .filter(|n| {
                    spool.join(format!("hour={:02}/sensor=a/{n:02}.parquet", n / 4)).exists()
                })
                .count()
        };
        while waiting() != count {
            assert!(Instant::now() < deadline, "{} files wait, not {count}", waiting());
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    waits(0);
    // The store is unreachable: files wait in the folder.
    store.stop();
    (4..8).for_each(add);
    let away = Duration::from_secs(if thorough() { 60 } else { 5 });
    std::thread::sleep(away);
    waits(4);
    store.start();
    (8..parts.len()).for_each(add);
    waits(0);
    shipping.kill().unwrap();
    shipping.wait().unwrap();

    // A file that was shipped and not deleted, as after a kill: it is known, and not double.
    add(3);
    let again = store.json(&["flows", "ship", spool_text, url, "--delete", "--json"]);
    assert_eq!((&again["known"], &again["files"]), (&1.into(), &0.into()), "{again}");
    assert!(spool.join("hour=00/.05.parquet.tmp").exists(), "what is not whole stays");

    let sum = store.json(&["flows", "sum", "-r", url, "--json"]);
    let packets: u64 = records.iter().map(|one| one.forward.packets + one.reverse.packets).sum();
    let octets: u64 = records.iter().map(|one| one.forward.octets + one.reverse.octets).sum();
    assert_eq!(sum["flows"], records.len(), "{sum}");
    assert_eq!((&sum["packets"], &sum["octets"]), (&packets.into(), &octets.into()));
    figure!(
        "store away for {} s: {} of {} records arrived, 0 double",
        away.as_secs(),
        sum["flows"],
        records.len()
    );
}
