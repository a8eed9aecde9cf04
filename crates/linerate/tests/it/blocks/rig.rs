//! A machine for the blocks of a page: its own network with `eth0`, `eth1` and `eth2`, its own processes, an installed
//! Linerate, and files that nobody else sees.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::LINERATE;

/// What `make install install-service` puts on a machine, once for all pages.
static INSTALLED: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join("built");
    fs::create_dir(&built).unwrap();
    symlink(LINERATE, built.join("linerate")).unwrap();
    let capture = env!("CARGO_BIN_EXE_linerate-capture");
    symlink(capture, built.join("linerate-capture")).unwrap();
    let tests = std::env::current_exe().unwrap();
    for file in ["linerate-lab", "liblinerate_pcap.so", "liblinerate_sockets.so"] {
        let mut places = tests.ancestors().skip(1).take(2).map(|folder| folder.join(file));
        let found = places.find(|path| path.is_file());
        symlink(
            found.unwrap_or_else(|| panic!("{file} is not built: make test builds it")),
            built.join(file),
        )
        .unwrap();
    }
    let installed = Command::new("scripts/install")
        .args(["install", "command", "service"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .env("DESTDIR", folder.path().join("root"))
        .env("built", &built)
        .output()
        .unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    folder
});

/// Prepares the namespaces, then becomes the shell of the reader. `$1` is the rig's folder, `$2` what is installed.
const SETUP: &str = r#"
set -e
rig=$1 installed=$2
mount --make-rprivate /
mount -t tmpfs rig "$rig"
for folder in etc usr var; do
    mkdir -p "$rig/$folder/upper" "$rig/$folder/work" "$installed/$folder"
    mount -t overlay rig -o "lowerdir=$installed/$folder:/$folder,upperdir=$rig/$folder/upper,workdir=$rig/$folder/work" "/$folder"
done
mount -t tmpfs rig /run
mount -t sysfs sysfs /sys
mount -t bpf bpf /sys/fs/bpf
mkdir "$rig/home" "$rig/bin" /run/lock
# The pages name the folders of packages.
[ -e /usr/share/linerate ] || ln -s /usr/local/share/linerate /usr/share/linerate
cp "$3"/* "$rig/bin/"
# A reader ends a program that does not end by itself with Ctrl-C. One in the background has /dev/null as its input.
for name in linerate tshark tcpdump; do
    real=$(PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin command -v $name) || continue
    sed "s|@REAL@|$real|" "$rig/bin/until-interrupted" >"$rig/bin/$name"
    chmod +x "$rig/bin/$name"
done
ip link set lo up
ip netns add peer
for number in 0 1 2; do
    ip link add eth$number type veth peer name end$number netns peer
    ip link set eth$number up
    ip -n peer link set end$number up
done
ip addr add 192.0.2.1/24 dev eth0
ip addr add 10.0.0.2/24 dev eth0
ip -n peer addr add 192.0.2.2/24 dev end0
sysctl -qw net.ipv4.ip_forward=1
nsenter --net=/run/netns/peer ping -q -i 0.2 192.0.2.1 >/dev/null 2>&1 &
cd "$rig/home"
export HOME=$rig/home PATH=$rig/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_OFFLINE=1
exec bash -e -o pipefail "$4"
"#;

const UNTIL_INTERRUPTED: &str = r#"#!/bin/bash
if [ "$(readlink /proc/self/fd/0)" = /dev/null ]; then exec @REAL@ "$@"; fi
# To most pages' receivers nobody sends.
case " $* " in ' receive '*) limit=3 ;; *' -c '* | *' --count '* | *' -r '* | *' --for '* | *' -a '* | *' -D '* | ' run '*) limit=60 ;; *) limit=3 ;; esac
timeout --preserve-status --foreground -s INT $limit @REAL@ "$@"
status=$?
# The doctor tells by its status what it found.
case "$1 $status" in 'doctor 3' | 'doctor 4') exit 0 ;; esac
exit $status
"#;

/// sudo, for root.
const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

/// systemctl, where no service manager runs: units are enabled, and not started.
const SYSTEMCTL: &str = "#!/bin/bash\nexec /usr/bin/systemctl \"${@/--now/--quiet}\"\n";

pub(super) fn is_installed(program: &str) -> bool {
    let folders = ["/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    folders.iter().any(|folder| Path::new(folder).join(program).is_file())
}

/// The folders of a rig.
pub(super) struct Rig {
    folder: tempfile::TempDir,
}

impl Rig {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(folder.path().join("rig")).unwrap();
        fs::create_dir(&bin).unwrap();
        for (name, text) in
            [("sudo", SUDO), ("systemctl", SYSTEMCTL), ("until-interrupted", UNTIL_INTERRUPTED)]
        {
            fs::write(bin.join(name), text).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a script, which has to succeed. With the first process of its namespace all others end.
    pub(super) fn run(&self, page: &str, script: &str) {
        fs::write(self.path("setup"), SETUP).unwrap();
        fs::write(self.path("script"), script).unwrap();
        let printed = fs::File::create(self.path("printed")).unwrap();
        let status = Command::new("timeout")
            .args(["--kill-after=5", "300"])
            .args([
                "unshare",
                "--net",
                "--mount",
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
            ])
            .args(["bash", "-e"])
            .args([self.path("setup"), self.path("rig")])
            .arg(INSTALLED.path().join("root"))
            .args([self.path("bin"), self.path("script")])
            .stdin(Stdio::piped())
            .stdout(printed.try_clone().unwrap())
            .stderr(printed)
            .status()
            .unwrap();
        let printed = fs::read(self.path("printed")).unwrap();
        let printed = String::from_utf8_lossy(&printed);
        assert!(status.success(), "{page}: {status}\n{printed}");
    }
}
