/* iobench.{read,write}.*: blocks at random places of a file that is larger, one request at a time.
 * A block too large for one request is a row of them, and may remain unfinished: so a step is a
 * request, and an operation the share of the block that it makes up. */
#include "clock.h"
#include "io_file.h"
#include "resources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum mode { READ, WRITE };

struct blocks {
    enum mode mode;
    char *buffer;        /* of the largest request */
    uint64_t random;     /* state of the choice of places */
    uint64_t block;      /* bytes */
    uint64_t offset;     /* where the present block begins */
    uint64_t done;       /* of it */
    uint64_t request;    /* bytes of one */
    uint64_t next;       /* bytes of the coming one */
    uint64_t last;       /* bytes of the last one, 0 before it */
    uint64_t last_offset;
    double ns_per_byte;  /* of the last requests, 0 before them */
};

static void begin_block(struct blocks *b, uint64_t file_bytes)
{
    uint64_t grain = b->block < IO_LARGEST_REQUEST ? b->block : IO_LARGEST_REQUEST;
    uint64_t places = (file_bytes - b->block) / grain + 1;

    b->random = b->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    b->offset = (b->random >> 33) % places * grain;
    b->done = 0;
}

static int setup(struct instance *self)
{
    struct blocks *b = calloc(1, sizeof *b);

    self->state = b;
    if (b == NULL)
        return fail(self, "no memory");
    b->mode = (enum mode)self->surrogate->variant->mode;
    if (resources_io_file(self) < 0)
        return -1;
    if (b->mode == WRITE && !self->shared->io.writable)
        return fail(self, "the file for block I/O in %s cannot be written", self->shared->config->dir);
    if (b->mode == WRITE) {
        b->buffer = self->shared->io.buffer;
    } else {
        b->buffer = resources_map(self, IO_LARGEST_REQUEST);
        if (b->buffer == NULL)
            return -1;
    }
    b->block = self->surrogate->size_bytes;
    b->random = clock_now();
    b->request = IO_LARGEST_REQUEST;
    begin_block(b, self->shared->io.bytes);
    return 0;
}

/* One request at the present place, or the reason in errno. */
static int request(const struct instance *self, const struct blocks *b, uint64_t offset, uint64_t bytes)
{
    const struct io_file *file = &self->shared->io;

    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = b->mode == READ ? pread(file->fd, b->buffer + done, bytes - done, (off_t)(offset + done))
                                    : pwrite(file->fd, b->buffer + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = ENODATA;
            return -1;
        }
        done += (uint64_t)n;
    }
    /* Through the page cache a write has reached the disk only now, and so it does when it is
     * direct. */
    if (b->mode == WRITE && !file->direct)
        return fdatasync(file->fd);
    return 0;
}

static int prepare(const struct instance *self, const struct blocks *b, uint64_t offset, uint64_t bytes)
{
    if (b->mode == WRITE)
        io_file_stamp(b->buffer, offset, bytes);
    else if (!self->shared->io.direct)
        posix_fadvise(self->shared->io.fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
    return 0;
}

static int failed(struct instance *self, const struct blocks *b)
{
    return fail(self, "cannot %s the file for block I/O: %s", b->mode == READ ? "read" : "write", strerror(errno));
}

/* A small request tells how fast the device is now, and thus how large one may be that ends well
 * within the time. */
static int warm(struct instance *self)
{
    enum { TRIAL = 64 << 10 };
    struct blocks *b = self->state;
    uint64_t start;
    double slowest;
    double left;

    begin_block(b, self->shared->io.bytes);
    prepare(self, b, b->offset, TRIAL);
    start = clock_now();
    if (request(self, b, b->offset, TRIAL) < 0)
        return failed(self, b);
    /* Small requests are slower by the byte: trust larger ones if there were any. */
    slowest = (double)(clock_now() - start) / (double)TRIAL;
    if (b->ns_per_byte > 0 && b->ns_per_byte * 2 < slowest)
        slowest = b->ns_per_byte * 2;
    left = self->deadline_ns > clock_now() ? (double)(self->deadline_ns - clock_now()) : 0;
    b->request = IO_LARGEST_REQUEST;
    while (b->request > IO_PAGE && slowest * (double)b->request > left / 2)
        b->request /= 2;
    b->last = 0;
    return 0;
}

static int refill(struct instance *self)
{
    struct blocks *b = self->state;

    if (b->done == b->block)
        begin_block(b, self->shared->io.bytes);
    b->next = b->request < b->block - b->done ? b->request : b->block - b->done;
    self->max_steps = 1;
    self->ops_per_step = (double)b->next / (double)b->block;
    return prepare(self, b, b->offset + b->done, b->next);
}

static int run(struct instance *self, uint64_t steps)
{
    struct blocks *b = self->state;
    uint64_t start = clock_now();

    for (; steps > 0; steps--) {
        if (request(self, b, b->offset + b->done, b->next) < 0)
            return failed(self, b);
        b->last_offset = b->offset + b->done;
        b->last = b->next;
        b->done += b->next;
    }
    if (b->next >= IO_PAGE)
        b->ns_per_byte = (double)(clock_now() - start) / (double)b->next;
    return 0;
}

/* What was read last is what belongs there; what was written last is read again. */
static int verify(struct instance *self)
{
    struct blocks *b = self->state;
    uint64_t checked = b->last;

    if (b->last == 0)
        return 0;
    if (b->mode == WRITE) {
        checked = IO_PAGE;
        if (pread(self->shared->io.fd, b->buffer, checked, (off_t)b->last_offset) != (ssize_t)checked)
            return failed(self, b);
    }
    if (io_file_wrong_pages(b->buffer, b->last_offset, checked) != 0)
        return fail(self, "the file for block I/O does not hold what was written to it");
    return 0;
}

static void teardown(struct instance *self)
{
    struct blocks *b = self->state;

    if (b == NULL)
        return;
    if (b->mode == READ)
        resources_unmap(b->buffer, IO_LARGEST_REQUEST);
    free(b);
}

#define BLOCK(SUFFIX, MODE, BYTES, FAMILY, SUITES, SENTENCE) \
    {SUFFIX, SIZE_BLOCK, BYTES, FAMILY, SUITES, true, MODE, BYTES_ARE_SIZE, SENTENCE}

static const struct variant variants[] = {
    BLOCK("read.4M", READ, MIB(4), "read", IN_ALL, "Reads blocks of 4 MiB at random places of a file, past the page cache"),
    BLOCK("read.64M", READ, MIB(64), "read", NOT_QUICK, "Reads blocks of 64 MiB, each in requests of up to 4 MiB"),
    BLOCK("read.1G", READ, GIB(1), "read", NOT_QUICK, "Reads blocks of 1 GiB, each in requests of up to 4 MiB"),
    BLOCK("write.4M", WRITE, MIB(4), "write", IN_ALL, "Overwrites blocks of 4 MiB at random places of a file, past the page cache"),
    BLOCK("write.64M", WRITE, MIB(64), "write", NOT_QUICK, "Overwrites blocks of 64 MiB, each in requests of up to 4 MiB"),
    BLOCK("write.1G", WRITE, GIB(1), "write", NOT_QUICK, "Overwrites blocks of 1 GiB, each in requests of up to 4 MiB"),
};

const struct microbench iobench_microbench = {
    .prefix = "iobench",
    .op = "one block",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .whole_ops = 1,
    .setup = setup,
    .warm = warm,
    .refill = refill,
    .run = run,
    .verify = verify,
    .teardown = teardown,
};
