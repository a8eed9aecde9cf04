//! The evaluation of chains: which sessions have a rule that has to see each of their packets.
//!
//! A rule set is evaluated once for each kind of session ([`Kind`]), with what is known of its packets: they belong to
//! an established connection or to none, have no extension headers, are no fragments, and as TCP have ACK, and neither
//! SYN nor FIN nor RST. The result is a list of [`Entry`]s, which is read from its begin for one session.

use std::rc::Rc;

use super::sessions::{Match, Sessions};

/// A kind of session: the rules are evaluated for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// IPv6; else IPv4.
    pub is_ipv6: bool,
    /// TCP; else UDP.
    pub is_tcp: bool,
    /// What conntrack knows of it.
    pub tracking: Tracking,
}

/// What conntrack knows of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracking {
    /// Nothing: it does not work here, or was told not to (`notrack`).
    #[default]
    Untracked,
    /// It is of the original direction of an established connection.
    Original,
    /// It is of the reply direction.
    Reply,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = 12;

    /// All of them, in the order of their numbers.
    pub fn all() -> [Self; Self::COUNT] {
        std::array::from_fn(|number| Self {
            is_ipv6: number & 1 != 0,
            is_tcp: number & 2 != 0,
            tracking: [Tracking::Untracked, Tracking::Original, Tracking::Reply][number >> 2],
        })
    }

    /// `IPPROTO_TCP` or `IPPROTO_UDP`.
    pub(super) fn protocol(self) -> u8 {
        (if self.is_tcp { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP }) as u8
    }
}

/// What a chain sees of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The source as it leaves, after its translation; else as it came in.
    pub is_source_out: bool,
    /// The same for the destination.
    pub is_destination_out: bool,
    /// The ports below bridges and VLAN devices; else the interfaces that routing sees.
    pub is_device: bool,
    /// Only connections that a rule has put into a flowtable (`IPS_OFFLOAD`).
    pub is_offloaded: bool,
}

/// One step for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The sessions that it is for; the others go on with the next entry.
    pub sessions: Sessions,
    /// What `sessions` speak of.
    pub seen: Seen,
    /// What becomes of them.
    pub action: Action,
}

/// What becomes of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They stay with the kernel, because of the rule with this number in [`Program::rules`].
    Keep(usize),
    /// They go on with the entry of this number.
    Skip(usize),
}

/// The entries for one kind of session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// In their order.
    pub entries: Vec<Entry>,
    /// The names of the rules that keep sessions with the kernel.
    pub rules: Vec<String>,
}

/// What evaluation has to know beside the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub kind: Kind,
    /// Conntrack has seen the packet: the chain is behind it.
    pub is_tracked: bool,
    /// The output interface is known there.
    pub has_output: bool,
    /// What the chain sees of the source, the destination, and their ports is known: it is not at the priority of NAT.
    pub knows_source: bool,
    pub knows_destination: bool,
    /// The mark of packets is that with which they leave: no rule anywhere sets it. The same for the DSCP.
    pub knows_mark: bool,
    pub knows_dscp: bool,
    /// What rules write into a connection may be other with each packet.
    pub connection_steps: bool,
    /// Index and name of each interface. Empty: which of them a chain sees is unknown.
    pub interfaces: &'a [(u32, String)],
    pub options: &'a Options,
}

/// `NF_IP_PRI_CONNTRACK`, `NF_IP_PRI_NAT_DST` and `NF_IP_PRI_NAT_SRC`.
const CONNTRACK: i32 = -200;
const NAT_DESTINATION: i32 = -100;
const NAT_SOURCE: i32 = 100;

impl<'a> Scope<'a> {
    /// Of a chain that nothing is known of but the kind of session.
    pub(super) fn new(
        kind: Kind,
        interfaces: &'a [(u32, String)],
        writes: Writes,
        options: &'a Options,
    ) -> Self {
        Self {
            kind,
            is_tracked: false,
            has_output: false,
            knows_source: true,
            knows_destination: true,
            knows_mark: !writes.mark,
            knows_dscp: !writes.dscp,
            connection_steps: writes.steps,
            interfaces,
            options,
        }
    }

    /// The scope of a chain at a hook of IP (`NF_INET_*`), and what it sees.
    pub(super) fn at(self, hook: u32, priority: i32) -> (Self, Seen) {
        let is_first = hook == PRE_ROUTING;
        let is_last = hook == POST_ROUTING;
        let scope = Self {
            has_output: !is_first,
            is_tracked: !is_first || priority > CONNTRACK,
            knows_source: !is_last || priority != NAT_SOURCE,
            knows_destination: !is_first || priority != NAT_DESTINATION,
            ..self
        };
        let seen = Seen {
            is_source_out: is_last && priority > NAT_SOURCE,
            is_destination_out: !is_first || priority > NAT_DESTINATION,
            ..Seen::default()
        };
        (scope, seen)
    }
}

/// What rules write into packets or their metadata, so that other rules see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    pub mark: bool,
    pub dscp: bool,
    /// The mark or the labels of a connection may become others with each packet.
    pub steps: bool,
}

impl Writes {
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            mark: self.mark || other.mark,
            dscp: self.dscp || other.dscp,
            steps: self.steps || other.steps,
        }
    }
}

/// What the user wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// A rule with a counter counts each packet.
    pub strict: bool,
    /// The kernel gets so many packets of a connection at its begin.
    pub after_packets: u32,
}

/// A rule for one kind of session, at one hook.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// As the operator finds it.
    pub name: String,
    pub matched: Match,
    /// The sessions to whose packets it does something each time that the fast path would not repeat: those that match
    /// what is before that in the rule.
    pub acts: Match,
    /// What becomes of the packets: the first that matches. A verdict map has several. None: the next rule.
    pub verdicts: Vec<(Match, Verdict)>,
}

impl Rule {
    /// Whoever it acts on it drops: no session of these packets is ever learned.
    fn always_drops(&self) -> bool {
        let drops = self
            .verdicts
            .iter()
            .all(|(condition, verdict)| condition.is_always() && *verdict == Verdict::Drop);
        drops && !self.verdicts.is_empty() && !self.matched.varies && self.acts == self.matched
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The next rule.
    Continue,
    /// The end of the base chain; other base chains see the packet still.
    Accept,
    /// No other chain sees the packet.
    Drop,
    Return,
    /// To a chain, by its number.
    Jump(usize),
    Goto(usize),
}

/// `NF_INET_PRE_ROUTING`, `NF_INET_FORWARD` and `NF_INET_POST_ROUTING`: the hooks of forwarded packets.
pub(super) const PRE_ROUTING: u32 = 0;
pub(super) const FORWARD: u32 = 2;
pub(super) const POST_ROUTING: u32 = 4;

/// As many rules are looked at, and chains may be nested so deeply.
const MAX_STEPS: usize = 1 << 17;
const MAX_DEPTH: usize = 64;

/// A chain under evaluation.
struct Frame {
    /// Exactly those sessions enter it that are said to.
    is_exact: bool,
    /// Entries that skip to its end.
    ends: Vec<usize>,
}

/// Evaluates base chains.
pub(super) struct Evaluation<'a> {
    program: &'a mut Program,
    seen: Seen,
    frames: Vec<Frame>,
    steps: usize,
    /// The rules of a chain by its number.
    rules: &'a mut dyn FnMut(usize) -> Rc<[Rule]>,
}

impl<'a> Evaluation<'a> {
    /// Appends the entries of the base chain with this number to a program.
    pub(super) fn base_chain(
        program: &'a mut Program,
        seen: Seen,
        name: &str,
        first: usize,
        rules: &'a mut dyn FnMut(usize) -> Rc<[Rule]>,
    ) {
        let start = program.entries.len();
        let mut evaluation = Self { program, seen, frames: Vec::new(), steps: 0, rules };
        if evaluation.chain(first, &Match::always()).is_none() {
            // Nobody has rules like that.
            evaluation.program.entries.truncate(start);
            evaluation.keep(name, &Match::always());
        }
    }

    /// Evaluates a chain for the sessions that reach it. None: it is too large.
    fn chain(&mut self, chain: usize, reach: &Match) -> Option<()> {
        if self.frames.len() >= MAX_DEPTH {
            return None;
        }
        self.frames.push(Frame { is_exact: reach.is_exact, ends: Vec::new() });
        // From here on: exact for those that enter it.
        let reach = Match { is_exact: true, ..reach.clone() };
        let mut done = Some(());
        for rule in &*(self.rules)(chain) {
            self.steps += 1;
            let goes_on = if self.steps > MAX_STEPS { None } else { self.rule(rule, &reach) };
            match goes_on {
                Some(true) => {}
                Some(false) => break,
                None => {
                    done = None;
                    break;
                }
            }
        }
        let end = self.program.entries.len();
        for at in self.frames.pop()?.ends {
            self.program.entries[at].action = Action::Skip(end);
        }
        done
    }

    /// Evaluates a rule. Whether any session goes on with the next one.
    fn rule(&mut self, rule: &Rule, reach: &Match) -> Option<bool> {
        let matched = reach.and(&rule.matched);
        let acted = reach.and(&rule.acts);
        if !acted.is_never() && !rule.always_drops() {
            self.keep(&rule.name, &acted);
            // Whoever is kept need not be looked at again.
            return Some(acted.sessions != reach.sessions);
        }
        if matched.is_never() {
            return Some(true);
        }
        let decides = rule.verdicts.iter().any(|(_, verdict)| *verdict != Verdict::Continue);
        if matched.varies && decides {
            self.keep(&rule.name, &matched);
            return Some(matched.sessions != reach.sessions);
        }
        for (condition, verdict) in &rule.verdicts {
            let matched = matched.and(condition);
            if matched.is_never() {
                continue;
            }
            if matched.varies {
                self.keep(&rule.name, &matched);
            } else {
                self.verdict(*verdict, &matched)?;
            }
            let ends = !matches!(verdict, Verdict::Continue | Verdict::Jump(_));
            if ends && matched.is_exact && matched.sessions == reach.sessions {
                return Some(false);
            }
        }
        Some(true)
    }

    fn verdict(&mut self, verdict: Verdict, matched: &Match) -> Option<()> {
        let innermost = self.frames.len() - 1;
        match verdict {
            Verdict::Continue => {}
            // Whoever does not enter a chain is perhaps still before its end, and not behind it.
            Verdict::Accept | Verdict::Drop => {
                let to = self.frames.iter().rposition(|frame| !frame.is_exact).unwrap_or(0);
                self.skip(matched, to);
            }
            Verdict::Return => self.skip(matched, innermost),
            Verdict::Jump(chain) => self.chain(chain, matched)?,
            Verdict::Goto(chain) => {
                self.chain(chain, matched)?;
                self.skip(matched, innermost);
            }
        }
        Some(())
    }

    /// These sessions go on behind the chain of a frame.
    fn skip(&mut self, matched: &Match, frame: usize) {
        // Perhaps only some of them do.
        if !matched.is_exact {
            return;
        }
        for sessions in &matched.sessions {
            self.frames[frame].ends.push(self.program.entries.len());
            let (sessions, seen) = (sessions.clone(), self.seen);
            self.program.entries.push(Entry { sessions, seen, action: Action::Skip(0) });
        }
    }

    fn keep(&mut self, name: &str, matched: &Match) {
        let rules = &mut self.program.rules;
        let number = rules.iter().rposition(|rule| rule == name).unwrap_or_else(|| {
            rules.push(name.to_owned());
            rules.len() - 1
        });
        for sessions in &matched.sessions {
            let (sessions, seen) = (sessions.clone(), self.seen);
            self.program.entries.push(Entry { sessions, seen, action: Action::Keep(number) });
        }
    }
}

impl Program {
    /// Takes out entries that change nothing.
    pub(super) fn finish(&mut self) {
        let keeping: Vec<_> = (0..self.entries.len())
            .filter(|at| matches!(self.entries[*at].action, Action::Keep(_)))
            .collect();
        self.retain(|program, at| program.is_of_use(at, &keeping));
    }

    /// Puts entries before the others.
    pub fn prepend(&mut self, rules: Vec<String>, entries: Vec<Entry>) {
        let (new_rules, new_entries) = (rules.len(), entries.len());
        for entry in &mut self.entries {
            match &mut entry.action {
                Action::Keep(rule) => *rule += new_rules,
                Action::Skip(to) => *to += new_entries,
            }
        }
        self.rules.splice(0..0, rules);
        self.entries.splice(0..0, entries);
    }

    /// Has at most this many entries: those of several rules become one, which keeps more sessions than they. Whether
    /// that was necessary.
    pub fn limit(&mut self, most: usize) -> bool {
        if self.entries.len() <= most {
            return false;
        }
        self.retain(|program, at| matches!(program.entries[at].action, Action::Keep(_)));
        let most = most.max(1);
        // All keep sessions, so their order does not matter. Those that see sessions alike are put together.
        let mut parts: Vec<Vec<Entry>> = Vec::new();
        for entry in std::mem::take(&mut self.entries) {
            match parts.iter_mut().find(|part| part[0].seen == entry.seen) {
                Some(part) => part.push(entry),
                None => parts.push(vec![entry]),
            }
        }
        if parts.len() > most {
            parts = vec![parts.concat()];
        }
        let count = |each| parts.iter().map(|part| part.len().div_ceil(each)).sum::<usize>();
        let each = (1..).find(|each| count(*each) <= most).unwrap_or(usize::MAX);
        for some in parts.iter().flat_map(|part| part.chunks(each)) {
            self.entries.push(join(some, &mut self.rules));
        }
        true
    }

    /// An entry that skips has to skip one that keeps some of its sessions; `keeping` are the numbers of those, in order.
    fn is_of_use(&self, at: usize, keeping: &[usize]) -> bool {
        let entry = &self.entries[at];
        let Action::Skip(to) = entry.action else { return true };
        let (from, to) =
            (keeping.partition_point(|one| *one <= at), keeping.partition_point(|one| *one < to));
        keeping.get(from..to).unwrap_or_default().iter().any(|one| {
            let other = &self.entries[*one];
            other.seen != entry.seen || other.sessions.and(&entry.sessions).is_some()
        })
    }

    fn retain(&mut self, is_kept: impl Fn(&Self, usize) -> bool) {
        let kept: Vec<bool> = (0..self.entries.len()).map(|at| is_kept(self, at)).collect();
        // Where each entry is then.
        let mut places = vec![0];
        for kept in &kept {
            places.push(places[places.len() - 1] + usize::from(*kept));
        }
        let mut kept = kept.into_iter();
        self.entries.retain(|_| kept.next().unwrap_or(true));
        for entry in &mut self.entries {
            if let Action::Skip(to) = &mut entry.action {
                *to = places[*to];
            }
        }
    }
}

/// One entry for all, which keep sessions.
fn join(entries: &[Entry], rules: &mut Vec<String>) -> Entry {
    let [first, others @ ..] = entries else { unreachable!("chunks are not empty") };
    let mut joined = first.clone();
    for other in others {
        joined.sessions = if other.seen == joined.seen {
            joined.sessions.hull(&other.sessions)
        } else {
            Sessions::ALL
        };
    }
    if let (Action::Keep(rule), false) = (first.action, others.is_empty()) {
        rules.push(format!("{} and others", rules[rule]));
        joined.action = Action::Keep(rules.len() - 1);
    }
    joined
}
