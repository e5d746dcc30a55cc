/* iobench.fsync: 4 KiB at the end of a file, down to the disk: what a database does to commit. */
#include "disk_space.h"
#include "resources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { APPEND_BYTES = 4096 };

static const uint64_t LARGEST = MIB(16);

static const char name[] = "append";

struct log {
    int fd;
    uint64_t bytes;
    char data[APPEND_BYTES];
};

static int setup(struct instance *self)
{
    struct log *log = calloc(1, sizeof *log);

    self->state = log;
    if (log == NULL)
        return fail(self, "no memory");
    log->fd = -1;
    if (resources_folder(self) < 0)
        return -1;
    if (disk_space_allows(self->shared->folder.fd, self->shared->config->dir, LARGEST, self->error, sizeof self->error) < 0)
        return -1;
    /* With a name: some file systems make no effort to keep a file that has none. */
    log->fd = openat(self->shared->folder.fd, name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (log->fd < 0)
        return fail(self, "no file to append to: %s", strerror(errno));
    for (size_t i = 0; i < APPEND_BYTES; i++)
        log->data[i] = (char)(i * 7 + 1);
    return 0;
}

static int refill(struct instance *self)
{
    struct log *log = self->state;

    if (log->bytes + APPEND_BYTES > LARGEST) {
        if (ftruncate(log->fd, 0) < 0)
            return fail(self, "the file cannot be truncated: %s", strerror(errno));
        log->bytes = 0;
    }
    self->max_steps = (LARGEST - log->bytes) / APPEND_BYTES;
    return 0;
}

static int run(struct instance *self, uint64_t steps)
{
    struct log *log = self->state;

    for (; steps > 0; steps--) {
        if (write(log->fd, log->data, APPEND_BYTES) != APPEND_BYTES || fsync(log->fd) < 0)
            return fail(self, "cannot append to a file: %s", strerror(errno));
        log->bytes += APPEND_BYTES;
    }
    return 0;
}

static int verify(struct instance *self)
{
    const struct log *log = self->state;
    struct stat status;

    if (fstat(log->fd, &status) < 0 || (uint64_t)status.st_size != log->bytes)
        return fail(self, "the file is not as long as what was appended");
    return 0;
}

static void teardown(struct instance *self)
{
    struct log *log = self->state;

    if (log != NULL && log->fd >= 0) {
        close(log->fd);
        unlinkat(self->shared->folder.fd, name, 0);
    }
    free(log);
}

static const struct variant variants[] = {
    {"fsync", SIZE_NONE, 0, "write", IN_ALL, false, 0, APPEND_BYTES, "Appends 4 KiB to a file and waits until the disk has it"},
};

const struct microbench iobench_fsync_microbench = {
    .prefix = "iobench",
    .op = "one 4 KiB append and fsync",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .setup = setup,
    .refill = refill,
    .run = run,
    .verify = verify,
    .teardown = teardown,
};
