use std::sync::Arc;

use linerate_bpf::process::Process as Record;

use super::*;
use crate::cgroup::ControlGroup;
use crate::process::Users;

#[test]
fn a_process_has_one_of_each_kind() {
    let id = "0123456789abcdef".repeat(4);
    let mut group = ControlGroup::of_path(&format!("/system.slice/web.service/{id}"));
    group.container.as_mut().unwrap().name = Some("shop".into());
    let record = Record { id: 7, name: "a-long-program-".into(), ..Record::default() };
    let process = Process::new(&record, b"", Some(Arc::new(group)), &Users::read());
    let has = |selection: Selection| selection.has(&process);
    let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    let none = Selection::default;
    assert!(has(none()) && none().is_empty());
    assert!(has(Selection { pids: vec![6, 7], ..none() }));
    assert!(!has(Selection { pids: vec![6], ..none() }));
    assert!(has(Selection { names: texts(&["a-long-program-name"]), ..none() }));
    assert!(!has(Selection { names: texts(&["a-long"]), ..none() }));
    assert!(has(Selection { containers: texts(&["01234567"]), ..none() }));
    assert!(has(Selection { containers: texts(&["shop"]), ..none() }));
    assert!(!has(Selection { containers: texts(&["1234", "sho"]), ..none() }));
    for unit in ["web", "web.service"] {
        assert!(has(Selection { units: texts(&[unit]), pids: vec![7], ..none() }));
        assert!(!has(Selection { units: texts(&[unit]), pids: vec![8], ..none() }));
    }
}
