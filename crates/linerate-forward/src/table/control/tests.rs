use linerate_testkit::root_or_skip;

use super::*;
use crate::runtime::program::{Options, Programs};

#[test]
fn what_is_written_is_what_the_programs_were_told() {
    root_or_skip!();
    let options = Options { max_sessions: 1024, admission: 3, ..Options::default() };
    let programs = Programs::load(&options).unwrap();
    let control = Control::open(&programs.maps).unwrap();
    assert_eq!((control.generation(), control.admission(), control.abi()), (1, 3, layout::ABI));
    assert_eq!(control.heartbeat(), 0);
    let jiffies = programs.heartbeat().unwrap();
    assert_eq!(control.heartbeat(), jiffies);
    control.fail_open();
    assert_eq!(control.heartbeat(), 0);
    let clock = Clock::read(jiffies);
    control.set_heartbeat_timeout(Duration::from_secs(3), &clock);
    control.set_revalidate_after(Duration::from_secs(60), &clock);
    let hz = clock.hz();
    assert_eq!(
        (control.heartbeat_timeout(), control.revalidate_after()),
        (3 * u64::from(hz), 60 * hz)
    );
}

#[test]
fn route_generations_that_come_again_are_of_another_generation() {
    root_or_skip!();
    let programs = Programs::load(&Options { max_sessions: 1024, ..Options::default() }).unwrap();
    let control = Control::open(&programs.maps).unwrap();
    let routes = || control.atomic_u32(at::ROUTE_GENERATION).load(SeqCst);
    let marked = || control.atomic_u32(at::ROUTE_GENERATION_MARKED).load(SeqCst);
    control.reroute();
    assert_eq!((routes(), marked(), control.generation()), (1, 1, 1));
    // Faster than metadata may take it.
    (1..0xffff).for_each(|_| control.reroute());
    assert_eq!((routes(), control.generation()), (0xffff, 1));
    assert!(marked() < 0xffff);
    std::thread::sleep(MARK_INTERVAL);
    control.settle_routes();
    assert_eq!(marked(), 0xffff);
    control.reroute();
    assert_eq!((routes(), marked(), control.generation()), (0, 0, 2));
}

#[test]
fn a_generation_is_never_that_of_an_ended_session() {
    root_or_skip!();
    let programs = Programs::load(&Options { max_sessions: 1024, ..Options::default() }).unwrap();
    let control = Control::open(&programs.maps).unwrap();
    assert_eq!(
        (control.bump_generation(), control.bump_generation(), control.generation()),
        (2, 3, 3)
    );
    control.atomic_u32(at::GENERATION).store(GENERATION_CLOSED - 2, SeqCst);
    assert_eq!(
        (control.bump_generation(), control.bump_generation(), control.bump_generation()),
        (GENERATION_CLOSED - 1, 1, 2)
    );
    // From several threads each bump gives another.
    let got: Vec<u32> = std::thread::scope(|scope| {
        let bump = || (0..500).map(|_| control.bump_generation()).collect::<Vec<_>>();
        let threads = [(); 4].map(|()| scope.spawn(bump));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut sorted = got;
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(3..2003));
}
