//! [`Finding`]: what a check has found.

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

linerate_net::named!(
    Job, "job": Capture = "capture", Forward = "forward", Receive = "receive", Uplink = "uplink"
);

impl Job {
    /// Those that this host may have: all, but [`Job::Forward`] only if its kernel forwards.
    pub fn of_host() -> Vec<Self> {
        let keys = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];
        let forwards = keys.iter().any(|key| number(sysctl_path(key)).unwrap_or(0) != 0);
        Self::ALL.iter().copied().filter(|job| forwards || *job != Self::Forward).collect()
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

linerate_net::named!(
    Severity, "severity": Ok = "ok", Note = "note", Unknown = "unknown", Warning = "warning", Fatal = "fatal"
);

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
