/* The contents of a disk after a power loss: copies the current content of every synced file to $AVFS_TEST_DURABLE.
 * An LD_PRELOAD library for tests/e2e/power_loss.rs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void keep(int fd)
{
	const char *dir = getenv("AVFS_TEST_DURABLE");
	char link[64], path[4096], part[8192], whole[8192], block[65536];
	struct stat st;
	ssize_t length;
	off_t at = 0;
	int copy;

	if (!dir || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof path - 1);
	if (length < 0)
		abort();
	path[length] = 0;
	snprintf(whole, sizeof whole, "%s/%s", dir, strrchr(path, '/') + 1);
	snprintf(part, sizeof part, "%s.%d", whole, gettid());
	copy = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	/* The descriptor may be write-only, but the path can be opened again. */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (copy < 0 || fd < 0)
		abort();
	while ((length = pread(fd, block, sizeof block, at)) > 0) {
		if (write(copy, block, length) != length)
			abort();
		at += length;
	}
	close(copy);
	/* fd stays open: closing it would release the locks that this process holds on the file. */
	if (rename(part, whole))
		abort();
	snprintf(part, sizeof part, "%s/syncs", dir);
	copy = open(part, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	length = snprintf(block, sizeof block, "%s\n", path);
	if (copy < 0 || write(copy, block, length) != length)
		abort();
	close(copy);
}

static int sync_by(const char *name, int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
	int failed = real(fd);

	if (!failed)
		keep(fd);
	return failed;
}

int fsync(int fd)
{
	return sync_by("fsync", fd);
}

int fdatasync(int fd)
{
	return sync_by("fdatasync", fd);
}
