/* Preloaded into a program: adds a byte to the file COMPILED at each call of pcap_compile, and with COMPILE_WAITS
 * does not return from it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int pcap_compile(void *handle, void *program, const char *text, int optimize, unsigned int mask)
{
	int (*real)(void *, void *, const char *, int, unsigned int) = dlsym(RTLD_NEXT, "pcap_compile");
	int file = open(getenv("COMPILED"), O_WRONLY | O_CREAT | O_APPEND, 0644);

	if (write(file, "x", 1) != 1)
		abort();
	close(file);
	while (getenv("COMPILE_WAITS"))
		pause();
	return real(handle, program, text, optimize, mask);
}
