//! Writing capture files: packets as records, and records into files.

mod encoder;
mod file;
mod lock;
mod pcap;
mod pcapng;
mod scan;
mod writer;

pub use encoder::{Encoder, PacketOptions};
pub use file::{OutputFile, refuse_terminal, same_file};
pub use lock::{FileWriter, refuse_numbered_in_use};
pub use scan::{EncodedRecord, records};
pub use writer::Writer;
