//! Names of containers and pods: what their runtimes keep in files about them, under the id of the container.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cgroup::ControlGroup;

/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Entries of a folder that are looked at.
const MAX_ENTRIES: usize = 4096;

/// The longest name: that of a pod (RFC 1123).
const MAX_NAME: usize = 253;

/// Where containerd, also that of k3s, has the bundles of its namespaces: `NAMESPACE/ID/config.json`.
const CONTAINERD: [&str; 2] = [
    "run/containerd/io.containerd.runtime.v2.task",
    "run/k3s/containerd/io.containerd.runtime.v2.task",
];

/// The same for CRI-O and Podman: `ID/userdata/config.json`.
const STORAGE: &str = "run/containers/storage/overlay-containers";

/// All containers of CRI-O and Podman.
const STORED: &str = "var/lib/containers/storage/overlay-containers/containers.json";

/// `ID/config.v2.json`.
const DOCKER: &str = "var/lib/docker/containers";

/// The kubelet's folders of logs: `NAMESPACE_NAME_UID`.
const PODS: &str = "var/log/pods";

/// `config.json` of a bundle (OCI runtime specification).
#[derive(Deserialize)]
struct Bundle {
    #[serde(default)]
    annotations: HashMap<String, String>,
}

#[derive(Deserialize)]
struct DockerContainer {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Config", default)]
    config: DockerConfig,
}

#[derive(Default, Deserialize)]
struct DockerConfig {
    #[serde(rename = "Labels", default)]
    labels: Option<HashMap<String, String>>,
}

#[derive(Deserialize)]
struct StoredContainer {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
}

/// Adds what the files below `root` say of a container and its pod. They are root's, and a container cannot write them.
pub(crate) fn add(group: &mut ControlGroup, root: &Path) {
    if let Some(container) = &mut group.container {
        let found = of_container(root, &container.id);
        container.name = found.container.filter(|name| is_name(name));
        container.runtime = container.runtime.or(found.runtime);
        group.pod_name = found.pod.filter(|(namespace, name)| is_name(namespace) && is_name(name));
    }
    if let (Some(uid), None) = (&group.pod, &group.pod_name) {
        group.pod_name = of_pod(root, uid);
    }
}

#[derive(Default)]
struct Found {
    runtime: Option<&'static str>,
    container: Option<String>,
    pod: Option<(String, String)>,
}

impl Found {
    /// By the annotations or labels of containerd's CRI, nerdctl, CRI-O, and the kubelet.
    fn annotated(runtime: Option<&'static str>, mut all: HashMap<String, String>) -> Self {
        let mut first = |keys: &[&str]| keys.iter().find_map(|key| all.remove(*key));
        let container = first(&[
            "io.kubernetes.cri.container-name",
            "io.kubernetes.container.name",
            "nerdctl/name",
        ]);
        let namespace =
            first(&["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"]);
        let pod = first(&["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"]);
        Self { runtime, container, pod: namespace.zip(pod) }
    }
}

fn of_container(root: &Path, id: &str) -> Found {
    for folder in CONTAINERD.iter().flat_map(|folder| entries(&root.join(folder))) {
        // Docker's containers are in its namespace `moby`, without their names.
        if let Some(bundle) = parse::<Bundle>(&folder.join(id).join("config.json"))
            && folder.file_name() != Some("moby".as_ref())
        {
            return Found::annotated(Some("containerd"), bundle.annotations);
        }
    }
    if let Some(docker) =
        parse::<DockerContainer>(&root.join(DOCKER).join(id).join("config.v2.json"))
        && docker.id == id
    {
        let found = Found::annotated(Some("docker"), docker.config.labels.unwrap_or_default());
        let name = docker.name.trim_start_matches('/').to_owned();
        return Found { container: found.container.or(Some(name)), ..found };
    }
    let bundle = parse::<Bundle>(&root.join(STORAGE).join(id).join("userdata/config.json"));
    let Some(bundle) = bundle else { return Found::default() };
    let mut found = Found::annotated(None, bundle.annotations);
    if found.container.is_none() {
        let all: Vec<StoredContainer> = parse(&root.join(STORED)).unwrap_or_default();
        let names = all.into_iter().find(|one| one.id == id).and_then(|one| one.names);
        found.container = names.and_then(|names| names.into_iter().next());
    }
    found
}

fn of_pod(root: &Path, uid: &str) -> Option<(String, String)> {
    entries(&root.join(PODS)).iter().find_map(|folder| {
        let mut parts = folder.file_name()?.to_str()?.split('_');
        let [namespace, name, id] = [parts.next()?, parts.next()?, parts.next()?];
        let is_of = id == uid && parts.next().is_none() && is_name(namespace) && is_name(name);
        is_of.then(|| (namespace.to_owned(), name.to_owned()))
    })
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.take(MAX_ENTRIES).map(|entry| entry.path()).collect()
}

fn parse<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(MAX_FILE).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The letters that runtimes and the kubelet allow.
fn is_name(name: &str) -> bool {
    let is_of = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_of)
}

#[cfg(test)]
mod tests;
