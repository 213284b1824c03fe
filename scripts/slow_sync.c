/* Makes every sync take longer, like on a real disk, by 2 ms or $AVFS_SLOW_SYNC_US: an LD_PRELOAD library for
 * scripts/bench and scripts/test --slow-disk. Appends a byte to the file $AVFS_SYNC_LOG for each sync, if set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int slowly(const char *name, int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
	const char *longer = getenv("AVFS_SLOW_SYNC_US");
	const char *log = getenv("AVFS_SYNC_LOG");

	if (log) {
		int to = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

		if (to < 0 || write(to, "s", 1) != 1)
			abort();
		close(to);
	}
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
