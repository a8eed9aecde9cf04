#![doc = include_str!("../README.md")]
//!
//! A [`Protocol`] reads a packet of one protocol ([`moldudp64::MoldUdp64`] is one). A [`Feed`] knows which
//! number it expects next: new messages are delivered from the line that brings them first; duplicates are
//! dropped; a number that is skipped opens a gap in the [`GapList`], and a message that comes late, from the
//! other line or a retransmission, closes it. Nothing is held back: messages are delivered when they arrive,
//! and [`Message::late`] says whether one fills a gap. A [`Requester`] decides when to ask a server for missing
//! messages. Lines change sessions one after the other: messages of the previous session that a line still
//! brings belong to that session.
#![forbid(unsafe_code)]

mod gaps;
pub mod moldudp64;
mod requester;
mod session;

use serde::Serialize;

pub use gaps::{Gap, GapList};
pub use requester::{RequestStatistics, Requester};
use session::{MAX_NAME_LEN, Session};

/// One of the two lines that carry the same feed (A/B line arbitration), or the answers to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    /// The first, or the only one.
    A,
    /// The second.
    B,
    /// Answers of a server that was asked for missing messages. They begin no session.
    Retransmission,
}

/// The header of a packet of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader<'a> {
    /// The session, a run of numbers that begins at 1; packets of another session begin again.
    pub session: &'a [u8],
    /// The number of the first message in the packet; of the next one to come, where it has none.
    pub first: u64,
    /// Messages in the packet.
    pub messages: u64,
    /// No more messages will come in this session.
    pub end: bool,
}

/// Why a packet is not a valid packet of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It ends before its header does.
    #[error("the packet ends within its header")]
    Header,
    /// It ends before its messages do.
    #[error("the packet has fewer messages than its header says")]
    Messages,
    /// Numbers beyond 2^64 - 1.
    #[error("the numbers of the packet's messages overflow")]
    Number,
}

/// How packets of a protocol are read.
pub trait Protocol {
    /// Reads the header of a packet.
    ///
    /// # Errors
    /// Why it is not valid.
    fn header<'a>(&self, packet: &'a [u8]) -> Result<PacketHeader<'a>, ParseError>;

    /// The messages of a packet, each handed to `message` in order.
    ///
    /// # Errors
    /// [`ParseError::Messages`] where the packet ends first; the messages before were handed on.
    fn messages(&self, packet: &[u8], message: &mut dyn FnMut(&[u8])) -> Result<(), ParseError>;
}

/// A message of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its session, the present one or the one before.
    pub session: &'a [u8],
    /// Its number in the session.
    pub number: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Which line brought it first.
    pub line: Line,
    /// It was missing: messages with higher numbers have been delivered already.
    pub late: bool,
}

/// What has come so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Statistics {
    /// Packets, of all kinds.
    pub packets: u64,
    /// Messages handed on.
    pub messages: u64,
    /// Messages handed on that line A brought first.
    pub first_a: u64,
    /// Messages handed on that line B brought first.
    pub first_b: u64,
    /// Messages handed on that a retransmission brought.
    pub retransmitted: u64,
    /// Messages that had come already, or that had been given up.
    pub duplicates: u64,
    /// Messages that filled a gap.
    pub late: u64,
    /// Packets that carried no message, and did not end a session either.
    pub heartbeats: u64,
    /// Packets that said that a session is over; they are repeated.
    pub ends: u64,
    /// Packets that were not valid packets of the protocol.
    pub malformed: u64,
    /// Gaps that were opened.
    pub gaps: u64,
    /// Messages missing now.
    pub missing: u64,
    /// Missing messages that did not fit into the gap list, or that two sessions have followed: lost for
    /// good.
    pub abandoned: u64,
    /// Sessions.
    pub sessions: u64,
}

impl Statistics {
    fn abandon(&mut self, messages: u64) {
        self.abandoned = self.abandoned.saturating_add(messages);
    }
}

/// One sequence-numbered feed.
#[derive(Debug)]
pub struct Feed<L> {
    protocol: L,
    current: Session,
    previous: Session,
    expect_from_first: bool,
    /// The line without a packet so far of the session that the other line began: it may be behind.
    behind: Option<Line>,
    statistics: Statistics,
}

impl<L: Protocol> Feed<L> {
    /// A feed that is joined while it runs: earlier messages do not count as missing. It begins with the lower number
    /// of the first packets of both lines, whichever is read first. In later sessions messages count from number 1
    /// on.
    pub fn new(protocol: L) -> Self {
        Self {
            protocol,
            current: Session::new(),
            previous: Session::new(),
            expect_from_first: false,
            behind: None,
            statistics: Statistics::default(),
        }
    }

    /// The same, but messages count from number 1 on in the first session too.
    #[must_use]
    pub fn expect_from_first(mut self) -> Self {
        self.expect_from_first = true;
        self
    }

    /// Processes a packet of `line`, and passes every new message to `message`.
    ///
    /// No memory is allocated.
    pub fn process(&mut self, line: Line, packet: &[u8], mut message: impl FnMut(Message<'_>)) {
        self.statistics.packets += 1;
        let header = match self.protocol.header(packet) {
            Ok(header)
                if header.session.len() <= MAX_NAME_LEN
                    && header.first.checked_add(header.messages).is_some() =>
            {
                header
            }
            _ => {
                self.statistics.malformed += 1;
                return;
            }
        };
        if !self.enter(line, &header, packet) {
            return;
        }
        if self.behind == Some(line) && self.current.is(header.session) {
            self.behind = None;
            self.statistics.abandon(self.current.begin_before(header.first));
        }
        let Self { protocol, current, previous, statistics, .. } = self;
        let session = if current.is(header.session) { current } else { previous };
        if header.messages == 0 {
            // It has the next number, so that a loss is detected before the next message arrives.
            session.skip_to(header.first, statistics);
            session.ended |= header.end;
            statistics.ends += u64::from(header.end);
            statistics.heartbeats += u64::from(!header.end);
            return;
        }
        let mut number = header.first;
        let answer = protocol.messages(packet, &mut |bytes| {
            let late = session.is_late(number);
            if session.take(number, statistics) {
                statistics.late += u64::from(late);
                statistics.messages += 1;
                match line {
                    Line::A => statistics.first_a += 1,
                    Line::B => statistics.first_b += 1,
                    Line::Retransmission => statistics.retransmitted += 1,
                }
                message(Message { session: header.session, number, bytes, line, late });
            } else {
                statistics.duplicates += 1;
            }
            number += 1;
        });
        statistics.malformed += u64::from(answer.is_err());
    }

    /// What has come so far.
    pub fn statistics(&self) -> Statistics {
        let missing =
            self.current.gap_list.missing().saturating_add(self.previous.gap_list.missing());
        Statistics { missing, ..self.statistics }
    }

    /// The gaps of the session that are open.
    pub fn gap_list(&self) -> &GapList {
        &self.current.gap_list
    }

    /// The session that was begun last.
    pub fn session(&self) -> &[u8] {
        self.current.name()
    }

    /// The next number in it, once a packet has arrived.
    pub fn next(&self) -> Option<u64> {
        self.current.next()
    }

    /// Whether its end was announced.
    pub fn ended(&self) -> bool {
        self.current.ended
    }

    /// The session before it, and its gaps that are open.
    pub fn previous(&self) -> Option<(&[u8], &GapList)> {
        self.previous.next().map(|_| (self.previous.name(), &self.previous.gap_list))
    }

    /// Begins a session, if the packet is of none of the last two; false for a packet that cannot begin one.
    fn enter(&mut self, line: Line, header: &PacketHeader<'_>, packet: &[u8]) -> bool {
        if self.current.is(header.session) || self.previous.is(header.session) {
            return true;
        }
        // An unrelated packet must not end the current session.
        if line == Line::Retransmission || self.protocol.messages(packet, &mut |_| {}).is_err() {
            self.statistics.malformed += 1;
            return false;
        }
        if header.end && self.statistics.sessions > 0 {
            self.statistics.ends += 1;
            return false;
        }
        self.statistics.sessions += 1;
        std::mem::swap(&mut self.current, &mut self.previous);
        self.statistics.abandon(self.current.gap_list.clear());
        // Only the first one can have been running before.
        let expect_from_first = self.expect_from_first || self.statistics.sessions > 1;
        let other = if line == Line::A { Line::B } else { Line::A };
        self.behind = (!expect_from_first).then_some(other);
        self.current.begin(header.session, if expect_from_first { 1 } else { header.first });
        true
    }
}
