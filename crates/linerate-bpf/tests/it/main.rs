//! Translated filters, with the kernel and libpcap on the other side.

mod filter;
