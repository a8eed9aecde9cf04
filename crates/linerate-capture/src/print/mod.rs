//! One line a packet, as `tcpdump -nq` prints them.
//!
//! The lines are tcpdump 4.99's for Ethernet (VLAN tags are skipped, as there), ARP, IPv4, IPv6 and its
//! extension headers, fragments, TCP, UDP, ICMP and ICMPv6. They differ, on purpose:
//!
//! - The flags of TCP follow its length, as `tcpdump -n` prints them: `tcp 0 [S.]`.
//! - Other protocols are named by number and length and not taken apart: ` ip-proto-47 28`,
//!   `ethertype 0x88cc, length 60`, `LLC, length 52`. Deeper dissection is tshark's.
//! - A packet is always one line; tcpdump adds hexadecimal dumps for what it does not know.
//! - Rare ICMP messages are `type-#N`.
//! - What follows a header that was cut short (`[|tcp]`) is not guessed from the bytes that are left.

mod context;
mod icmp;
mod ip;
mod transport;

use std::fmt::{self, Write};
use std::net::Ipv4Addr;

use jiff::tz::TimeZone;
use linerate_ring::Timestamp;
use linerate_wire::ethernet::{Address, EtherType, HEADER_LEN};
use linerate_wire::{ethernet, vlan};

/// Link type of packets that start with their IP header, in the LINKTYPE registry.
const RAW_IP: u16 = 101;

/// Prints packets, one line each.
#[derive(Debug)]
pub struct Printer {
    link_type: u16,
    nanoseconds: bool,
    zone: TimeZone,
    /// The quarter of an hour for which `offset` holds; no zone changes within one.
    quarter: u64,
    /// Seconds that local time is ahead of UTC.
    offset: i64,
}

impl Printer {
    /// A printer for frames of `link_type` (LINKTYPE registry), with times of the system's zone.
    ///
    /// `nanoseconds` prints nine digits of a second, else six.
    pub fn new(link_type: u16, nanoseconds: bool) -> Self {
        Self::with_zone(link_type, nanoseconds, TimeZone::system())
    }

    fn with_zone(link_type: u16, nanoseconds: bool, zone: TimeZone) -> Self {
        Self { link_type, nanoseconds, zone, quarter: u64::MAX, offset: 0 }
    }

    /// Appends the line for `frame`, which was `wire_len` bytes long on the wire, and a line feed.
    ///
    /// Nothing is allocated but what `line` needs to grow; clear and reuse it.
    pub fn print(
        &mut self,
        line: &mut String,
        time: Option<Timestamp>,
        frame: &[u8],
        wire_len: u32,
    ) {
        // Writing to a string cannot fail.
        let _ = self.write(line, time, frame, wire_len as usize);
        line.push('\n');
    }

    fn write(
        &mut self,
        line: &mut String,
        time: Option<Timestamp>,
        frame: &[u8],
        wire_len: usize,
    ) -> fmt::Result {
        self.time(line, time)?;
        let length = wire_len.max(frame.len());
        match self.link_type {
            crate::filter::ETHERNET => ethernet(line, frame, length),
            RAW_IP => ip::either(line, frame, length),
            other => write!(line, "link type {other}, length {length}"),
        }
    }

    fn time(&mut self, line: &mut String, time: Option<Timestamp>) -> fmt::Result {
        let Some(time) = time else { return Ok(()) };
        let seconds = time.seconds();
        if self.quarter != seconds / 900 {
            self.quarter = seconds / 900;
            let instant = jiff::Timestamp::from_second(seconds as i64).unwrap_or_default();
            self.offset = i64::from(self.zone.to_offset(instant).seconds());
        }
        let of_day = (seconds as i64 + self.offset).rem_euclid(86_400);
        let (hours, minutes, seconds) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        write!(line, "{hours:02}:{minutes:02}:{seconds:02}.")?;
        if self.nanoseconds {
            write!(line, "{:09} ", time.subsecond_nanos())
        } else {
            write!(line, "{:06} ", time.subsecond_nanos() / 1000)
        }
    }
}

fn ethernet(line: &mut String, frame: &[u8], length: usize) -> fmt::Result {
    let Ok(header) = ethernet::Frame::new_checked(frame) else {
        return line.write_str(" [|ether]");
    };
    let mut kind = header.ether_type();
    let mut at = HEADER_LEN;
    while kind.is_tag() {
        let Ok(tag) = vlan::Tag::new_checked(&frame[at..]) else {
            return line.write_str(" [|vlan]");
        };
        kind = tag.ether_type();
        at += vlan::TAG_LEN;
    }
    let (packet, rest) = (&frame[at..], length - at);
    match kind {
        EtherType::IPV4 => ip::v4(line, packet, rest),
        EtherType::IPV6 => ip::v6(line, packet, rest),
        EtherType::ARP | REVERSE_ARP => arp(line, packet, rest),
        other => {
            write!(line, "{} > {}, ", header.source(), header.destination())?;
            if other.is_length() {
                write!(line, "LLC, length {}", rest.min(usize::from(other.0)))
            } else {
                write!(line, "ethertype {:#06x}, length {length}", other.0)
            }
        }
    }
}

const REVERSE_ARP: EtherType = EtherType(0x8035);

/// ARP and its relatives (RFC 826, 903, 2390) for IPv4 over links with 6-byte addresses.
fn arp(line: &mut String, packet: &[u8], length: usize) -> fmt::Result {
    let Some(packet) = packet.first_chunk::<28>() else {
        return line.write_str(" [|arp]");
    };
    if packet[2..6] != [8, 0, 6, 4] {
        return write!(line, "ARP, for other protocols, length {length}");
    }
    let mac = |at: usize| Address(std::array::from_fn(|n| packet[at + n]));
    let address = |at: usize| Ipv4Addr::from(std::array::from_fn(|n| packet[at + n]));
    let (sender_mac, sender, target_mac, target) = (mac(8), address(14), mac(18), address(24));
    line.write_str("ARP, ")?;
    match u16::from_be_bytes([packet[6], packet[7]]) {
        1 => {
            write!(line, "Request who-has {target}")?;
            if target_mac.0 != [0; 6] {
                write!(line, " ({target_mac})")?;
            }
            write!(line, " tell {sender}")
        }
        2 => write!(line, "Reply {sender} is-at {sender_mac}"),
        3 => write!(line, "Reverse Request who-is {target_mac} tell {sender_mac}"),
        4 => write!(line, "Reverse Reply {target_mac} at {target}"),
        8 => write!(line, "Inverse Request who-is {target_mac} tell {sender_mac}"),
        9 => write!(line, "Inverse Reply {sender_mac} at {sender}"),
        other => write!(line, "Unknown ({other})"),
    }?;
    write!(line, ", length {length}")
}

#[cfg(test)]
mod tests;
