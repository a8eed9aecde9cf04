use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const POD: &str = "5f2c9c5e-0c1d-4b7a-9d8e-1a2b3c4d5e6f";

#[test]
fn a_path_tells_unit_container_and_pod() {
    let pod_slice = POD.replace('-', "_");
    let containerd = format!(
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod_slice}.slice/cri-containerd-{ID}.scope"
    );
    let crio = format!("/kubepods.slice/kubepods-pod{pod_slice}.slice/crio-{ID}.scope");
    let rootless = format!(
        "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container"
    );
    for (path, runtime, has_pod) in [
        (format!("/docker/{ID}"), Some("docker"), false),
        (format!("/system.slice/docker-{ID}.scope"), Some("docker"), false),
        (format!("/machine.slice/libpod-{ID}.scope/container"), Some("podman"), false),
        (rootless, Some("podman"), false),
        (format!("/libpod_parent/libpod-{ID}"), Some("podman"), false),
        (containerd, Some("containerd"), true),
        (crio, Some("cri-o"), true),
        (format!("/kubepods/besteffort/pod{POD}/{ID}"), None, true),
        (format!("/default/{ID}"), None, false),
    ] {
        let group = ControlGroup::of_path(&path);
        let container = group.container.unwrap_or_else(|| panic!("{path}"));
        assert_eq!((container.id.as_str(), container.runtime), (ID, runtime), "{path}");
        assert_eq!(group.pod.as_deref(), has_pod.then_some(POD), "{path}");
    }
    for path in [
        format!("/machine.slice/libpod-conmon-{ID}.scope"),
        format!("/system.slice/crio-conmon-{ID}.scope"),
        "/system.slice/docker.service".to_owned(),
        "/".to_owned(),
    ] {
        assert_eq!(ControlGroup::of_path(&path).container, None, "{path}");
    }
    let unit = |path: &str| ControlGroup::of_path(path).unit;
    assert_eq!(unit("/system.slice/a@b.service/sub").as_deref(), Some("a@b.service"));
    assert_eq!(unit("/user.slice/session-1.scope").as_deref(), Some("session-1.scope"));
    assert_eq!(unit("/a"), None);
}

#[test]
fn a_process_of_both_hierarchies_has_the_group_with_more_to_say() {
    let of = |file: &str| ControlGroup::of_process(file).unwrap().path;
    assert_eq!(of("0::/a.service\n"), "/a.service");
    assert_eq!(of("9:name=systemd:/a.service\n1:cpu:/\n0::/\n"), "/a.service");
    let docker = format!("/docker/{ID}");
    assert_eq!(of(&format!("4:memory:{docker}\n0::/a.service\n")), docker);
    assert_eq!(of("1:cpu:/\n0::/\n"), "/");
    assert_eq!(ControlGroup::of_process(""), None);
}
