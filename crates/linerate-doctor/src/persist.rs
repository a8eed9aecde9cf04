//! [`persist`]: files that make the recorded changes again at each start: of sysctl.d, of tmpfiles.d, and a systemd unit
//! for each interface.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::file;
use crate::setting::{Change, Setting, dotted};
use crate::state::{State, Step, lock, replace};
use crate::{Error, Result};

const SYSCTL: &str = "etc/sysctl.d/90-linerate-doctor.conf";
const TMPFILES: &str = "etc/tmpfiles.d/linerate-doctor.conf";
const UNITS: &str = "etc/systemd/system";
/// Writes its first argument to the file of its second.
const WRITE: &str = r#"/bin/sh -c 'echo "$$1" > "$$2"' sh"#;
const HEADER: &str =
    "# Written by `linerate doctor --persist`; `linerate doctor --undo` removes it.\n";

/// Writes the files for the changes that `path` records, below `root` (`/`), and records them there.
///
/// # Errors
/// [`Error::State`] where no changes are recorded, [`Error::File`].
pub fn persist(path: &Path, root: &Path) -> Result<Vec<Step>> {
    let _lock = lock(path)?;
    let none = || Error::State {
        path: path.to_owned(),
        reason: "there is nothing to keep: no changes are recorded (--fix)".to_owned(),
    };
    let mut state = State::load(path)?.ok_or_else(none)?;
    let changes: Vec<_> = state.changes().collect();
    let mut steps = Vec::new();
    for (place, text) in files(&changes) {
        let file_path = root.join(&place);
        // Recorded first: what is written can be removed.
        state.files.insert(file_path.clone(), text.clone());
        state.save(path)?;
        write(&file_path, &text, is_link(&place))?;
        let command = format!("wrote {}", file_path.display());
        steps.push(Step { command, left: None, unchanged: false });
    }
    for change in changes.iter().filter(|change| matches!(change.setting, Setting::Bpffs(_))) {
        let left =
            Some("not kept: systemd mounts it at each start where the kernel has it".to_owned());
        steps.push(Step { command: change.command(), left, unchanged: true });
    }
    Ok(steps)
}

/// The files with their text, or what they link to.
fn files(changes: &[Change]) -> BTreeMap<PathBuf, String> {
    let (mut sysctl, mut tmpfiles) = (String::new(), String::new());
    let mut interfaces = BTreeMap::<String, Vec<String>>::new();
    for Change { setting, value } in changes {
        let mut add = |interface: &str, command| {
            interfaces.entry(interface.to_owned()).or_default().push(command);
        };
        match setting {
            Setting::Sysctl(key) => {
                let _ = writeln!(sysctl, "{} = {value}", dotted(key));
            }
            Setting::Sysfs(path) => match setting.interface() {
                Some(interface) => {
                    let words = [value, &*path.to_string_lossy()].map(unit_quoted);
                    add(interface, format!("{WRITE} {}", words.join(" ")));
                }
                None => {
                    let _ = writeln!(tmpfiles, "w {} - - - - {value}", path.display());
                }
            },
            Setting::Feature { interface, .. } | Setting::Parameter { interface, .. } => {
                let words: Vec<_> =
                    setting.ethtool_command(value).into_iter().flatten().map(unit_quoted).collect();
                add(interface, words.join(" "));
            }
            Setting::Bpffs(_) => {}
        }
    }
    let mut files = BTreeMap::new();
    for (place, text) in [(SYSCTL, sysctl), (TMPFILES, tmpfiles)] {
        if !text.is_empty() {
            files.insert(place.into(), format!("{HEADER}{text}"));
        }
    }
    for (interface, commands) in interfaces {
        let name = format!("linerate-doctor-{}.service", escape(&interface));
        let device = format!("sys-subsystem-net-devices-{}.device", escape(&interface));
        let unit = Path::new(UNITS).join(&name);
        // What `systemctl enable` makes of WantedBy.
        let wanted = Path::new(UNITS).join(format!("{device}.wants")).join(&name);
        files.insert(wanted, format!("/{}", unit.display()));
        files.insert(unit, text_of_unit(&interface, &device, &commands));
    }
    files
}

/// A unit that runs the commands when the interface appears.
fn text_of_unit(interface: &str, device: &str, commands: &[String]) -> String {
    let mut text = format!(
        "{HEADER}[Unit]\nDescription=Settings of {0} for Linerate\nBindsTo={1}\nAfter={1}\nBefore=network-pre.target\n\
         Wants=network-pre.target\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n",
        interface.replace('%', "%%"),
        escape_specifiers(device)
    );
    for command in commands {
        // One that fails keeps no other from running.
        let _ = writeln!(text, "ExecStart=-{command}");
    }
    let _ = write!(text, "\n[Install]\nWantedBy={}\n", escape_specifiers(device));
    text
}

/// systemd reads % as the start of a specifier.
fn escape_specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

/// A word of a command in a unit (systemd.service(5)).
fn unit_quoted(word: &str) -> String {
    let word = escape_specifiers(word).replace('$', "$$");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@+=%$".contains(c);
    if word.chars().all(is_plain) {
        return word;
    }
    format!("\"{}\"", word.replace('\\', r"\\").replace('"', r#"\""#))
}

/// The name of an interface in the name of a unit (systemd-escape(1)).
fn escape(name: &str) -> String {
    name.bytes().enumerate().fold(String::new(), |mut text, (place, byte)| {
        match byte {
            b'.' if place > 0 => text.push('.'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' => text.push(byte.into()),
            b'/' => text.push('-'),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
        text
    })
}

fn is_link(place: &Path) -> bool {
    place.parent().is_some_and(|folder| folder.extension().is_some_and(|end| end == "wants"))
}

fn write(path: &Path, text: &str, is_link: bool) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(file("make", folder))?;
    if !is_link {
        return replace(path, text, 0o644).map_err(file("write", path));
    }
    match symlink(text, path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(file("write", path)),
    }
}

#[cfg(test)]
mod tests;
