//! [`State`]: the changes that were made, in a file, so that they can be undone, also by another process and after a
//! restart.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use linerate_net::ethtool::{self, Parameter};
use linerate_net::link;
use linerate_net::lock::{MAX_WAIT, lock_within};
use linerate_net::namespace::{self, Namespace};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::error::file;
use crate::setting::{Change, Setting, is_same};
use crate::{Error, Result};

/// Where the state is by default.
pub const PATH: &str = "/var/lib/linerate/doctor.json";

/// The changes that were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The kernel's number of the boot.
    boot: String,
    /// Inode of the network namespace.
    namespace: u64,
    /// What it shares with no other namespace of the boot.
    #[serde(default)]
    namespace_cookie: Option<u64>,
    /// In the order in which they were made.
    entries: Vec<Entry>,
    /// Files that keep the changes over a restart, with their text.
    #[serde(default)]
    pub(crate) files: BTreeMap<PathBuf, String>,
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    setting: Setting,
    before: String,
    after: String,
    /// The kernel changed it by itself, with the setting before it in the list.
    #[serde(default)]
    implied: bool,
    /// The interface that has it.
    #[serde(default)]
    interface: Option<InterfaceIdentity>,
}

impl Entry {
    fn new(setting: &Setting, before: &str, after: &str, implied: bool) -> Self {
        Self {
            setting: setting.clone(),
            before: before.to_owned(),
            after: after.to_owned(),
            implied,
            interface: InterfaceIdentity::of(setting),
        }
    }
}

/// Which of the interfaces that may have a name after one another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct InterfaceIdentity {
    index: u32,
    /// Of its hardware.
    permanent_address: Option<String>,
}

impl InterfaceIdentity {
    fn of(setting: &Setting) -> Option<Self> {
        let link = link::by_name(setting.interface()?).ok()?;
        let permanent_address = link.permanent_address.map(|address| address.to_string());
        Some(Self { index: link.index, permanent_address })
    }

    /// Whether it is the same. A driver that is loaded again, or another boot, gives it another index.
    fn is(&self, other: &Self, restarted: bool) -> bool {
        match (&self.permanent_address, &other.permanent_address) {
            (Some(one), Some(other)) => one == other,
            _ => restarted || self.index == other.index,
        }
    }
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The command that does the same.
    pub command: String,
    /// Why it was not done, or what is left.
    pub left: Option<String>,
    /// Nothing was to be done: it had this value.
    pub unchanged: bool,
}

impl State {
    /// Reads the file; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::File`], and [`Error::State`] for a file that is not of this program.
    pub fn load(path: &Path) -> Result<Option<Self>> {
        let wrong = |reason| Error::State { path: path.to_owned(), reason };
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut found = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(file("read", path))?,
        };
        refuse_foreign(&found, path)?;
        let mut text = String::new();
        found.read_to_string(&mut text).map_err(file("read", path))?;
        let state = serde_json::from_str(&text)
            .map_err(|error| wrong(format!("no state of linerate doctor: {error}")))?;
        Ok(Some(state))
    }

    /// The settings that somebody asked for, with their values, in order.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> {
        let asked = self.entries.iter().filter(|entry| !entry.implied);
        asked.map(|Entry { setting, after, .. }| Change {
            setting: setting.clone(),
            value: after.clone(),
        })
    }

    /// Writes the file, whole or not at all; removes it where nothing is left to undo.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        if self.entries.is_empty() && self.files.is_empty() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(file("remove", path)(error))
                }
                _ => Ok(()),
            };
        }
        let text = serde_json::to_string_pretty(self).expect("plain data") + "\n";
        replace(path, &text, 0o600).map_err(file("write", path))
    }

    /// The state of `path`, for this boot and network namespace.
    fn open(path: &Path) -> Result<Self> {
        let here = Self {
            boot: boot(),
            namespace: Namespace::current()?.inode(),
            namespace_cookie: namespace::cookie(),
            ..Self::default()
        };
        match Self::load(path)? {
            None => Ok(here),
            Some(state) if state.boot != here.boot => Err(Error::State {
                path: path.to_owned(),
                reason: "it has changes from before the last start of the machine; take them back first \
                         (--undo)"
                    .to_owned(),
            }),
            Some(state) => {
                state.check_namespace(path)?;
                Ok(state)
            }
        }
    }

    fn check_namespace(&self, path: &Path) -> Result<()> {
        let cookies = self.namespace_cookie.zip(namespace::cookie());
        let is_later = cookies.is_some_and(|(then, now)| then != now);
        if self.boot == boot() && (is_later || self.namespace != Namespace::current()?.inode()) {
            let reason = "its changes were made in another network namespace".to_owned();
            return Err(Error::State { path: path.to_owned(), reason });
        }
        Ok(())
    }

    /// Makes a change. What it does to other settings is recorded, too. Returns why it was not made, where the kernel
    /// refuses it.
    fn make(&mut self, path: &Path, Change { setting, value }: &Change) -> Result<Option<String>> {
        let found = setting.read().and_then(|before| Ok((before, implied(setting)?)));
        let (before, implied_before) = match found {
            Ok((Some(before), implied)) => (before, implied),
            Ok((None, _)) => return Ok(Some("the host does not have it".to_owned())),
            Err(error) => return Ok(Some(error.to_string())),
        };
        let saved = self.entries.clone();
        self.record(Entry::new(setting, &before, value, false));
        // On disk before the change: whatever happens, it can be undone.
        self.save(path)?;
        if let Err(error) = setting.write(value) {
            // A part of it may have been done, as with huge pages where memory is short.
            let is_back = setting.read().is_ok_and(|now| now.as_ref() == Some(&before));
            if is_back || setting.write(&before).is_ok() {
                self.entries = saved;
                self.save(path)?;
            }
            return Ok(Some(error.to_string()));
        }
        match implied(setting) {
            Ok(after) => {
                for entry in differences(setting, &implied_before, &after) {
                    self.record(entry);
                }
            }
            Err(error) => warn_unread(&setting.command(value), &error),
        }
        self.save(path)?;
        Ok(None)
    }

    /// Adds an entry; what a setting was before the first change counts.
    fn record(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|one| one.setting == entry.setting) {
            Some(known) => {
                known.after = entry.after;
                known.implied &= entry.implied;
            }
            None => self.entries.push(entry),
        }
    }
}

/// Makes these changes, and records them in `path`. Each is made even if another fails.
///
/// # Errors
/// [`Error::State`] where the file has changes of another boot or network namespace; [`Error::File`] where it cannot be
/// written: then nothing is changed any more.
pub fn fix(path: &Path, changes: impl IntoIterator<Item = Change>) -> Result<Vec<Step>> {
    let _lock = lock(path)?;
    let mut state = State::open(path)?;
    let mut steps = Vec::new();
    for change in changes {
        let left = state.make(path, &change)?;
        steps.push(Step { command: change.command(), left, unchanged: false });
    }
    Ok(steps)
}

/// Fails for a file that others have made, or may have written.
fn refuse_foreign(found: &File, path: &Path) -> Result<()> {
    let metadata = found.metadata().map_err(file("read", path))?;
    let own = rustix::process::geteuid().as_raw();
    if metadata.mode() & 0o022 == 0 && [0, own].contains(&metadata.uid()) {
        return Ok(());
    }
    let (user, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    Err(Error::State {
        path: path.to_owned(),
        reason: format!(
            "it belongs to user {user} with mode {mode:o}: others may have written it, so it is not used"
        ),
    })
}

/// Keeps other processes from the state file until this is closed; makes the folder. The lock has a file of its own,
/// because the state file is replaced, and others could lock a folder that they can read.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(file("make", folder))?;
    let path = path.with_extension("lock");
    let mut options = OpenOptions::new();
    options
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    let lock = options.open(&path).map_err(file("lock", &path))?;
    refuse_foreign(&lock, &path)?;
    lock_within(&lock, MAX_WAIT).map_err(file("lock", &path))?;
    Ok(lock)
}

/// Writes a file, whole or not at all, and through no link of others.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let temporary = path.with_extension("new");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut new = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    new.write_all(text.as_bytes())?;
    new.sync_all()?;
    fs::rename(&temporary, path)
}

/// What is to become of an entry.
struct Target {
    entry: Entry,
    /// The value to have in the end; `None`: the setting is gone.
    value: Option<String>,
    step: Step,
}

/// Sets everything back that has the value that [`fix`] gave it. What somebody else has changed since stays. What cannot
/// be set back stays in the file. Returns the steps, and whether the machine was restarted since.
///
/// # Errors
/// [`Error::State`] without a file, or for changes in another network namespace; [`Error::File`].
pub fn undo(path: &Path) -> Result<(Vec<Step>, bool)> {
    let none = || Error::State {
        path: path.to_owned(),
        reason: "there is nothing to undo: no changes are recorded".to_owned(),
    };
    if !path.exists() {
        return Err(none());
    }
    let _lock = lock(path)?;
    let mut state = State::load(path)?.ok_or_else(none)?;
    state.check_namespace(path)?;
    let restarted = state.boot != boot();
    // All are looked at before one is changed: setting one back changes others.
    let mut targets: Vec<_> =
        state.entries.drain(..).rev().map(|entry| Target::new(entry, restarted)).collect();
    targets.sort_by_key(|target| target.entry.implied);
    let recorded: Vec<_> = targets.iter().map(|target| target.entry.setting.clone()).collect();
    let mut also = Vec::new();
    for target in &mut targets {
        if let Some(value) = &target.value {
            let is_there =
                |now: &Option<String>| now.as_ref().is_some_and(|now| is_same(now, value));
            let setting = &target.entry.setting;
            let around = implied(setting);
            let written = match setting.read() {
                Ok(now) if is_there(&now) => Ok(()),
                Ok(_) => setting.write(value),
                Err(error) => Err(error),
            };
            // What changes now, and did not when the change was made.
            let changed = match (around, implied(setting)) {
                (Ok(around), Ok(after)) => differences(setting, &around, &after),
                (Err(error), _) | (_, Err(error)) => {
                    warn_unread(&setting.command(value), &error);
                    Vec::new()
                }
            };
            also.extend(changed.into_iter().filter(|entry| !recorded.contains(&entry.setting)));
            if let Err(error) = written {
                target.step.left = Some(error.to_string());
                state.entries.insert(0, target.entry.clone());
            }
        }
    }
    let mut steps: Vec<_> = targets
        .into_iter()
        .filter(|target| !target.entry.implied || target.step.left.is_some())
        .map(|target| target.step)
        .collect();
    for Entry { setting, before, .. } in also {
        if let Err(error) = setting.write(&before) {
            let (command, left) = (setting.command(&before), Some(error.to_string()));
            steps.push(Step { command, left, unchanged: false });
        }
    }
    steps.extend(remove_files(&mut state.files));
    state.save(path)?;
    Ok((steps, restarted))
}

impl Target {
    fn new(entry: Entry, restarted: bool) -> Self {
        let mut step =
            Step { command: entry.setting.command(&entry.before), left: None, unchanged: false };
        if let (Some(then), Some(now)) = (&entry.interface, InterfaceIdentity::of(&entry.setting))
            && !then.is(&now, restarted)
        {
            step.left = Some("another interface has this name now; it stays".to_owned());
            return Self { entry, value: None, step };
        }
        let value = match entry.setting.read() {
            Ok(Some(now)) if is_same(&now, &entry.after) => Some(entry.before.clone()),
            Ok(Some(now)) if is_same(&now, &entry.before) => {
                step.unchanged = true;
                Some(now)
            }
            Ok(Some(now)) => {
                step.left = Some(format!("somebody has set it to {now} since; it stays"));
                Some(now)
            }
            Ok(None) => {
                step.left = Some("it is gone".to_owned());
                None
            }
            Err(error) => {
                step.left = Some(error.to_string());
                None
            }
        };
        Self { entry, value, step }
    }
}

fn is_gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// What else a command changed is unknown, so it is neither recorded nor undone.
fn warn_unread(command: &str, error: &Error) {
    tracing::warn!(%error, "cannot see what else the kernel changed with `{command}`: that is not undone");
}

/// Removes the files that are still as they were written.
fn remove_files(files: &mut BTreeMap<PathBuf, String>) -> Vec<Step> {
    std::mem::take(files)
        .into_iter()
        .map(|(path, text)| {
            let command = format!("rm {}", path.display());
            let is_link = fs::read_link(&path).is_ok_and(|target| target == Path::new(&text));
            let is_ours = is_link || fs::read_to_string(&path).is_ok_and(|now| now == text);
            let left = match () {
                () if is_gone(&path) => None,
                () if !is_ours => Some("somebody has changed it since; it stays".to_owned()),
                () => fs::remove_file(&path).err().map(|error| error.to_string()),
            };
            if is_link && let Some(folder) = path.parent() {
                // Fails while others have links there.
                let _ = fs::remove_dir(folder);
            }
            Step { command, left, unchanged: false }
        })
        .collect()
}

/// Other settings that the kernel may change with this one, and their values.
fn implied(setting: &Setting) -> Result<Vec<(Setting, String)>> {
    let mut found = Vec::new();
    let mut add = |setting: Setting| {
        if let Ok(Some(value)) = setting.read() {
            found.push((setting, value));
        }
    };
    match setting {
        // `inet_forward_change` and `dev_disable_lro`
        Setting::Sysctl(key) if key == "net/ipv4/ip_forward" => {
            add(Setting::Sysctl("net/ipv4/conf/all/accept_redirects".to_owned()));
            let folder = "/proc/sys/net/ipv4/conf";
            for entry in fs::read_dir(folder).map_err(file("read", folder.as_ref()))?.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                add(Setting::Sysctl(format!("net/ipv4/conf/{name}/forwarding")));
            }
            for link in link::all()? {
                found.extend(features_of(&link.name)?.into_iter().filter(|(one, _)| {
                    matches!(one, Setting::Feature { feature, .. } if feature == "rx-lro")
                }));
            }
        }
        Setting::Feature { interface, .. } => found = features_of(interface)?,
        Setting::Parameter { interface, .. } => {
            for parameter in Parameter::ALL {
                add(Setting::parameter(interface, parameter));
            }
            found.extend(features_of(interface)?);
        }
        _ => {}
    }
    found.retain(|(one, _)| one != setting);
    Ok(found)
}

/// The features of an interface that are on.
///
/// # Errors
/// Where the kernel does not tell: none of them is taken for off.
fn features_of(interface: &str) -> Result<Vec<(Setting, String)>> {
    let features = match link::by_name(interface) {
        Ok(link) => ethtool::features(link.index)?,
        // It has gone meanwhile, and its features with it.
        Err(linerate_net::Error::NoInterface(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let on = features.active().map(|feature| {
        let (interface, feature) = (interface.to_owned(), feature.to_owned());
        (Setting::Feature { interface, feature }, "on".to_owned())
    });
    Ok(on.collect())
}

/// What the kernel has changed with `setting`.
fn differences(
    setting: &Setting,
    before: &[(Setting, String)],
    after: &[(Setting, String)],
) -> Vec<Entry> {
    let value = |list: &[(Setting, String)], wanted: &Setting| {
        let found = list.iter().find(|(one, _)| one == wanted).map(|(_, value)| value.clone());
        // Features that are off are not in the list.
        found.or_else(|| matches!(wanted, Setting::Feature { .. }).then(|| "off".to_owned()))
    };
    let mut entries: Vec<Entry> = Vec::new();
    for (one, _) in before.iter().chain(after) {
        if one == setting || entries.iter().any(|entry| entry.setting == *one) {
            continue;
        }
        if let (Some(before), Some(after)) = (value(before, one), value(after, one))
            && before != after
        {
            entries.push(Entry::new(one, &before, &after, true));
        }
    }
    entries
}

/// The kernel's number of this boot.
fn boot() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}
