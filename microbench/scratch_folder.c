#include "scratch_folder.h"

#include "clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = ".kongming-";

enum { DEEPEST = 2 }; /* folders of the kernels lie in it, and nothing deeper */

void scratch_folder_init(struct scratch_folder *folder)
{
    folder->parent_fd = -1;
    folder->fd = -1;
    folder->name[0] = '\0';
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as DEEPEST says */
static void empty(int fd, int depth)
{
    /* A descriptor of its own, for closedir() takes it along; reopened, for a duplicate would share
     * the position and not begin at the first entry. */
    int listing = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = listing >= 0 ? fdopendir(listing) : NULL;

    if (entries == NULL) {
        if (listing >= 0)
            close(listing);
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, entry->d_name, 0) == 0 || depth >= DEEPEST)
            continue;
        int inner = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner >= 0) {
            empty(inner, depth + 1);
            close(inner);
            unlinkat(fd, entry->d_name, AT_REMOVEDIR);
        }
    }
    closedir(entries);
}

static void remove_tree(int parent_fd, int fd, const char *name)
{
    const uint64_t give_up = clock_now() + NS_PER_S;

    do
        empty(fd, 0);
    while (unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 && errno == ENOTEMPTY && clock_now() < give_up);
}

static void sweep(int parent_fd)
{
    int listing = openat(parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = listing >= 0 ? fdopendir(listing) : NULL;

    if (entries == NULL) {
        if (listing >= 0)
            close(listing);
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0)
            continue;
        int fd = openat(parent_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            remove_tree(parent_fd, fd, entry->d_name);
        close(fd);
    }
    closedir(entries);
}

void scratch_folder_sweep(const char *dir)
{
    int parent_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (parent_fd < 0)
        return;
    sweep(parent_fd);
    close(parent_fd);
}

/* A name that is new, without mkdtemp(), which knows no descriptors. */
static int make_new(struct scratch_folder *folder)
{
    static unsigned serial;

    for (int attempt = 0; attempt < 100; attempt++) {
        uint64_t salt = (clock_now() ^ ((uint64_t)++serial << 40)) * UINT64_C(0x9e3779b97f4a7c15);
        snprintf(folder->name, sizeof folder->name, "%s%d-%06x", prefix, (int)getpid(), (unsigned)(salt >> 40));
        if (mkdirat(folder->parent_fd, folder->name, 0700) == 0)
            return 0;
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

/* Somebody who sweeps may have come between making and locking: then the folder has no link left.
 * Where a file system knows no locks, nobody can lock the folder to sweep it either. */
static bool locked_and_there(int fd)
{
    struct stat status;

    if (fd < 0 || (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK))
        return false;
    return fstat(fd, &status) == 0 && status.st_nlink > 0;
}

int scratch_folder_make(struct scratch_folder *folder, const char *dir, char *error, size_t length)
{
    if (folder->fd >= 0)
        return 0;
    folder->parent_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->parent_fd < 0)
        goto failed;
    sweep(folder->parent_fd);
    for (int attempt = 0; attempt < 10; attempt++) {
        if (make_new(folder) < 0)
            goto failed;
        folder->fd = openat(folder->parent_fd, folder->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (locked_and_there(folder->fd))
            return 0;
        if (folder->fd >= 0)
            close(folder->fd);
        folder->fd = -1;
    }
    errno = EAGAIN;
failed:
    snprintf(error, length, "no files can be made in %s: %s", dir, strerror(errno));
    if (folder->parent_fd >= 0)
        close(folder->parent_fd);
    scratch_folder_init(folder);
    return -1;
}

void scratch_folder_remove(struct scratch_folder *folder)
{
    if (folder->parent_fd < 0)
        return;
    if (folder->fd >= 0) {
        remove_tree(folder->parent_fd, folder->fd, folder->name);
        close(folder->fd);
    } else { /* told to end in the middle of making it */
        unlinkat(folder->parent_fd, folder->name, AT_REMOVEDIR);
    }
    close(folder->parent_fd);
    scratch_folder_init(folder);
}
