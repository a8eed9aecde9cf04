//! The programs of a fleet get what was sent, even if one of them fails. scripts/test-fleet downloads them.

use std::path::{Path, PathBuf};

mod engines;
mod equal;
mod faults;
mod router;
mod site;

/// What scripts/test-fleet has downloaded and built.
pub(crate) struct Fleet {
    folder: PathBuf,
    /// The program `linerate`.
    linerate: PathBuf,
}

impl Fleet {
    pub(crate) fn find() -> Option<Self> {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        Some(Self { folder: path("LINERATE_FLEET")?, linerate: path("LINERATE_COMMAND")? })
    }

    /// A Python that has the engines.
    fn python(&self) -> PathBuf {
        self.folder.join("python/bin/python3")
    }

    /// SeaweedFS.
    pub(crate) fn weed(&self) -> PathBuf {
        self.folder.join("python/bin/weed")
    }

    fn goflow2(&self) -> PathBuf {
        self.folder.join("goflow2/goflow2")
    }

    /// The class path of Kafka.
    fn kafka(&self) -> String {
        format!("{}/kafka/lib/*", self.folder.display())
    }

    /// The folder of Spark.
    fn spark(&self) -> PathBuf {
        let lib = self.folder.join("python/lib");
        let versions = std::fs::read_dir(&lib).unwrap().map(|entry| entry.unwrap().path());
        let mut found = versions.map(|path| path.join("site-packages/pyspark"));
        found.find(|path| path.exists()).unwrap_or_else(|| panic!("no Spark in {}", lib.display()))
    }
}

/// The programs; skips the test if they are missing.
macro_rules! fleet_or_skip {
    () => {
        match crate::fleet::Fleet::find() {
            Some(fleet) => fleet,
            None => linerate_testkit::skip!("LINERATE_FLEET is not set: run scripts/test-fleet"),
        }
    };
}
pub(crate) use fleet_or_skip;

/// A [`Site`](site::Site) with so many sensors; skips the test without the programs or without root.
macro_rules! site_or_skip {
    ($sensors:expr) => {{
        let fleet = crate::fleet::fleet_or_skip!();
        if !linerate_testkit::is_root() {
            linerate_testkit::skip!("needs root");
        }
        crate::fleet::site::Site::new(fleet, $sensors)
    }};
}
use site_or_skip;

/// Prints a result, even if the test passes.
macro_rules! figure {
    ($($format:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($format)*);
    }};
}
pub(crate) use figure;

/// Whether the long forms of tests are wanted.
pub(crate) fn thorough() -> bool {
    std::env::var_os("LINERATE_THOROUGH").is_some()
}

/// `packaging/fleet/NAME`.
fn definitions_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/fleet").join(name)
}

/// Its text, with placeholders replaced.
fn definitions(name: &str, words: &[(&str, &str)]) -> String {
    let text = std::fs::read_to_string(definitions_path(name)).unwrap();
    words.iter().fold(text, |text, (from, to)| text.replace(from, to))
}
