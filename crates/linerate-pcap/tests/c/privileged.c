/* A program with capabilities that its caller lacks, which loads this libpcap itself: privileged LIBRARY */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	const char *(*version)(void);

	if (!library)
		return printf("%s\n", dlerror()), 2;
	*(void **)&version = dlsym(library, "pcap_lib_version");
	return printf("%s\n", version()) < 0;
}
