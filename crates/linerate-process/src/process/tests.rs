use super::*;
use crate::cgroup::Container;

#[test]
fn what_is_known_is_in_one_line() {
    let container =
        Container { id: "ab12".into(), runtime: Some("docker"), name: Some("web".into()) };
    let group = ControlGroup {
        container: Some(container),
        pod: Some("5f2c".into()),
        pod_name: Some(("prod".into(), "shop-1".into())),
        unit: Some("a.scope".into()),
        ..ControlGroup::default()
    };
    let record = Record { id: u32::MAX, uid: 7, name: "a\nb".into(), ..Record::default() };
    let users = Users(vec![(7, "seven".into())]);
    let process = |group| Process::new(&record, b"a b\0c\x1b\0", group, &users).to_string();
    assert_eq!(process(None), "a b (4294967295), command `a b c `, user seven");
    let contained = process(Some(Arc::new(group)));
    let ends = ", UID 7, container docker web ab12, pod prod/shop-1 5f2c, unit a.scope";
    assert!(contained.ends_with(ends), "{contained}");
}

#[test]
fn files_of_a_process_are_not_those_of_another_one_with_its_number() {
    let id = std::process::id();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let ticks: u64 = stat.rsplit_once(')').unwrap().1.split(' ').nth(20).unwrap().parse().unwrap();
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    let record = |ticks: u64| Record { id, start: ticks * tick + 5, ..Record::default() };
    assert!(read(&record(ticks), "cmdline").is_some_and(|bytes| !bytes.is_empty()));
    assert_eq!(read(&record(ticks + 1), "cmdline"), None);
}
