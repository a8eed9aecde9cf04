use linerate_testkit::root_or_skip;

use super::*;

#[test]
fn a_batch_is_there_once_it_is_committed() {
    root_or_skip!();
    let map = create_mappable_array("checkpoint_test", 8 * ENTRY_WORDS as u32, 3).unwrap();
    let checkpoints = Checkpoints(MappedArray::new(map.as_fd()).unwrap());
    let checkpoint = |packets| Checkpoint { created: 7, packets, bytes: 100 * packets, since: 9 };
    checkpoints.stage(0, &checkpoint(1), 1);
    checkpoints.stage(1, &checkpoint(2), 1);
    assert_eq!(checkpoints.load(), [Checkpoint::default(); 2]);
    checkpoints.commit(1);
    assert_eq!(
        (checkpoints.committed(), checkpoints.load()),
        (1, vec![checkpoint(1), checkpoint(2)])
    );
    checkpoints.stage(1, &checkpoint(3), 2);
    // Staged again, because the first attempt to write the batch failed.
    checkpoints.stage(1, &checkpoint(4), 2);
    assert_eq!(checkpoints.load(), [checkpoint(1), checkpoint(2)]);
    checkpoints.commit(2);
    assert_eq!(checkpoints.load(), [checkpoint(1), checkpoint(4)]);
    // A daemon that was killed has staged this one. The next one's batch has the same number.
    checkpoints.stage(0, &checkpoint(9), 3);
    checkpoints.discard_staged();
    checkpoints.stage(1, &checkpoint(5), 3);
    checkpoints.commit(3);
    assert_eq!(checkpoints.load(), [checkpoint(1), checkpoint(5)]);
    checkpoints.freed(1);
    assert_eq!(checkpoints.load(), [checkpoint(1), Checkpoint::default()]);
    checkpoints.clear();
    assert_eq!((checkpoints.committed(), checkpoints.load()), (3, vec![Checkpoint::default(); 2]));
}
