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
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const POD: &str = "5f2c9c5e-0c1d-4b7a-9d8e-1a2b3c4d5e6f";

    /// What is found where only this file exists.
    fn found(cgroup: &str, file: &str, text: &str) -> ControlGroup {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        let mut group = ControlGroup::of_path(cgroup);
        add(&mut group, root.path());
        group
    }

    #[test]
    fn each_runtime_has_its_names() {
        let kubepods = format!("/kubepods/besteffort/pod{POD}/{ID}");
        let task = |root: &str, namespace: &str| {
            format!(
                "run/{root}containerd/io.containerd.runtime.v2.task/{namespace}/{ID}/config.json"
            )
        };
        let stored = format!("run/containers/storage/overlay-containers/{ID}/userdata/config.json");
        let cri = r#"{"annotations": {"io.kubernetes.cri.container-name": "web",
            "io.kubernetes.cri.sandbox-name": "shop-1", "io.kubernetes.cri.sandbox-namespace": "prod"}}"#;
        let crio = r#"{"annotations": {"io.kubernetes.container.name": "web",
            "io.kubernetes.pod.name": "shop-1", "io.kubernetes.pod.namespace": "prod"}}"#;
        let docker = format!(r#"{{"ID": "{ID}", "Name": "/web", "Config": {{"Labels": null}}}}"#);
        let docker_file = format!("var/lib/docker/containers/{ID}/config.v2.json");
        let pod = Some(("prod".to_owned(), "shop-1".to_owned()));
        let crio_group = format!("/kubepods.slice/crio-{ID}.scope");
        for (cgroup, file, text, runtime, pod) in [
            (&kubepods, task("", "k8s.io"), cri, Some("containerd"), &pod),
            (&kubepods, task("k3s/", "k8s.io"), cri, Some("containerd"), &pod),
            (
                &format!("/default/{ID}"),
                task("", "default"),
                r#"{"annotations": {"nerdctl/name": "web"}}"#,
                Some("containerd"),
                &None,
            ),
            (&crio_group, stored, crio, Some("cri-o"), &pod),
            (&format!("/docker/{ID}"), docker_file, &docker, Some("docker"), &None),
        ] {
            let group = found(cgroup, &file, text);
            let container = group.container.unwrap();
            assert_eq!(container.name.as_deref(), Some("web"), "{file}");
            assert_eq!((container.runtime, &group.pod_name), (runtime, pod), "{file}");
        }
    }

    #[test]
    fn a_name_that_is_not_proven_is_none() {
        let name = |file: &str, text: &str| {
            found(&format!("/docker/{ID}"), file, text).container.unwrap().name
        };
        let file = format!("var/lib/docker/containers/{ID}/config.v2.json");
        let other = ID.replace('0', "1");
        assert_eq!(name(&file, &format!(r#"{{"ID": "{other}", "Name": "/web"}}"#)), None);
        assert_eq!(name(&file, &format!(r#"{{"ID": "{ID}", "Name": "/a, user root"}}"#)), None);
        assert_eq!(name(&file, r#"{"ID": "#), None);
        assert_eq!(name("run/nothing", ""), None);
    }

    #[test]
    fn podman_and_the_kubelet_keep_names_elsewhere() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write(&format!("{STORAGE}/{ID}/userdata/config.json"), "{}");
        write(STORED, &format!(r#"[{{"id": "a"}}, {{"id": "{ID}", "names": ["web"]}}]"#));
        write(&format!("{PODS}/prod_shop-1_{POD}/web/0.log"), "");
        let mut podman = ControlGroup::of_path(&format!("/machine.slice/libpod-{ID}.scope"));
        add(&mut podman, root.path());
        assert_eq!(podman.container.unwrap().name.as_deref(), Some("web"));
        let mut pod = ControlGroup::of_path(&format!("/kubepods/pod{POD}"));
        add(&mut pod, root.path());
        assert_eq!(pod.pod_name, Some(("prod".to_owned(), "shop-1".to_owned())));
    }
}
