//! Reserved huge pages, which a test has to reserve. They are the machine's, so the tests of this
//! file take turns, and put the number of pages back.

use std::fs;

use linerate_ring::Error;
use linerate_ring::region::{Pages, Region};
use linerate_testkit::{Exclusive, exclusive, root_or_skip, skip};

const NUMBER: &str = "/proc/sys/vm/nr_hugepages";

/// Pages of 1 GiB.
const GIGANTIC: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";

/// Some huge pages, reserved until dropped.
struct Reserved {
    before: u64,
    now: u64,
    _exclusive: Exclusive,
}

impl Reserved {
    /// Sees to it that `free` pages are free; `None` when this machine cannot.
    fn new(free: u64) -> Option<Self> {
        let exclusive = exclusive();
        let before = number()?;
        let available = count("free_hugepages")?.saturating_sub(count("resv_hugepages")?);
        let now = before + free.saturating_sub(available);
        fs::write(NUMBER, now.to_string()).ok()?;
        let reserved = Self { before, now, _exclusive: exclusive };
        (number()? >= now).then_some(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // Others may have reserved more meanwhile.
        let more = number().unwrap_or(self.now).saturating_sub(self.now);
        fs::write(NUMBER, (self.before + more).to_string()).expect("put back");
    }
}

fn number() -> Option<u64> {
    fs::read_to_string(NUMBER).ok()?.trim().parse().ok()
}

fn count(file: &str) -> Option<u64> {
    let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{file}");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[test]
fn reserved_huge_pages_are_what_the_region_gets() {
    root_or_skip!();
    let Some(_reserved) = Reserved::new(8) else {
        skip!("cannot reserve huge pages");
    };
    for pages in [Pages::Hugetlb, Pages::Auto] {
        let mut region = Region::new(3 << 20, pages, Some(0)).unwrap();
        let got = region.actual_pages().clone();
        assert_eq!((got.pages, got.page_size), (Pages::Hugetlb, 2 << 20));
        assert_eq!((region.len(), got.huge_bytes), (4 << 20, 4 << 20));
        assert!(got.refusals.is_empty());
        assert!(region.as_ptr().addr().is_multiple_of(2 << 20));
        region.as_mut_slice().fill(1);
        assert_eq!(got.node, Some(0));
        assert_eq!(got.to_string(), "4 MiB in hugetlb pages of 2 MiB, node 0");
    }
}

#[test]
fn a_page_of_one_gibibyte_is_taken_where_one_is_reserved() {
    root_or_skip!();
    let read = || fs::read_to_string(GIGANTIC).ok()?.trim().parse::<u64>().ok();
    let Some(before) = read() else {
        skip!("this machine has no pages of 1 GiB");
    };
    let put_back = || fs::write(GIGANTIC, before.to_string()).expect("put back");
    fs::write(GIGANTIC, (before + 1).to_string()).expect("reserved");
    if read() != Some(before + 1) {
        put_back();
        skip!("no contiguous GiB is free");
    }
    let got = [Pages::HugetlbGigantic, Pages::Auto]
        .map(|pages| Region::new(1 << 30, pages, None).map(|got| got.actual_pages().clone()));
    put_back();
    for got in got {
        let got = got.expect("a region");
        assert_eq!((got.pages, got.page_size), (Pages::HugetlbGigantic, 1 << 30));
    }
}

#[test]
fn the_command_in_the_error_reserves_enough() {
    root_or_skip!();
    let Some(mut reserved) = Reserved::new(2) else {
        return linerate_testkit::print_skipped(
            "the_command_in_the_error",
            "cannot reserve huge pages",
        );
    };
    // Others may have pages free, and take or give some meanwhile.
    let more = count("free_hugepages").unwrap() + 64;
    let want = |pages| Region::new((more as usize) << 21, pages, None);
    let error = want(Pages::Hugetlb).unwrap_err();
    let Error::HugePages { command, needed, .. } = &error else { panic!("{error}") };
    assert_eq!(*needed, more);
    // Auto takes the next best, and repeats the command.
    let second = want(Pages::Auto).unwrap();
    assert_ne!(second.actual_pages().pages, Pages::Hugetlb);
    assert!(second.actual_pages().to_string().contains(command), "{}", second.actual_pages());
    let before = number().unwrap();
    let output = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    let after = number().unwrap();
    reserved.now += after - before;
    let asked: u64 = command.rsplit_once('=').expect("a number").1.parse().expect("a number");
    if after < asked {
        // Free memory lies in pieces: the kernel gave what it found, and the command was right.
        skip!(&format!("the kernel found {after} of {asked} huge pages"));
    }
    assert_eq!(want(Pages::Hugetlb).unwrap().actual_pages().pages, Pages::Hugetlb);
}

#[test]
fn pages_promised_to_one_region_are_not_given_to_another() {
    root_or_skip!();
    let Some(_reserved) = Reserved::new(4) else {
        skip!("cannot reserve huge pages");
    };
    let free = count("free_hugepages").unwrap() - count("resv_hugepages").unwrap();
    let all = Region::new((free as usize) << 21, Pages::Hugetlb, None).unwrap();
    let error = Region::new(8 << 20, Pages::Hugetlb, None).unwrap_err();
    assert!(matches!(error, Error::HugePages { .. }), "{error}");
    drop(all);
    Region::new(8 << 20, Pages::Hugetlb, None).unwrap();
}
