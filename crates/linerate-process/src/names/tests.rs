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
        format!("run/{root}containerd/io.containerd.runtime.v2.task/{namespace}/{ID}/config.json")
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
