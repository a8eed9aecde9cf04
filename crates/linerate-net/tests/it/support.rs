//! Two hosts and a veth pair.

use linerate_net::ruleset::{Action, Field, Kind, Ruleset};
use linerate_testkit::{Namespace, Veth, VethOptions};

pub(crate) struct Cable {
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
    pub(crate) veth: Veth,
}

/// `a` in one namespace and `b` in another, up, with `10.1.0.1/24`, `fd01::1/64` and `...2`.
pub(crate) fn cable() -> Cable {
    let near = Namespace::create("net-near").unwrap();
    let far = Namespace::create("net-far").unwrap();
    let veth = Veth::create(&near, "a", &far, "b", VethOptions::default()).unwrap();
    for (end, host) in [(&veth.a, 1), (&veth.b, 2)] {
        end.add_address(format!("10.1.0.{host}").parse().unwrap(), 24).unwrap();
        end.add_address(format!("fd01::{host}").parse().unwrap(), 64).unwrap();
        // The kernel solicits neighbours from a link-local address (`ndisc_send_ns`).
        end.add_address(format!("fe80::{host}").parse().unwrap(), 64).unwrap();
    }
    Cable { near, far, veth }
}

/// What a program says in a namespace; it has to succeed.
pub(crate) fn stdout_of(host: &Namespace, command: &str) -> String {
    let output = try_stdout_of(host, command);
    output.unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// The same; the error output where it fails.
pub(crate) fn try_stdout_of(host: &Namespace, command: &str) -> Result<String, String> {
    let mut words = command.split_whitespace();
    let mut program = host.command(words.next().unwrap());
    let output = program.args(words).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The rule that keeps a session whose fields have these values.
pub(crate) fn keeper(ruleset: &Ruleset, kind: Kind, value: impl Fn(Field) -> u128) -> Option<&str> {
    const FIELDS: [Field; 8] = [
        Field::Input,
        Field::Output,
        Field::Source,
        Field::Destination,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Dscp,
        Field::Mark,
    ];
    let number = Kind::all().iter().position(|one| *one == kind).unwrap();
    let program = &ruleset.programs[number];
    let mut at = 0;
    while let Some(entry) = program.entries.get(at) {
        let is_in = |field| entry.sessions.range(field).contains(&value(field));
        match entry.action {
            _ if !FIELDS.into_iter().all(is_in) => at += 1,
            Action::Skip(to) => at = to,
            Action::Keep(rule) => return Some(&program.rules[rule]),
        }
    }
    None
}
