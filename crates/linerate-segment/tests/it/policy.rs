//! The switches of an interface, as text and as limits.

use linerate_segment::segment::{Options, Segments, Split};
use linerate_segment::{Error, Policy};
use linerate_wire::ip::Protocol;

#[test]
fn text_gives_what_differs_from_the_default() {
    let policy: Policy = " udp=off, max_burst=32768,".parse().unwrap();
    assert_eq!(policy, Policy { udp: false, max_burst: 32_768, ..Policy::DEFAULT });
    assert_eq!("".parse::<Policy>(), Ok(Policy::default()));
    assert_eq!(policy.to_string().parse(), Ok(policy));
}

#[test]
fn wrong_text_is_refused() {
    for text in ["tcp", "tcp=maybe", "max_burst=-1", "max_burst=4294967296", "burst=1"] {
        assert!(text.parse::<Policy>().is_err(), "{text}");
    }
}

#[test]
fn an_interface_switched_off_splits_nothing() {
    let on = Policy { udp: false, ..Policy::DEFAULT };
    let off = Policy { enabled: false, ..Policy::DEFAULT };
    let allowed = |policy: Policy| {
        [Protocol::TCP, Protocol::UDP, Protocol::ICMP].map(|protocol| policy.allows(protocol))
    };
    assert_eq!(allowed(Policy::DEFAULT), [true; 3]);
    assert_eq!(allowed(on), [true, false, true]);
    assert_eq!(allowed(off), [false; 3]);
}

#[test]
fn limits_reach_the_segmenter() {
    let mut packet = [0; 40 + 3000];
    packet[..4].copy_from_slice(&[0x45, 0, 0x0b, 0xe0]);
    packet[9] = 6;
    packet[32] = 0x50;
    let options = Options {
        link: linerate_segment::segment::LinkType::Ip,
        ..Options::new(Split::Tcp { mss: 1000 })
    };
    let with = |text: &str| {
        let policy: Policy = text.parse().unwrap();
        Segments::new(&packet, &policy.limit(options)).map(|segments| segments.len())
    };
    assert_eq!(with(""), Ok(3));
    assert_eq!(with("max_burst=3039"), Err(Error::BurstTooLong { len: 3040, max: 3039 }));
    assert_eq!(with("max_segments=2"), Err(Error::TooManySegments { count: 3, max: 2 }));
}

#[cfg(feature = "serde")]
#[test]
fn a_configuration_file_gives_what_differs_from_the_default() {
    let policy: Policy = toml::from_str("tcp = false\nmax_segments = 128").unwrap();
    assert_eq!(policy, Policy { tcp: false, max_segments: 128, ..Policy::DEFAULT });
    assert!(toml::from_str::<Policy>("tpc = false").is_err());
    assert_eq!(toml::from_str(&toml::to_string(&policy).unwrap()), Ok(policy));
}
