//! [`ControlGroup`]: what the path of a control group says: unit, container, pod.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id, mostly 64 hexadecimal digits.
    pub id: String,
    /// What runs it, as far as the path tells: `docker`, `podman`, `containerd`, `cri-o`.
    pub runtime: Option<&'static str>,
    /// Its name, if the runtime keeps it where this process may read.
    pub name: Option<String>,
}

/// A control group by its path below the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlGroup {
    /// Its path.
    pub path: String,
    /// The last unit of systemd in the path: a service or a scope.
    pub unit: Option<String>,
    /// The container.
    pub container: Option<Container>,
    /// The UID of the pod in Kubernetes.
    pub pod: Option<String>,
    /// Its namespace and name, if they are known.
    pub pod_name: Option<(String, String)>,
}

/// What runtimes put before the id, and their names. `libpod-conmon-`, `crio-conmon-` and the like are groups of their
/// monitors, which are outside of the container.
const PREFIXES: [(&str, Option<&str>); 6] = [
    ("docker-", Some("docker")),
    ("libpod-", Some("podman")),
    ("cri-containerd-", Some("containerd")),
    ("nerdctl-", Some("containerd")),
    ("crio-", Some("cri-o")),
    ("", None),
];

/// Digits of an id.
const ID_LEN: usize = 64;

impl ControlGroup {
    /// What a path says.
    pub fn of_path(path: &str) -> Self {
        let parts = || path.split('/');
        let unit = parts().rfind(|part| part.ends_with(".service") || part.ends_with(".scope"));
        let container = parts().rev().find_map(|part| {
            let name = part.strip_suffix(".scope").unwrap_or(part);
            let is_id =
                |id: &str| id.len() == ID_LEN && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            PREFIXES.iter().find_map(|(prefix, runtime)| {
                let id = name.strip_prefix(prefix).filter(|id| is_id(id))?;
                let docker = path.starts_with("/docker/").then_some("docker");
                Some(Container { id: id.to_owned(), runtime: runtime.or(docker), name: None })
            })
        });
        Self {
            path: path.to_owned(),
            unit: unit.map(str::to_owned),
            container,
            pod: parts().find_map(pod),
            pod_name: None,
        }
    }

    /// That of a process by its `/proc/PID/cgroup`: of version 2, unless that is the root. Then systemd and runtimes use
    /// version 1.
    pub(crate) fn of_process(file: &str) -> Option<Self> {
        let paths = || file.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let unified = file.lines().find_map(|line| line.strip_prefix("0::"));
        let groups = unified.into_iter().chain(paths()).map(Self::of_path);
        let mut groups: Vec<_> = groups.collect();
        let best = groups
            .iter()
            .position(|group| group.container.is_some())
            .or_else(|| groups.iter().position(|group| group.path != "/"))
            .unwrap_or(0);
        (best < groups.len()).then(|| groups.swap_remove(best))
    }

    /// The one of version 2 with this number below its root, if it exists.
    pub(crate) fn by_id(root: &Path, id: u64) -> Option<Self> {
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            if fs::metadata(&folder).is_ok_and(|found| found.ino() == id) {
                let path = folder.strip_prefix(root).ok()?.to_string_lossy().into_owned();
                return Some(Self::of_path(&format!("/{path}")));
            }
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let is_folder =
                |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
            folders.extend(entries.filter(is_folder).map(|entry| entry.path()));
        }
        None
    }
}

/// The UID of the pod of which a part of the path is: `podUID`, or `kubepods-besteffort-podUID.slice` with underscores.
fn pod(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let uid = match name.strip_prefix("pod") {
        Some(uid) => uid,
        None => name.strip_prefix("kubepods")?.rsplit_once("-pod")?.1,
    };
    let uid = uid.replace('_', "-");
    let is_uid = uid.len() >= 32 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    is_uid.then_some(uid)
}

#[cfg(test)]
mod tests;
