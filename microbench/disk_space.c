#include "disk_space.h"

#include "memory_limits.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>

int disk_space_allows(int folder_fd, const char *folder, uint64_t bytes, char *error, size_t length)
{
    const uint64_t least = UINT64_C(2) << 30;
    struct statfs fs;

    if (fstatfs(folder_fd, &fs) < 0) {
        snprintf(error, length, "cannot tell the free space of %s: %s", folder, strerror(errno));
        return -1;
    }
    uint64_t block = (uint64_t)fs.f_bsize;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * block;
    uint64_t keep = (uint64_t)fs.f_blocks * block / 10;
    if (keep < least)
        keep = least;
    if (free_bytes < keep || free_bytes - keep < bytes) {
        snprintf(error, length,
                 "not enough free disk space in %s: %llu MiB are free, %llu MiB are wanted and %llu MiB must stay free", folder,
                 (unsigned long long)(free_bytes >> 20), (unsigned long long)(bytes >> 20),
                 (unsigned long long)(keep >> 20));
        return -1;
    }
    if (fs.f_type == TMPFS_MAGIC && bytes > memory_available() / 4) {
        snprintf(error, length, "not enough memory available now for %llu MiB of files in %s, which lies in memory",
                 (unsigned long long)(bytes >> 20), folder);
        return -1;
    }
    return 0;
}
