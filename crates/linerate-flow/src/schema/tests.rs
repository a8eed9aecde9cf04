use std::collections::HashSet;

use super::*;

#[test]
fn names_and_elements_are_unique_and_reverse_names_say_so() {
    let names: HashSet<_> = FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(names.len(), FIELDS.len());
    let elements: Vec<_> = FIELDS.iter().filter_map(|field| field.element).collect();
    let distinct: HashSet<_> =
        elements.iter().map(|element| (element.enterprise, element.id)).collect();
    assert_eq!(distinct.len(), elements.len());
    for one in FIELDS.iter().filter(|one| one.element.is_some_and(|e| e.enterprise == REVERSE_PEN))
    {
        let mut forward = one.name.strip_prefix("reverse").expect(one.name).to_owned();
        forward[..1].make_ascii_lowercase();
        let forward = FIELDS.iter().find(|field| field.name == forward).expect(one.name);
        assert_eq!(forward.element.map(|e| e.id), one.element.map(|e| e.id), "{}", one.name);
        assert_eq!(forward.kind, one.kind, "{}", one.name);
    }
}

#[test]
fn a_field_that_must_be_there_is_there() {
    let record = FlowRecord::default();
    for field in FIELDS.iter().filter(|field| !field.nullable) {
        assert!((field.value)(&record).is_some(), "{}", field.name);
    }
}

#[test]
fn the_schema_of_files_has_the_columns_that_were_asked_for() {
    for groups in [vec![], vec![Group::Mac, Group::History], Group::ALL.to_vec()] {
        let schema = parquet(groups.iter().copied().collect());
        let names: Vec<_> = schema.get_fields().iter().map(|column| column.name()).collect();
        let is_there = |field: &&Field| field.group.is_none_or(|one| groups.contains(&one));
        let expected: Vec<_> = FIELDS.iter().filter(is_there).map(|field| field.name).collect();
        assert_eq!(names, expected);
    }
}
