use super::*;

#[test]
fn queues_are_known_by_the_names_that_drivers_give() {
    let known = [
        ("virtio2-input.0", 0),
        ("eth0-TxRx-3", 3),
        ("ice-enp1s0f0np0-TxRx-12", 12),
        ("ens5-Tx-Rx-7", 7),
        ("eth1-rx-1", 1),
        ("eth2-rxtx-2", 2),
        ("mlx5_comp31@pci:0000:01:00.0", 31),
    ];
    for (name, number) in known {
        assert_eq!(queue(name), Some(number), "{name}");
    }
    let other = ["virtio2-output.0", "virtio2-config", "eth1-tx-1", "eth0", "mlx5_async0@pci:0000"];
    for name in other {
        assert_eq!(queue(name), None, "{name}");
    }
}

#[test]
fn handlers_are_the_last_words_of_their_lines() {
    let text = "           CPU0       CPU1\n \
        38:          0      19207 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n\
        LOC:    9206749   11303478   Local timer interrupts\n";
    assert_eq!(names(text).collect::<Vec<_>>(), [(38, "virtio2-input.0")]);
}

#[test]
fn a_virtual_interface_has_none() {
    assert!(of_queues("lo").is_empty());
}

#[test]
fn interrupts_have_cpus() {
    // Those of this machine, whatever they are.
    let text = fs::read_to_string("/proc/interrupts").unwrap();
    let online = crate::cpu::online();
    for (number, _) in names(&text) {
        let cpus = affinity(number).unwrap_or_default();
        assert!(cpus.iter().all(|cpu| online.contains(cpu)), "{number}: {cpus:?}");
    }
}
