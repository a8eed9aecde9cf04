/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What Linerate's libpcap has beside libpcap's own interface. */
#ifndef LINERATE_PCAP_H
#define LINERATE_PCAP_H

#include <stdint.h>
#include <pcap/pcap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As struct pcap_stat, in numbers that do not begin again at 2^32. */
struct linerate_pcap_stat64 {
	uint64_t received;          /* packets that the filter accepted, lost ones included */
	uint64_t dropped;           /* those that were lost between the driver and the program */
	uint64_t interface_dropped; /* lost by the interface or its driver */
};

/* 0, or PCAP_ERROR. */
int linerate_pcap_stats64(pcap_t *, struct linerate_pcap_stat64 *);

#ifdef __cplusplus
}
#endif

#endif
