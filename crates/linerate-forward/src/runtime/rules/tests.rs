use super::*;

#[test]
fn programs_that_cannot_be_listed_keep_all_sessions() {
    for kind in Kind::all() {
        assert_eq!(names_of(Some(&[]), kind), [""; 0]);
        let mut program = Program::default();
        names_of(None, kind).into_iter().for_each(|name| keep_all(&mut program, name));
        let [entry] = &program.entries[..] else { panic!("{program:?}") };
        assert_eq!((&entry.sessions, entry.action), (&Sessions::ALL, Action::Keep(0)));
    }
}

#[test]
fn an_exempt_interface_that_cannot_be_looked_up_exempts_all() {
    let exempt = vec![Selector::Interface("eth9".to_owned())];
    let policy = Policy { exempt, ..Policy::default() };
    let entries = |interfaces| {
        let mut program = Program::default();
        policy.prepend(&mut program, Kind::all()[0], interfaces);
        program.entries
    };
    assert_eq!(entries(Some(&[])), []);
    let all = entries(None);
    assert_eq!((all.len(), &all[0].sessions), (1, &Sessions::ALL));
}

#[test]
fn rules_that_are_only_numbered_anew_are_not_new() {
    let known = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
    let (a, b, c) = ("nftables inet t f handle 2", "nftables inet t f handle 30", "port 53");
    assert_eq!(newcomers(&known(&[]), &[a, b, c].into()), [(a, 2), (c, 1)]);
    assert_eq!(newcomers(&known(&[a]), &[b].into()), []);
    assert_eq!(newcomers(&known(&[a]), &[a, b].into()), [(b, 1)]);
    assert_eq!(newcomers(&known(&[a, b, c]), &[a].into()), []);
}
