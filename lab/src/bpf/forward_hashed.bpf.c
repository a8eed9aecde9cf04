// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The accelerator's programs over hash maps: three designs of statistics to compare the table with. */

#define SESSION_STORE "hashed.h"
#include "accelerator.bpf.c"

/* User space runs this to end a session, since it can only replace whole values of a hash map. A session that is
 * retired stays locked: nobody writes to it or makes it valid again, so user space may delete it once no program
 * runs that found it before. */
SEC("syscall")
int end_session(struct end_session *context)
{
	struct session_key key = context->key;
	struct hashed_session *found;
	__u32 version;

	context->ended = 0;
	context->busy = 0;
	if (design == DESIGN_PER_CPU)
		found = bpf_map_lookup_percpu_elem(&hashed, &key, context->cpu);
	else
		found = bpf_map_lookup_elem(&hashed, &key);
	if (!found)
		return 0;
	if (context->retire && !session_lock(&found->session, &version))
		context->busy = 1;
	if (found->session.kind && !(READ_ONCE(found->session.generation) & GENERATION_ENDED)) {
		session_end(&found->session, 0);
		context->ended = 1;
	}
	return 0;
}
