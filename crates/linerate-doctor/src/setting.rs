//! [`Setting`]: what `--fix` changes, and `--undo` restores.

use std::borrow::Cow;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use linerate_forward::runtime::pins::is_bpffs;
use linerate_net::ethtool::{self, Parameter};
use linerate_net::{link, privilege};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde::{Deserialize, Serialize};

use crate::error::file;
use crate::{Error, Result};

/// A setting of the host or of an interface. Its value is text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// A file below `/proc/sys`, by the key of sysctl(8) with slashes.
    Sysctl(String),
    /// A file of sysfs.
    Sysfs(PathBuf),
    /// A feature, `on` or `off` (`ethtool -K`), by the kernel's name.
    Feature {
        /// The interface.
        interface: String,
        /// The feature.
        feature: String,
    },
    /// A number of the driver (`ethtool -L`, `-G`, `-C`).
    Parameter {
        /// The interface.
        interface: String,
        /// The option of ethtool(8).
        option: String,
        /// The word after the interface.
        word: String,
    },
    /// A BPF file system at this place, `mounted` or `unmounted`.
    Bpffs(PathBuf),
}

const MOUNTED: &str = "mounted";
const UNMOUNTED: &str = "unmounted";

impl Setting {
    /// A number of the driver.
    pub(crate) fn parameter(interface: &str, parameter: Parameter) -> Self {
        let (option, word) = parameter.option();
        let interface = interface.to_owned();
        Self::Parameter { interface, option: option.to_owned(), word: word.to_owned() }
    }

    /// The interface that it belongs to, if it belongs to one.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Feature { interface, .. } | Self::Parameter { interface, .. } => Some(interface),
            Self::Sysctl(key) => match key.split('/').collect::<Vec<_>>()[..] {
                ["net", _, "conf" | "neigh", name, ..] => Some(name),
                _ => None,
            },
            Self::Sysfs(path) => {
                let rest = path.strip_prefix("/sys/class/net").ok()?;
                rest.iter().next()?.to_str()
            }
            Self::Bpffs(_) => None,
        }
    }

    /// What it is now; `None` where there is no such setting.
    ///
    /// # Errors
    /// [`Error::Net`], [`Error::File`].
    pub fn read(&self) -> Result<Option<String>> {
        let text = |path: &Path| match fs::read_to_string(path) {
            Ok(text) => Ok(Some(text.trim_end().to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file("read", path)(error)),
        };
        match self {
            Self::Sysctl(key) => text(&sysctl_path(key)),
            Self::Sysfs(path) => Ok(text(path)?.map(chosen)),
            Self::Feature { interface, feature } => {
                let features = ethtool::features(link::by_name(interface)?.index)?;
                Ok(Some(if features.is_active(feature) { "on" } else { "off" }.to_owned()))
            }
            Self::Parameter { interface, .. } => {
                let found = self
                    .number()
                    .map(|number| ethtool::parameter(link::by_name(interface)?.index, number));
                Ok(found.transpose()?.flatten().map(|value| value.current.to_string()))
            }
            Self::Bpffs(path) => {
                Ok(Some(if is_bpffs(path) { MOUNTED } else { UNMOUNTED }.to_owned()))
            }
        }
    }

    /// Sets it, and verifies that it took the value.
    ///
    /// # Errors
    /// [`Error::Net`], [`Error::File`]; [`Error::Setting`] where the kernel accepts the request and does something else.
    pub fn write(&self, value: &str) -> Result<()> {
        match self {
            Self::Sysctl(key) => {
                let path = sysctl_path(key);
                fs::write(&path, value).map_err(|error| match error.kind() {
                    ErrorKind::PermissionDenied if privilege::lacks("CAP_NET_ADMIN") => {
                        let action = format!("write {}", path.display());
                        linerate_net::Error::Privilege { action, capability: "CAP_NET_ADMIN" }
                            .into()
                    }
                    _ => file("write", &path)(error),
                })?;
            }
            Self::Sysfs(path) => write(path, value)?,
            Self::Feature { interface, feature } => {
                ethtool::set_feature(link::by_name(interface)?.index, feature, value == "on")?;
            }
            Self::Parameter { interface, .. } => {
                let (Some(number), Ok(value)) = (self.number(), value.parse()) else {
                    return Err(self.refused("no such parameter or value"));
                };
                ethtool::set_parameter(link::by_name(interface)?.index, number, value)?;
            }
            Self::Bpffs(path) if value == MOUNTED => {
                mount("bpf", path, "bpf", MountFlags::empty(), Some(c"mode=700"))
                    .map_err(|errno| file("mount a BPF file system at", path)(errno.into()))?;
            }
            Self::Bpffs(path) => {
                unmount(path, UnmountFlags::empty())
                    .map_err(|errno| file("unmount", path)(errno.into()))?;
            }
        }
        match self.read()? {
            Some(now) if is_same(&now, value) => Ok(()),
            now => {
                let now = now.unwrap_or_else(|| "gone".to_owned());
                Err(self.refused(&format!("it is {now} after {value} was accepted")))
            }
        }
    }

    /// The command that sets it.
    pub fn command(&self, value: &str) -> String {
        match self {
            Self::Sysctl(key) => format!("sysctl -w {}={}", quoted(&dotted(key)), quoted(value)),
            Self::Sysfs(path) => format!("echo {} > {}", quoted(value), quoted_path(path)),
            Self::Feature { .. } | Self::Parameter { .. } => self
                .ethtool_command(value)
                .into_iter()
                .flatten()
                .map(quoted)
                .collect::<Vec<_>>()
                .join(" "),
            Self::Bpffs(path) if value == MOUNTED => {
                format!("mount -t bpf -o mode=700 bpf {}", quoted_path(path))
            }
            Self::Bpffs(path) => format!("umount {}", quoted_path(path)),
        }
    }

    /// The words of the command that sets it, if that is ethtool(8).
    pub(crate) fn ethtool_command<'a>(&'a self, value: &'a str) -> Option<[&'a str; 5]> {
        match self {
            Self::Feature { interface, feature } => {
                Some(["ethtool", "-K", interface, feature, value])
            }
            Self::Parameter { interface, option, word } => {
                Some(["ethtool", option, interface, word, value])
            }
            _ => None,
        }
    }

    fn number(&self) -> Option<Parameter> {
        let Self::Parameter { option, word, .. } = self else { return None };
        Parameter::ALL.into_iter().find(|one| one.option() == (option, word))
    }

    fn refused(&self, reason: &str) -> Error {
        Error::Setting { setting: format!("{self:?}"), reason: reason.to_owned() }
    }
}

/// A setting and the value that it is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The setting.
    pub setting: Setting,
    /// The value.
    pub value: String,
}

impl Change {
    pub(crate) fn sysctl(key: &str, value: impl ToString) -> Self {
        Self { setting: Setting::Sysctl(key.to_owned()), value: value.to_string() }
    }

    pub(crate) fn feature(interface: &str, feature: &str, on: bool) -> Self {
        let (interface, feature) = (interface.to_owned(), feature.to_owned());
        let value = if on { "on" } else { "off" }.to_owned();
        Self { setting: Setting::Feature { interface, feature }, value }
    }

    pub(crate) fn parameter(interface: &str, parameter: Parameter, value: u32) -> Self {
        let setting = Setting::parameter(interface, parameter);
        Self { setting, value: value.to_string() }
    }

    pub(crate) fn sysfs(path: impl Into<PathBuf>, value: impl ToString) -> Self {
        Self { setting: Setting::Sysfs(path.into()), value: value.to_string() }
    }

    pub(crate) fn bpffs(path: &str) -> Self {
        Self { setting: Setting::Bpffs(path.into()), value: MOUNTED.to_owned() }
    }

    /// The command that makes it.
    pub fn command(&self) -> String {
        self.setting.command(&self.value)
    }
}

/// The file of a key.
pub(crate) fn sysctl_path(key: &str) -> PathBuf {
    Path::new("/proc/sys").join(key)
}

/// A key as sysctl(8) shows it. The name of an interface may have a dot; then slashes separate.
pub(crate) fn dotted(key: &str) -> String {
    if key.contains('.') { key.to_owned() } else { key.replace('/', ".") }
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).map_err(file("write", path))
}

/// The word in brackets, where a file lists all choices.
pub(crate) fn chosen(text: String) -> String {
    let choice = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    choice.map_or(text.clone(), |(word, _)| word.to_owned())
}

/// Whether two values are the same: the kernel writes masks of CPUs with leading zeros.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    let digits = |text: &'_ str| text.trim_start_matches(['0', ',']).to_owned();
    digits(one) == digits(other)
}

/// A word for a shell: the name of an interface may have any character but a slash, a colon and white space.
pub(crate) fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| String::new(), Cow::into_owned)
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}
