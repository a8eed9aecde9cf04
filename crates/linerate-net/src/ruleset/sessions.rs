//! [`Sessions`]: sets of sessions, and [`Match`]: which of them a rule matches.

use std::ops::RangeInclusive;

/// What is the same for all packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Index of the input interface.
    Input,
    /// Index of the output interface.
    Output,
    /// Source address as a number.
    Source,
    /// Destination address as a number.
    Destination,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// Upper six bits of TOS or traffic class, as a number below 64.
    Dscp,
    /// Mark of the packets.
    Mark,
}

const FIELDS: usize = 8;

/// A range of numbers, both ends included.
pub type Range = RangeInclusive<u128>;

/// All sessions whose fields are in these ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sessions([Range; FIELDS]);

impl Field {
    pub(super) const ALL: [Self; FIELDS] = [
        Self::Input,
        Self::Output,
        Self::Source,
        Self::Destination,
        Self::SourcePort,
        Self::DestinationPort,
        Self::Dscp,
        Self::Mark,
    ];
}

impl Sessions {
    /// All sessions.
    pub const ALL: Self = Self([const { 0..=u128::MAX }; FIELDS]);

    /// Those with a field in a range.
    pub fn with(field: Field, range: Range) -> Self {
        let mut all = Self::ALL;
        all.0[field as usize] = range;
        all
    }

    /// The range of a field.
    pub fn range(&self, field: Field) -> &Range {
        &self.0[field as usize]
    }

    /// Those that are in both.
    pub fn and(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        for (own, other) in both.0.iter_mut().zip(&other.0) {
            *own = *own.start().max(other.start())..=*own.end().min(other.end());
            if own.is_empty() {
                return None;
            }
        }
        Some(both)
    }

    /// The smallest ranges that hold both.
    pub(super) fn hull(&self, other: &Self) -> Self {
        let mut hull = self.clone();
        for (own, other) in hull.0.iter_mut().zip(&other.0) {
            *own = *own.start().min(other.start())..=*own.end().max(other.end());
        }
        hull
    }

    /// The field that alone restricts them.
    fn only_field(&self) -> Option<Field> {
        let mut restricted =
            Field::ALL.into_iter().filter(|field| *self.range(*field) != Self::ALL.0[0]);
        let only = restricted.next();
        only.filter(|_| restricted.next().is_none())
    }
}

/// Which sessions something is true for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// For no others. Empty: for none.
    pub(super) sessions: Vec<Sessions>,
    /// For all of these, and not only for some of them.
    pub(super) is_exact: bool,
    /// It may be true for some packets of a session, and false for others.
    pub(super) varies: bool,
}

/// A list of more sessions than these is replaced by one range.
const MAX_SESSIONS: usize = 64;

impl Match {
    /// False.
    pub(super) const NEVER: Self = Self { sessions: Vec::new(), is_exact: true, varies: false };

    /// True for each packet.
    pub(super) fn always() -> Self {
        Self { sessions: vec![Sessions::ALL], is_exact: true, varies: false }
    }

    /// The same for all packets of a session, but it is not known which.
    pub(super) fn unknown() -> Self {
        Self { is_exact: false, ..Self::always() }
    }

    /// It depends on the packet; also all that nobody argued for.
    pub(super) fn varying() -> Self {
        Self { varies: true, ..Self::unknown() }
    }

    pub(super) fn certain(is_true: bool) -> Self {
        if is_true { Self::always() } else { Self::NEVER }
    }

    /// The field is in one of the ranges.
    pub(super) fn one_of(field: Field, ranges: impl IntoIterator<Item = Range>) -> Self {
        let sessions = ranges.into_iter().map(|range| Sessions::with(field, range)).collect();
        Self { sessions, is_exact: true, varies: false }.bounded()
    }

    pub(super) fn is_never(&self) -> bool {
        self.sessions.is_empty()
    }

    /// True for each packet of each session.
    pub(super) fn is_always(&self) -> bool {
        self.is_exact && self.sessions.contains(&Sessions::ALL)
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        let pairs =
            self.sessions.iter().flat_map(|own| other.sessions.iter().map(|other| own.and(other)));
        let sessions: Vec<_> = pairs.flatten().collect();
        // What is never true varies for nobody.
        let varies = (self.varies || other.varies) && !sessions.is_empty();
        Self { sessions, is_exact: self.is_exact && other.is_exact, varies }.bounded()
    }

    pub(super) fn or(mut self, other: Self) -> Self {
        if other.is_never() {
            return self;
        }
        self.sessions.extend(other.sessions);
        self.is_exact &= other.is_exact;
        self.varies |= other.varies;
        self.bounded()
    }

    pub(super) fn not(&self) -> Self {
        if self.varies {
            return Self::varying();
        }
        if self.is_never() {
            return Self::always();
        }
        if self.is_always() {
            return Self::NEVER;
        }
        let field = self.sessions[0].only_field();
        match field {
            Some(field)
                if self.is_exact
                    && self.sessions.iter().all(|one| one.only_field() == Some(field)) =>
            {
                let mut ranges: Vec<_> =
                    self.sessions.iter().map(|one| one.range(field).clone()).collect();
                ranges.sort_unstable_by_key(|range| *range.start());
                Self::one_of(field, gaps(&ranges))
            }
            _ => Self::unknown(),
        }
    }

    /// Without the parts that others hold, and with one range where there are too many.
    fn bounded(mut self) -> Self {
        self.sessions.dedup();
        if self.sessions.len() > MAX_SESSIONS {
            let hull = self
                .sessions
                .iter()
                .skip(1)
                .fold(self.sessions[0].clone(), |hull, one| hull.hull(one));
            self.sessions = vec![hull];
            self.is_exact = false;
        }
        self
    }
}

/// What is between sorted ranges, before and after them.
fn gaps(ranges: &[Range]) -> Vec<Range> {
    let (mut gaps, mut next) = (Vec::new(), Some(0u128));
    for range in ranges {
        let Some(start) = next else { break };
        if *range.start() > start {
            gaps.push(start..=range.start() - 1);
        }
        next = range.end().checked_add(1).map(|after| after.max(start));
    }
    gaps.extend(next.map(|start| start..=u128::MAX));
    gaps
}
