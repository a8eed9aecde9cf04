//! [`Finding`]: what a check has found.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::host::number;
use crate::setting::{Change, sysctl_path};

/// What the host is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Job {
    /// `linerate capture`, and programs under `linerate run`.
    Capture,
    /// `linerate forward`.
    Forward,
    /// `linerate receive`.
    Receive,
    /// `linerate uplink`.
    Uplink,
}

impl Job {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Capture, Self::Forward, Self::Receive, Self::Uplink];

    /// Those that this host may have: all, but [`Job::Forward`] only if its kernel forwards.
    pub fn of_host() -> Vec<Self> {
        let keys = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];
        let forwards = keys.iter().any(|key| number(sysctl_path(key)).unwrap_or(0) != 0);
        Self::ALL.iter().copied().filter(|job| forwards || *job != Self::Forward).collect()
    }

    /// Its name, which is that of the verb.
    pub fn name(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Forward => "forward",
            Self::Receive => "receive",
            Self::Uplink => "uplink",
        }
    }
}

impl FromStr for Job {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|job| job.name() == text);
        found.copied().ok_or_else(|| "capture, forward, receive or uplink".to_owned())
    }
}

/// How much a finding matters for its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// This process may not see it, or nothing was tried.
    Unknown,
    /// The job works, but loses frames or speed.
    Warning,
    /// The job does not work.
    Fatal,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Fatal => "fatal",
        })
    }
}

/// What helps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing, or nothing is needed.
    #[default]
    None,
    /// Commands or advice for the administrator.
    Manual(String),
    /// Changes that `--fix` makes and `--undo` takes back.
    Changes(Vec<Change>),
}

impl Remedy {
    /// As commands.
    pub fn command(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Manual(text) => Some(text.clone()),
            Self::Changes(changes) => {
                let commands: Vec<_> = changes.iter().map(Change::command).collect();
                Some(commands.join(" && "))
            }
        }
    }
}

impl Serialize for Remedy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.command().serialize(serializer)
    }
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// The interface; `None` for the host.
    pub interface: Option<String>,
    /// The jobs that it matters for.
    pub jobs: Vec<Job>,
    /// What is so.
    pub what: String,
    /// How that was measured.
    pub measured: &'static str,
    /// What it costs; `None` where all is well.
    pub cost: Option<&'static str>,
    /// What helps, as a command.
    #[serde(rename = "command")]
    pub remedy: Remedy,
    /// Whether `--fix` changes it.
    pub fixable: bool,
}
