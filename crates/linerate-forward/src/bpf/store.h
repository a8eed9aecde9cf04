/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Where sessions live. The product has one store, the bucket table of table.h; the lab compiles the same
 * programs over hash maps for comparison, by defining SESSION_STORE. A store defines:
 *
 *   struct hit                   a valid session, as the fast path found it
 *   find_valid, find_plain       the fast path's look-ups
 *   session_count                counts a forwarded packet
 *   session_find, session_claim  the look-ups of the slow path and the learner
 *   session_unclaim              undoes session_claim
 *   session_is_duplicate, session_add
 *   hop_index, session_set_hop, hop_of  what a session shares
 *   hop_address_number, session_set_out, out_addresses  IPv6 addresses after NAT
 *   cold_of                      what packets rarely touch
 *   tuple_key, tuple_end         ending sessions by their tuple alone (by_tuple.h)
 *   STORE_HAS_SLOTS              sessions have numbers, by which the ager names them to `refresh`
 *   STORE_REUSES_ENTRIES         an entry may change hands while a program holds a pointer to it */
#ifndef LINERATE_STORE_H
#define LINERATE_STORE_H

#ifndef SESSION_STORE
#define SESSION_STORE "table.h"
#endif

#include SESSION_STORE

#endif
