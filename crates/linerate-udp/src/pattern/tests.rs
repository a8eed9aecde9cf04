use super::*;

#[test]
fn what_is_written_is_recognised_and_any_change_is_not() {
    for pattern in [PayloadPattern::Sequence, PayloadPattern::Time, PayloadPattern::Counted] {
        let mut payload = [7; 64];
        pattern.write(0x0102_0304_0506_0708, &mut payload);
        assert_eq!(pattern.check(&payload), Some(0x0102_0304_0506_0708));
        for at in (0..4).chain(MIN_LEN_WITH_TIME..64) {
            let mut other = payload;
            other[at] ^= 0x40;
            assert_eq!(pattern.check(&other), None, "{pattern:?} byte {at}");
        }
        assert_eq!(pattern.check(&payload[..11]), None);
        let mut short = [7; MIN_LEN - 1];
        pattern.write(1, &mut short);
        assert_eq!(short, [0; MIN_LEN - 1]);
        let mut least = vec![7; pattern.min_len()];
        pattern.write(9, &mut least);
        assert_eq!(pattern.check(&least), Some(9));
    }
    let mut untimed = [7; 64];
    PayloadPattern::Sequence.write(1, &mut untimed);
    assert_eq!(PayloadPattern::Time.check(&untimed), None);
}

#[test]
fn the_time_is_that_of_the_writing() {
    let mut payload = [0; 20];
    let before = monotonic_now();
    PayloadPattern::Time.write(1, &mut payload);
    let sent = send_time(&payload).unwrap();
    assert!(before <= sent && sent <= monotonic_now());
}
