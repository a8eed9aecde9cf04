use super::*;

#[test]
fn sizes_have_bounds() {
    assert_eq!((batch("1"), batch("1048576")), (Ok(1), Ok(1 << 20)));
    assert_eq!(message_size("65507"), Ok(65_507));
    for wrong in ["0", "1048577", "-1", "x", ""] {
        assert!(batch(wrong).unwrap_err().contains("1 to 1048576"), "{wrong}");
    }
    assert!(message_size("65508").unwrap_err().contains("1 to 65507"));
}

#[test]
fn bytes_have_binary_units_and_bounds() {
    assert_eq!((buffer("8M"), buffer("4096")), (Ok(8 << 20), Ok(4096)));
    assert_eq!((ring("256k"), ring("1G")), (Ok(1 << 18), Ok(1 << 30)));
    for wrong in ["0", "3", "3G", "1T", "M", "", "-1", "99999999999999999999G"] {
        assert!(ring(wrong).unwrap_err().contains("from 262144 to 1073741824"), "{wrong}");
    }
    assert!(buffer("1G").is_err());
}

#[test]
fn a_port_is_shared_by_flow_or_by_a_number_of_receivers() {
    assert_eq!(steering("flow"), Ok(Reuseport::Flow));
    assert_eq!(steering("cpu:4"), Ok(Reuseport::Cpu { sockets: 4 }));
    assert_eq!(steering("spread:2"), Ok(Reuseport::Spread { sockets: 2 }));
    for wrong in ["", "cpu", "cpu:0", "spread:-1", "flow:2"] {
        assert!(steering(wrong).unwrap_err().contains("spread:N"), "{wrong}");
    }
}
