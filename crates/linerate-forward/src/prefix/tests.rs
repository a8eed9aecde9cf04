use proptest::prelude::*;

use super::*;

fn prefix(text: &str) -> Prefix {
    text.parse().expect(text)
}

#[test]
fn a_prefix_holds_what_begins_as_it_does() {
    let net = prefix("192.0.2.0/24");
    assert!(net.contains("192.0.2.255".parse().unwrap()));
    assert!(!net.contains("192.0.3.0".parse().unwrap()));
    assert!(!net.contains("::ffff:192.0.2.1".parse().unwrap()));
    assert!(prefix("0.0.0.0/0").contains("255.1.2.3".parse().unwrap()));
    assert!(prefix("::/0").contains("2001:db8::1".parse().unwrap()));
    assert!(!prefix("2001:db8::/33").contains("2001:db8:8000::".parse().unwrap()));
    assert_eq!(prefix("192.0.2.1").length(), 32);
    assert_eq!(prefix("2001:db8::1/128").to_string(), "2001:db8::1");
}

#[test]
fn what_is_none_is_said() {
    let said = "192.0.2.1/24".parse::<Prefix>().unwrap_err();
    assert!(said.contains("write 192.0.2.0/24 for the prefix"), "{said}");
    let said = "192.0.2.0/33".parse::<Prefix>().unwrap_err();
    assert!(said.contains("32 bits"), "{said}");
    for bad in ["", "/", "x", "192.0.2/24", "192.0.2.0/", "192.0.2.0/+1", "::/129/1", "1.2.3.4/999"]
    {
        assert!(bad.parse::<Prefix>().is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn a_prefix_is_read_as_written(bits: u128, length in 0u8..=128, four: bool) {
        let address = if four { IpAddr::V4((bits as u32).into()) } else { IpAddr::V6(bits.into()) };
        let length = length.min(width(address));
        let made = Prefix::new(masked(address, length), length).unwrap();
        prop_assert!(made.contains(address));
        prop_assert_eq!(made.to_string().parse(), Ok(made));
    }
}
