use super::*;

#[test]
fn a_thread_stays_where_it_is_told_to_and_those_it_starts_too() {
    let before = allowed().unwrap();
    let last = *before.last().unwrap();
    std::thread::spawn(move || {
        pin(last).unwrap();
        assert_eq!(allowed().unwrap(), [last]);
        assert_eq!(std::thread::spawn(|| allowed().unwrap()).join().unwrap(), [last]);
        assert!(pin_to_any(&[usize::MAX]).is_err());
    })
    .join()
    .unwrap();
    let all = before.clone();
    let pinned = std::thread::spawn(move || pin_to_any(&all).and_then(|()| allowed()));
    assert_eq!(pinned.join().unwrap().unwrap(), before);
    check_affinity(&before).unwrap();
    assert_eq!(check_affinity(&[last, usize::MAX, last]).unwrap_err().0, usize::MAX);
    assert_eq!(allowed().unwrap(), before);
}

#[test]
fn lists_of_the_kernel_are_read() {
    assert_eq!(parse_list("0-2,8\n"), [0, 1, 2, 8]);
    assert_eq!(parse_list("5"), [5]);
    assert_eq!(parse_list("\n"), [] as [usize; 0]);
    let online = online();
    assert!(allowed().unwrap().iter().all(|cpu| online.contains(cpu)));
    assert_eq!(node(usize::MAX), None);
}

#[test]
fn cpus_and_threads_that_there_are_not_are_refused() {
    for none in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
        assert_eq!(pin(none).unwrap_err().raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    }
    for none in [0, i32::MAX.cast_unsigned(), u32::MAX] {
        let refused = pin_thread(none, 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::SRCH.raw_os_error()));
    }
}
