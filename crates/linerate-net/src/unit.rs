//! The service of systemd that runs this process, and the settings of its unit that refuse what the process tries
//! (systemd.exec(5), systemd.resource-control(5)).

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{self, Path};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;

use crate::privilege;

/// The unit, if this process is part of a service: systemd gives it an INVOCATION_ID and a control group of its name.
/// A container has a group without a name.
#[must_use]
pub fn name() -> Option<String> {
    std::env::var_os("INVOCATION_ID")?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(unit_of).map(str::to_owned)
}

/// The service of a line of `/proc/PID/cgroup`. A scope below a service, as of a terminal, is another unit.
fn unit_of(line: &str) -> Option<&str> {
    let mut parts = line.splitn(3, ':').nth(2)?.rsplit('/');
    let unit = parts.find(|part| part.ends_with(".service") || part.ends_with(".scope"))?;
    unit.ends_with(".service").then_some(unit)
}

/// The setting that lets the service write to `path`, and how to make it; `None` outside of a service, and if another
/// reason than the unit's settings is possible for `error`.
#[must_use]
pub fn path_remedy(path: &Path, error: &io::Error) -> Option<String> {
    let unit = name()?;
    let path = path::absolute(path).ok()?;
    let folder = path.ancestors().find(|folder| folder.is_dir())?;
    // EPERM has other reasons: who may give a file away.
    let is_access = error.raw_os_error() == Some(Errno::ACCESS.raw_os_error());
    let settings = match error.kind() {
        ErrorKind::ReadOnlyFilesystem if is_read_only_mount(folder) => {
            format!("ReadWritePaths={}", escaped(folder))
        }
        ErrorKind::PermissionDenied
            if is_access
                && HOMES.iter().any(|home| path.starts_with(home) && is_inaccessible(home)) =>
        {
            "ProtectHome=no".to_owned()
        }
        // Root is no exception without this capability.
        ErrorKind::PermissionDenied
            if is_access
                && rustix::process::geteuid().is_root()
                && privilege::lacks("CAP_DAC_OVERRIDE") =>
        {
            "CapabilityBoundingSet=CAP_DAC_OVERRIDE".to_owned()
        }
        _ => return None,
    };
    Some(format!("the unit {unit} does not allow it: {}", add(&unit, &settings)))
}

/// The folders of ProtectHome=.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];

/// Whether this is the folder without any permission that systemd puts in place of another one.
fn is_inaccessible(folder: &str) -> bool {
    std::fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o777 == 0)
}

/// The settings that let the service run as `user`, if it may not change to that user itself.
#[must_use]
pub fn user_remedy(user: &str) -> Option<String> {
    let unit = name().filter(|_| privilege::lacks("CAP_SETUID,CAP_SETGID"))?;
    let capabilities = privilege::XDP_CAPABILITIES.replace(',', " ");
    let add = add(&unit, &format!("User={user}` and `AmbientCapabilities={capabilities}"));
    Some(format!("the unit {unit} does not allow it: {add}"))
}

/// The same error with the setting that lets the service send to `address`, if the unit's IPAddressDeny= can be the
/// reason: sending a datagram is not permitted, and a connection is not answered.
#[must_use]
pub fn with_address_remedy(address: IpAddr, error: io::Error) -> io::Error {
    let by_filter = matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::TimedOut);
    let unit = name().filter(|_| by_filter && !address.is_loopback());
    let Some(unit) = unit else { return error };
    let to_add = add(&unit, &format!("IPAddressAllow={address}"));
    let text = format!("{error}; if IPAddressDeny= of the unit {unit} is the reason, {to_add}");
    io::Error::new(error.kind(), text)
}

/// How a setting is added to the section \[Service\] of a unit.
fn add(unit: &str, setting: &str) -> String {
    format!("run `systemctl edit {unit}`, add `{setting}` below [Service], and restart it")
}

/// Whether the folder is read-only by its mount alone, as mounts of ProtectSystem= are: its file system is not.
fn is_read_only_mount(folder: &Path) -> bool {
    let Ok(found) = statx(CWD, folder, AtFlags::empty(), StatxFlags::MNT_ID) else { return false };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let id = found.stx_mnt_id.to_string();
    mounts.lines().any(|line| {
        // proc(5): number, parent, device, root, mount point, options, ..., options of the file system.
        let fields: Vec<_> = line.split(' ').collect();
        let is_read_only =
            |field: Option<&&str>| field.is_some_and(|f| f.split(',').any(|o| o == "ro"));
        fields[0] == id && is_read_only(fields.get(5)) && !is_read_only(fields.last())
    })
}

/// The path as a value in a unit file.
fn escaped(path: &Path) -> String {
    let text = path.to_string_lossy().replace('%', "%%");
    match text.contains(|c: char| c.is_whitespace() || "\"'\\".contains(c)) {
        true => format!("{text:?}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_service_or_scope_of_a_control_group_counts() {
        for (line, unit) in [
            ("0::/system.slice/linerate-forward.service", Some("linerate-forward.service")),
            ("1:name=systemd:/system.slice/a@b.service/sub", Some("a@b.service")),
            ("0::/user.slice/user-0.slice/user@0.service/app.slice/vte-1.scope", None),
            ("0::/user.slice/session-1.scope", None),
            ("0::/", None),
            ("0", None),
        ] {
            assert_eq!(unit_of(line), unit, "{line}");
        }
    }

    #[test]
    fn a_path_is_a_value_of_a_unit_file() {
        for (path, value) in [("/srv/a", "/srv/a"), ("/a b", "\"/a b\""), ("/50%", "/50%%")] {
            assert_eq!(escaped(Path::new(path)), value);
        }
    }
}
