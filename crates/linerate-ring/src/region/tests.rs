use super::*;

const MIB: usize = 1 << 20;

#[test]
fn pages_read_back_what_they_print() {
    for &pages in Pages::ALL {
        assert_eq!(pages.to_string().parse::<Pages>().unwrap(), pages);
    }
    let error = "large".parse::<Pages>().unwrap_err();
    assert!(error.contains("`large`") && error.contains("auto, hugetlb"), "{error}");
}

#[test]
fn small_pages_are_small_also_where_the_kernel_prefers_huge_ones() {
    let region = Region::new(8 * MIB + 1, Pages::Small, None).unwrap();
    let base = base_page_size();
    assert_eq!(region.len(), 8 * MIB + base);
    assert_eq!(
        (region.actual_pages().pages, region.actual_pages().page_size),
        (Pages::Small, base)
    );
    assert_eq!(region.actual_pages().huge_bytes, 0);
}

#[test]
fn a_region_is_zeroed_prefaulted_and_writable_to_its_last_byte() {
    let mut region = Region::new(3 * MIB, Pages::Auto, None).unwrap();
    assert!(region.as_mut_slice().iter().all(|byte| *byte == 0));
    let pages = region.len() / base_page_size();
    let mut resident = vec![0u8; pages];
    // SAFETY: `resident` has a byte for each page of the region.
    let answer =
        unsafe { libc::mincore(region.as_ptr().cast(), region.len(), resident.as_mut_ptr()) };
    assert_eq!(answer, 0);
    assert!(resident.iter().all(|page| page & 1 == 1));
    let last = region.len() - 1;
    region.as_mut_slice()[last] = 7;
    assert_eq!(region.as_mut_slice()[last], 7);
}

#[test]
fn transparent_pages_are_huge_or_the_error_says_why() {
    match Region::new(4 * MIB, Pages::Transparent, None) {
        Ok(region) => {
            assert_eq!(region.actual_pages().pages, Pages::Transparent);
            assert!(region.actual_pages().huge_bytes >= region.actual_pages().page_size);
            assert!(region.as_ptr().addr().is_multiple_of(region.actual_pages().page_size));
        }
        Err(error) => assert!(error.to_string().contains("thp pages: "), "{error}"),
    }
}

#[test]
fn two_regions_do_not_share_an_entry_in_smaps() {
    let regions: Vec<Region> = (0..4)
        .map(|_| Region::new(2 * MIB, Pages::Transparent, None))
        .filter_map(Result::ok)
        .collect();
    for region in &regions {
        assert!(region.actual_pages().huge_bytes <= region.len(), "{:?}", region.actual_pages());
    }
}

#[test]
fn more_huge_pages_than_there_is_memory_are_refused_with_the_command() {
    let error = Region::new(1 << 46, Pages::Hugetlb, None).unwrap_err();
    let Error::HugePages { needed, available, ref command, page_size } = error else {
        panic!("{error}");
    };
    assert_eq!(needed, (1 << 46) / page_size as u64);
    let total: u64 = command.rsplit(['=', ' ']).next().unwrap().parse().unwrap();
    let total = if command.starts_with("echo") {
        command.split(' ').nth(1).unwrap().parse().unwrap()
    } else {
        total
    };
    assert!(total >= needed - available, "{command}");
    assert!(error.to_string().contains(command.as_str()));
}

#[test]
fn auto_says_why_it_is_not_better() {
    let region = Region::new(2 * MIB, Pages::Auto, None).unwrap();
    let got = region.actual_pages();
    match got.pages {
        Pages::Hugetlb => assert!(got.refusals.is_empty()),
        Pages::Transparent => assert_eq!(got.refusals[0].pages, Pages::Hugetlb),
        _ => assert_eq!(got.refusals.len(), 2),
    }
    assert!(got.to_string().starts_with("2 MiB in "), "{got}");
}

#[test]
fn a_node_that_is_preferred_and_cannot_be_had_gives_way_and_says_so() {
    let region = Region::new(2 * MIB, Pages::Small, Some(0)).unwrap();
    // A kernel without NUMA refuses any node.
    assert!(
        region.actual_pages().elsewhere.is_none() || region.actual_pages().node.is_none(),
        "{}",
        region.actual_pages()
    );
    // To the kernel a node that is not there and one outside of the cpuset are the same.
    let region = Region::new(2 * MIB, Pages::Small, Some(900)).unwrap();
    let why = region.actual_pages().elsewhere.as_deref().expect("a reason");
    assert!(why.starts_with("not on NUMA node 900: the kernel refuses it"), "{why}");
    assert!(region.actual_pages().to_string().contains(why), "{}", region.actual_pages());
    assert_ne!(region.actual_pages().node, Some(900));
}

#[test]
fn no_bytes_make_no_region() {
    assert!(matches!(Region::new(0, Pages::Auto, None), Err(Error::Invalid(_))));
    assert!(matches!(Region::new(usize::MAX, Pages::Auto, None), Err(Error::Invalid(_))));
}
