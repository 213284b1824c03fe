/* Makes every sync take longer, like on a real disk, by 2 ms or $AVFS_SLOW_SYNC_US: an LD_PRELOAD library for
 * scripts/bench and scripts/test --slow-disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int slowly(const char *name, int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
	const char *longer = getenv("AVFS_SLOW_SYNC_US");

	usleep(longer ? atoi(longer) : 2000);
	return real(fd);
}

int fsync(int fd)
{
	return slowly("fsync", fd);
}

int fdatasync(int fd)
{
	return slowly("fdatasync", fd);
}
