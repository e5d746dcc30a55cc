#include "scratch_folder.h"

#include "clock.h"

#include <ctype.h>
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

enum {
    DEEPEST = 2, /* folders of the kernels lie in it, and nothing deeper */
    BOOT_DIGITS = 12,
    SALT_DIGITS = 6,
};

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

/* The first digits of the random name of this boot of this machine; "" where it is not known. The
 * containers of a machine share it, as they share its locks. */
static void read_boot(char boot[BOOT_DIGITS + 1])
{
    char text[64];
    size_t digits = 0;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text) : -1;

    for (ssize_t i = 0; i < length && digits < BOOT_DIGITS; i++)
        if (isxdigit((unsigned char)text[i]))
            boot[digits++] = text[i];
    boot[digits == BOOT_DIGITS ? digits : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* `.kongming-BOOT-PID-XXXXXX`, and nothing else: a folder of the user's may begin like it. */
static bool made_here(const char *name, const char *boot)
{
    const char *rest = name + sizeof prefix - 1;
    size_t digits;

    if (boot[0] == '\0' || strncmp(name, prefix, sizeof prefix - 1) != 0 || strncmp(rest, boot, BOOT_DIGITS) != 0 ||
        rest[BOOT_DIGITS] != '-')
        return false;
    rest += BOOT_DIGITS + 1;
    digits = strspn(rest, "0123456789");
    if (digits == 0 || rest[digits] != '-')
        return false;
    rest += digits + 1;
    return strlen(rest) == SALT_DIGITS && strspn(rest, "0123456789abcdef") == SALT_DIGITS;
}

static void sweep(int parent_fd)
{
    char boot[BOOT_DIGITS + 1];
    int listing = openat(parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = listing >= 0 ? fdopendir(listing) : NULL;

    if (entries == NULL) {
        if (listing >= 0)
            close(listing);
        return;
    }
    read_boot(boot);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (!made_here(entry->d_name, boot))
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
    char boot[BOOT_DIGITS + 1];

    read_boot(boot);
    for (int attempt = 0; attempt < 100; attempt++) {
        uint64_t salt = (clock_now() ^ ((uint64_t)++serial << 40)) * UINT64_C(0x9e3779b97f4a7c15);
        snprintf(folder->name, sizeof folder->name, "%s%s%s%d-%0*x", prefix, boot, boot[0] == '\0' ? "" : "-", (int)getpid(),
                 SALT_DIGITS, (unsigned)(salt >> 40));
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
