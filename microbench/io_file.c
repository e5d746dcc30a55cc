#include "io_file.h"

#include "clock.h"
#include "disk_space.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static const char file_name[] = "kongming-io.dat";

void io_file_init(struct io_file *file)
{
    *file = (struct io_file){.fd = -1};
}

void io_file_close(struct io_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->buffer != NULL)
        munmap(file->buffer, IO_LARGEST_REQUEST);
    io_file_init(file);
}

static uint64_t stamp_of(uint64_t offset)
{
    uint64_t x = offset + UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

void io_file_stamp(char *buffer, uint64_t offset, uint64_t bytes)
{
    for (uint64_t page = 0; page < bytes; page += IO_PAGE) {
        uint64_t stamp = stamp_of(offset + page);
        memcpy(buffer + page, &stamp, sizeof stamp);
    }
}

uint64_t io_file_wrong_pages(const char *buffer, uint64_t offset, uint64_t bytes)
{
    uint64_t wrong = 0;

    for (uint64_t page = 0; page < bytes; page += IO_PAGE) {
        uint64_t stamp = stamp_of(offset + page);
        wrong += memcmp(buffer + page, &stamp, sizeof stamp) != 0;
    }
    return wrong;
}

/* Random data: nothing that a disk or a file system can compress, or leave out as zero. */
static int make_buffer(struct io_file *file)
{
    file->buffer = mmap(NULL, IO_LARGEST_REQUEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file->buffer == MAP_FAILED) {
        file->buffer = NULL;
        return -1;
    }
    uint64_t *words = (uint64_t *)(void *)file->buffer;
    uint64_t x = 1;
    for (size_t i = 0; i < IO_LARGEST_REQUEST / sizeof *words; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        words[i] = x;
    }
    return 0;
}

/* Asks for direct I/O and tries it; the answer is in `direct`. Memory file systems of recent kernels
 * accept the flag, but have nothing else than the page cache. */
static void try_direct(struct io_file *file)
{
    int flags = fcntl(file->fd, F_GETFL);
    struct statfs fs;

    file->direct = 0;
    if (fstatfs(file->fd, &fs) < 0 || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
        return;
    if (fcntl(file->fd, F_SETFL, flags | O_DIRECT) < 0)
        return;
    char *page = mmap(NULL, IO_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) {
        file->direct = pread(file->fd, page, IO_PAGE, 0) >= 0;
        munmap(page, IO_PAGE);
    }
    if (!file->direct)
        fcntl(file->fd, F_SETFL, flags);
}

static bool page_is_right(const struct io_file *file, char *page, uint64_t offset)
{
    return pread(file->fd, page, IO_PAGE, (off_t)offset) == IO_PAGE && io_file_wrong_pages(page, offset, IO_PAGE) == 0;
}

/* Is it ours, and whole? It gets its name only when it is, but a name can be taken by others. */
static bool complete(struct io_file *file, uint64_t bytes)
{
    struct stat status;
    char *page;
    bool right;

    if (fstat(file->fd, &status) < 0 || !S_ISREG(status.st_mode) || (uint64_t)status.st_size < bytes)
        return false;
    page = mmap(NULL, IO_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return false;
    right = page_is_right(file, page, 0) && page_is_right(file, page, bytes - IO_PAGE);
    munmap(page, IO_PAGE);
    return right;
}

/* The file that was laid out earlier. -1: there is none that can be used. */
static int open_existing(struct io_file *file, int dir_fd, uint64_t bytes)
{
    file->fd = openat(dir_fd, file_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    file->writable = file->fd >= 0;
    if (file->fd < 0)
        file->fd = openat(dir_fd, file_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file->fd < 0)
        return -1;
    try_direct(file);
    if (complete(file, bytes)) {
        file->bytes = bytes;
        return 0;
    }
    close(file->fd);
    file->fd = -1;
    return -1;
}

static int lay_out(struct io_file *file, uint64_t bytes, void (*on_layout)(uint64_t done, uint64_t total))
{
    uint64_t told = clock_now();

    if (fallocate(file->fd, 0, 0, (off_t)bytes) < 0 && errno != EOPNOTSUPP)
        return -1;
    try_direct(file);
    for (uint64_t done = 0; done < bytes;) {
        uint64_t piece = bytes - done < IO_LARGEST_REQUEST ? bytes - done : IO_LARGEST_REQUEST;
        io_file_stamp(file->buffer, done, piece);
        ssize_t written = pwrite(file->fd, file->buffer, piece, (off_t)done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < IO_PAGE) {
            if (written >= 0)
                errno = ENOSPC;
            return -1;
        }
        done += (uint64_t)written / IO_PAGE * IO_PAGE;
        if (on_layout != NULL && (done == bytes || clock_now() - told > 100 * NS_PER_MS)) {
            on_layout(done, bytes);
            told = clock_now();
        }
    }
    if (fdatasync(file->fd) < 0)
        return -1;
    file->bytes = bytes;
    return 0;
}

/* A file that is gone with its last descriptor. */
static int open_nameless(struct io_file *file, int dir_fd, const struct scratch_folder *folder)
{
    file->writable = true;
    file->fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file->fd >= 0)
        return 0;
    /* Not every file system can; then it has a name for a moment, in a folder that is swept. */
    file->fd = openat(folder->fd, "io", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return file->fd >= 0 ? 0 : -1;
}

/* Gives a nameless file its name. */
static int publish(struct io_file *file, int dir_fd, const struct scratch_folder *folder)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
    if (unlinkat(dir_fd, file_name, 0) < 0 && errno != ENOENT)
        return -1;
    if (linkat(AT_FDCWD, path, dir_fd, file_name, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    return renameat(folder->fd, "io", dir_fd, file_name);
}

int io_file_open(struct io_file *file, const struct io_file_request *request, struct scratch_folder *folder, char *error,
                 size_t length)
{
    uint64_t bytes = request->bytes / IO_PAGE * IO_PAGE;
    int dir_fd = -1;

    io_file_init(file);
    if (make_buffer(file) < 0)
        goto failed;
    dir_fd = open(request->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        goto failed;
    if (open_existing(file, dir_fd, bytes) == 0)
        goto done;

    if (request->own) {
        uint64_t enough = 4 * request->block_bytes;
        if (enough < UINT64_C(256) << 20)
            enough = UINT64_C(256) << 20;
        if (bytes > enough)
            bytes = enough;
    } else {
        /* One layout at a time; who waited finds the file of the one before. */
        while (flock(dir_fd, LOCK_EX) < 0 && errno == EINTR)
            ;
        if (open_existing(file, dir_fd, bytes) == 0)
            goto done;
    }
    if (disk_space_allows(dir_fd, request->dir, bytes, error, length) < 0 ||
        scratch_folder_make(folder, request->dir, error, length) < 0)
        goto failed_and_said;
    if (open_nameless(file, dir_fd, folder) < 0)
        goto failed;
    if (lay_out(file, bytes, request->on_layout) < 0)
        goto failed;
    if (request->own)
        unlinkat(folder->fd, "io", 0);
    else if (publish(file, dir_fd, folder) < 0)
        goto failed;
done:
    close(dir_fd); /* and with it the lock */
    return 0;
failed:
    snprintf(error, length, "no file for block I/O in %s: %s", request->dir, strerror(errno));
failed_and_said:
    if (dir_fd >= 0)
        close(dir_fd);
    io_file_close(file);
    return -1;
}
