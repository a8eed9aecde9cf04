//! Results belong to the user who called sudo, not to root.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

use nix::unistd::geteuid;

/// Gives `path`, which this process created, to the caller of sudo, if its folder belongs to the caller too.
/// Without sudo, nothing. On failure the file stays owned by root; it is still readable.
pub(crate) fn chown_to_caller(path: &Path) {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    if let (true, Some(user), Some(group)) =
        (geteuid().is_root(), number("SUDO_UID"), number("SUDO_GID"))
    {
        chown_to(path, user, group);
    }
}

/// The same for a folder and all that is in it.
pub(crate) fn chown_recursive(folder: &Path) {
    chown_to_caller(folder);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            chown_recursive(&entry.path());
        } else {
            chown_to_caller(&entry.path());
        }
    }
}

fn chown_to(path: &Path, user: u32, group: u32) {
    let within = path.parent().map(|folder| match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    });
    let theirs = within.and_then(|folder| fs::metadata(folder).ok()).map(|folder| folder.uid());
    if theirs == Some(user) {
        let _ = lchown(path, Some(user), Some(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_in_the_callers_folder_are_the_callers() {
        linerate_testkit::root_or_skip!();
        let folder = tempfile::tempdir().unwrap();
        let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
        for path in [&theirs, &ours] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("page"), "").unwrap();
        }
        lchown(&theirs, Some(1234), Some(4321)).unwrap();
        let owner = |path: &Path| {
            let page = fs::metadata(path.join("page")).unwrap();
            (page.uid(), page.gid())
        };
        let before = owner(&ours);
        for path in [&theirs, &ours] {
            chown_to(&path.join("page"), 1234, 4321);
        }
        assert_eq!((owner(&theirs), owner(&ours)), ((1234, 4321), before));
    }
}
