/* Rings of packet sockets in memory of the user's choice, for programs as they are, on a kernel with the patches beside.
 * It is preloaded; LINERATE_RING_ALLOCATION is noretry, vzalloc, retry, transhuge or hugetlb. Where a ring cannot have
 * that memory, it has the usual one, and one line says why. Everything else goes to the kernel unchanged.
 *
 *	program -- setsockopt(PACKET_RX_RING) ---> an option of the patches instead
 *		-- mmap, munmap of such a socket -> memory that is mapped already
 *		-- close -----------------------> frees that memory with the last descriptor
 *
 * A ring that the kernel allocates needs the first only. A HugeTLB ring is in memory of the program, which is lent to
 * the kernel before, and the kernel does not map it. So that memory is kept for each socket, by its cookie. Nothing here
 * allocates: a signal handler may call close().
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_PAGE (2UL << 20)
#define MAX_SOCKETS 256
/* Of the patches. */
#define PACKET_HUGETLB_ENABLE 72
#define PACKET_HUGETLB_RX_RING 73

/* The memory that was chosen: the option that sets a receive ring of it; that of a transmit ring is the next. */
static const struct kind {
	const char *name;
	int option;
	bool is_huge;
} kinds[] = {
	{ "noretry", 64, false }, { "vzalloc", 66, false }, { "retry", 68, false }, { "transhuge", 70, true },
	{ "hugetlb", PACKET_HUGETLB_RX_RING, true },
};
static const struct kind *chosen;

/* What a program asked for; a length of 0: no ring. */
struct request {
	socklen_t len;
	struct tpacket_req3 req;
};

/* A socket with rings in huge pages. It has a descriptor, or mapped memory. */
struct rings {
	uint64_t cookie;	/* 0: the entry is free */
	int fd;			/* one of its descriptors; -1 once the program has closed all of them */
	struct request ring[2];	/* receive, transmit */
	bool is_fallback;	/* in usual memory: one could not be in huge pages */
	char *memory;		/* lent to the kernel */
	size_t size;
	size_t offset, len;	/* the part that the program maps */
	unsigned int mapped;	/* how often */
};

static struct rings sockets[MAX_SOCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* This thread has the lock: a signal handler of it must not wait for it. */
static __thread bool inside __attribute__((tls_model("initial-exec")));
static __thread bool locked_for_fork __attribute__((tls_model("initial-exec")));
/* The process that owns the sockets. A child of vfork() shares this memory, but closes only its own descriptors. */
static _Atomic pid_t owner;
/* All memory that was ever lent is between these addresses: other memory is unmapped without a search. */
static _Atomic uintptr_t lowest = UINTPTR_MAX, highest;
/* Why the last ring could not have its memory; empty: what errno says. */
static char why[160];

__attribute__((constructor)) static void choose(void)
{
	const char *name = getenv("LINERATE_RING_ALLOCATION");

	for (size_t i = 0; name && i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(name, kinds[i].name))
			chosen = &kinds[i];
	if (name && !chosen && strcmp(name, "any"))
		dprintf(STDERR_FILENO, "LINERATE_RING_ALLOCATION: unknown memory of a ring \"%s\"\n", name);
}

/* With the lock; false where this thread has it already, or, without `wait`, where another thread keeps it. */
static bool enter(bool wait)
{
	if (inside)
		return false;
	inside = true;
	for (int tries = 0; pthread_mutex_trylock(&lock); tries++) {
		if (!wait && tries == 1000)
			return inside = false;
		sched_yield();
	}
	return true;
}

static void leave(void)
{
	pthread_mutex_unlock(&lock);
	inside = false;
}

static void before_fork(void)
{
	locked_for_fork = enter(true);
}

static void after_fork(void)
{
	if (locked_for_fork)
		leave();
	locked_for_fork = false;
}

static void after_fork_in_child(void)
{
	owner = getpid();
	after_fork();
}

static bool is_tracking(void)
{
	return owner && owner == getpid();
}

static void start_tracking(void)
{
	if (!owner)
		pthread_atfork(before_fork, after_fork, after_fork_in_child);
	owner = getpid();
}

/* A number that the kernel gives to one socket only, however many descriptors it has; 0 for what is no socket. */
static uint64_t cookie_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);
	int error = errno;

	if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len))
		cookie = 0;
	errno = error;
	return cookie;
}

/* The socket of this cookie; a free entry for 0. */
static struct rings *find(uint64_t cookie)
{
	for (int i = 0; i < MAX_SOCKETS; i++)
		if (sockets[i].cookie == cookie)
			return &sockets[i];
	return NULL;
}

static void free_memory(struct rings *rings)
{
	int error = errno;

	if (rings->memory)
		syscall(SYS_munmap, rings->memory, rings->size);
	rings->memory = NULL;
	rings->mapped = 0;
	errno = error;
}

static void forget(struct rings *rings)
{
	free_memory(rings);
	memset(rings, 0, sizeof(*rings));
}

static int set(int fd, int option, const struct request *request)
{
	return syscall(SYS_setsockopt, fd, SOL_PACKET, option, &request->req, request->len);
}

/* A ring of usual memory. */
static int set_usual(int fd, int tx, const struct request *request)
{
	return set(fd, tx ? PACKET_TX_RING : PACKET_RX_RING, request);
}

/* Releases a ring, by a request as long as the one that set it. */
static int set_none(int fd, int tx, const struct request *request)
{
	struct request none = { .len = request->len };

	return request->len ? set_usual(fd, tx, &none) : 0;
}

static int set_both_none(int fd, const struct request *both)
{
	return set_none(fd, 0, &both[0]) || set_none(fd, 1, &both[1]) ? -1 : 0;
}

/* Lends memory for the next ring; none takes back what was lent. */
static int lend_memory(int fd, const char *memory, size_t len)
{
	struct { uint64_t addr, size; } lent = { (uintptr_t)memory, len };

	return syscall(SYS_setsockopt, fd, SOL_PACKET, PACKET_HUGETLB_ENABLE, &lent, sizeof(lent));
}

static size_t bytes(const struct request *request)
{
	return request->len ? (size_t)request->req.tp_block_size * request->req.tp_block_nr : 0;
}

/* The blocks of a ring in huge pages divide a huge page. */
static bool fits(const struct request *request)
{
	unsigned int size = request->req.tp_block_size;

	if (!request->len || (size && HUGE_PAGE % size == 0))
		return true;
	snprintf(why, sizeof(why), "its blocks of %u bytes are no part of a huge page", size);
	return false;
}

/* Sets the rings in memory that is lent to the kernel. After a failure the socket has its old rings, or none. */
static int lend(struct rings *rings, int fd, const struct request *both)
{
	size_t receive = bytes(&both[0]), transmit = bytes(&both[1]);
	size_t size = (receive + transmit + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	char *memory, *place;
	int error;

	/* Lending nothing changes nothing, and tells whether the kernel has the patches. */
	if (lend_memory(fd, NULL, 0) || !fits(&both[0]) || !fits(&both[1]))
		return -1;
	if (transmit && receive % HUGE_PAGE) {
		snprintf(why, sizeof(why), "the transmit ring follows the receive ring, whose %zu bytes are no whole number of huge pages",
			 receive);
		return -1;
	}
	memory = (char *)syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, -1, 0);
	if (memory == MAP_FAILED) {
		if (errno == ENOMEM)
			snprintf(why, sizeof(why), "it takes %zu free huge pages of 2 MiB: reserve more, as with sysctl vm.nr_hugepages",
				 size / HUGE_PAGE);
		return -1;
	}
	if (set_both_none(fd, rings->ring))
		goto unmap;
	place = memory;
	for (int tx = 0; tx < 2; place += bytes(&both[tx++]))
		if (both[tx].len && (lend_memory(fd, place, bytes(&both[tx])) ||
				     set(fd, PACKET_HUGETLB_RX_RING + tx, &both[tx])))
			goto release;
	free_memory(rings);
	rings->memory = memory;
	rings->size = size;
	rings->offset = 0;
	rings->len = receive + transmit;
	if ((uintptr_t)memory < lowest)
		lowest = (uintptr_t)memory;
	if ((uintptr_t)memory + size > highest)
		highest = (uintptr_t)memory + size;
	return 0;
release:
	error = errno;
	/* Memory that was lent and not used, and rings that were set. */
	lend_memory(fd, NULL, 0);
	set_both_none(fd, both);
	errno = error;
unmap:
	error = errno;
	syscall(SYS_munmap, memory, size);
	errno = error;
	return -1;
}

/* Says once that a ring of the program does not have the chosen memory. */
static void warn(int tx, int error)
{
	static bool said;

	if (!*why)
		snprintf(why, sizeof(why), "%s", error == ENOPROTOOPT ? "this kernel has no patches for that" : strerror(error));
	if (!said)
		dprintf(STDERR_FILENO, "LINERATE_RING_ALLOCATION=%s: the %s ring is of usual memory: %s\n", chosen->name,
			tx ? "transmit" : "receive", why);
	said = true;
}

/* A ring in huge pages, or in usual memory. Both rings of a socket are in huge pages, or neither: one mmap() maps
 * both. */
static int set_huge(struct rings *rings, int fd, int tx, const struct request *request)
{
	struct request both[2], *other = &rings->ring[!tx];
	int error;

	if (rings->is_fallback)
		return set_usual(fd, tx, request);
	if (chosen->option == PACKET_HUGETLB_RX_RING) {
		/* An invalid request must not cost the socket its other ring. */
		if (other->len && (set_usual(fd, tx, request) || set_none(fd, tx, request)))
			return -1;
		memcpy(both, rings->ring, sizeof(both));
		both[tx] = *request;
		if (!lend(rings, fd, both))
			return 0;
	} else if (fits(request)) {
		if (bytes(request) % HUGE_PAGE)
			snprintf(why, sizeof(why), "its %zu bytes are no whole number of huge pages", bytes(request));
		else if (!set(fd, chosen->option + tx, request))
			return 0;
	}
	error = errno;
	if (set_usual(fd, tx, request))
		return -1;
	/* A smaller ring, as for a probe, is nothing to warn of. */
	if (bytes(request) >= HUGE_PAGE)
		warn(tx, error);
	rings->is_fallback = true;
	free_memory(rings);
	if (other->len && (set_none(fd, !tx, other) || set_usual(fd, !tx, other))) {
		other->len = 0;
		return -1;
	}
	return 0;
}

static int release(struct rings *rings, int fd, int tx, const struct request *request)
{
	struct request *ring = rings ? &rings->ring[tx] : NULL;

	if (ring && ring->len && rings->memory && rings->mapped) {
		errno = EBUSY;	/* as the kernel does for its own rings */
		return -1;
	}
	if (set_usual(fd, tx, request))
		return -1;
	if (!rings)
		return 0;
	/* The other ring stays in place and is mapped alone from now on. */
	rings->len -= bytes(ring);
	rings->offset += tx ? 0 : bytes(ring);
	ring->len = 0;
	if (!rings->ring[!tx].len)
		forget(rings);
	return 0;
}

/* Another descriptor of a socket; -1: there is none, -2: /proc does not tell. */
static int descriptor_of(uint64_t cookie)
{
	_Alignas(struct dirent64) char room[2048];
	int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), found = -1;
	ssize_t filled;

	if (folder < 0)
		return -2;
	while (found < 0 && (filled = getdents64(folder, room, sizeof(room))) > 0)
		for (ssize_t at = 0; at < filled && found < 0;) {
			struct dirent64 *entry = (void *)(room + at);

			at += entry->d_reclen;
			if (entry->d_name[0] != '.' && cookie_of(atoi(entry->d_name)) == cookie)
				found = atoi(entry->d_name);
		}
	syscall(SYS_close, folder);
	return found;
}

static void closed(struct rings *rings, int fd)
{
	int other;

	if (!rings || rings->fd != fd)
		return;
	other = descriptor_of(rings->cookie);
	/* If that is unknown, there may be another one. */
	if (other == -2)
		return;
	rings->fd = other;
	if (other < 0 && !(rings->memory && rings->mapped))
		forget(rings);
}

static int set_ring(int fd, int tx, const struct request *request)
{
	uint64_t cookie = cookie_of(fd);
	struct rings *rings;
	int answer;

	if (!cookie)
		return set_usual(fd, tx, request);
	if (!request->req.tp_block_nr)
		return release(find(cookie), fd, tx, request);
	*why = 0;
	if (!chosen->is_huge) {
		if (!set(fd, chosen->option + tx, request))
			return 0;
		/* The socket has a ring already, or it is mapped: other memory does not help. */
		if (errno == EBUSY)
			return -1;
		warn(tx, errno);
		return set_usual(fd, tx, request);
	}
	start_tracking();
	/* Descriptors that disappeared without close(), as by dup2(). */
	for (int i = 0; i < MAX_SOCKETS; i++)
		if (sockets[i].cookie && sockets[i].fd >= 0 && cookie_of(sockets[i].fd) != sockets[i].cookie)
			closed(&sockets[i], sockets[i].fd);
	rings = find(cookie);
	if (rings && rings->ring[tx].len)
		return set_usual(fd, tx, request);	/* which the kernel refuses */
	if (rings && rings->memory && rings->mapped) {
		errno = EBUSY;
		return -1;
	}
	if (!rings)
		rings = find(0);
	if (!rings) {
		snprintf(why, sizeof(why), "more than %d sockets have rings", MAX_SOCKETS);
		warn(tx, 0);
		return set_usual(fd, tx, request);
	}
	rings->cookie = cookie;
	rings->fd = fd;
	answer = set_huge(rings, fd, tx, request);
	if (!answer)
		rings->ring[tx] = *request;
	if (!rings->ring[0].len && !rings->ring[1].len)
		forget(rings);
	return answer;
}

static bool is_mapping(const struct rings *rings, size_t len)
{
	size_t page = sysconf(_SC_PAGESIZE);

	return (len + page - 1) / page * page == rings->len;
}

/* Whether it was a mapping of lent memory. If only a part of one is unmapped, the memory belongs to the program from
 * then on. */
static bool unmap(char *address, size_t len)
{
	for (int i = 0; i < MAX_SOCKETS; i++) {
		struct rings *rings = &sockets[i];
		bool is_whole;

		if (!rings->memory || address >= rings->memory + rings->size || address + len <= rings->memory)
			continue;
		is_whole = address == rings->memory + rings->offset && is_mapping(rings, len);
		if (!is_whole)
			rings->memory = NULL;
		else if (rings->mapped)
			rings->mapped--;
		/* The memory stays for another mmap(), as a ring of the kernel does. */
		if (rings->fd < 0 && !(rings->memory && rings->mapped))
			forget(rings);
		return is_whole;
	}
	return false;
}

/* The functions of the C library that this library replaces. */

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct request request;
	int answer;

	/* Both requests start with the fields of the shorter one. */
	if (!chosen || level != SOL_PACKET || (name != PACKET_RX_RING && name != PACKET_TX_RING) || !value ||
	    len < sizeof(struct tpacket_req) || !enter(true))
		return syscall(SYS_setsockopt, fd, level, name, value, len);
	request.len = len < sizeof(request.req) ? len : sizeof(request.req);
	memcpy(&request.req, value, request.len);
	answer = set_ring(fd, name == PACKET_TX_RING, &request);
	leave();
	return answer;
}

void *mmap(void *address, size_t len, int protection, int flags, int fd, off_t offset)
{
	uint64_t cookie = fd >= 0 && !(flags & MAP_ANONYMOUS) && is_tracking() ? cookie_of(fd) : 0;
	void *answer = NULL;

	if (cookie && enter(true)) {
		struct rings *rings = find(cookie);

		/* The kernel's rules for rings, except for the address, which is given. */
		if (rings && rings->memory) {
			if (offset || !is_mapping(rings, len) || flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
				errno = EINVAL;
				answer = MAP_FAILED;
			} else {
				rings->mapped++;
				answer = rings->memory + rings->offset;
			}
		}
		leave();
	}
	return answer ? answer : (void *)syscall(SYS_mmap, address, len, protection, flags, fd, offset);
}

/* The same under the name that programs with large files know it by. */
void *mmap64(void *, size_t, int, int, int, off64_t) __attribute__((alias("mmap")));

int munmap(void *address, size_t len)
{
	bool is_ours = false;

	if ((uintptr_t)address < highest && lowest < (uintptr_t)address + len && is_tracking() && enter(true)) {
		is_ours = unmap(address, len);
		leave();
	}
	return is_ours ? 0 : syscall(SYS_munmap, address, len);
}

int close(int fd)
{
	uint64_t cookie = is_tracking() ? cookie_of(fd) : 0;
	int answer = syscall(SYS_close, fd), error = errno;

	if (cookie && enter(false)) {
		closed(find(cookie), fd);
		leave();
	}
	errno = error;
	return answer;
}
