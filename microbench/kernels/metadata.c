/* metadata.{create,delete}: a thousand empty files in a folder, made one after the other, or
 * deleted. The other half of the work is done between the batches, untimed.
 *
 * Each thousand gets a new folder. An ext4 without a journal takes no inode that was deleted within
 * the last minute, and looks at all of those first: in one folder, the creation of a file soon takes
 * a hundred times as long, and what is measured is how often it was measured before. */
#include "clock.h"
#include "disk_space.h"
#include "resources.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum mode { CREATE, DELETE };

enum { FILES = 1000 };

struct files {
    enum mode mode;
    int fd;        /* the present folder, within the private one; -1: none */
    char folder[32];
    unsigned first; /* the files that are there are those from `first` to before `end` */
    unsigned end;
};

static int create_next(struct instance *self)
{
    struct files *files = self->state;
    char name[16];

    if (stopping())
        return fail(self, "it was told to stop");
    snprintf(name, sizeof name, "%04u", files->end);
    int fd = openat(files->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(self, "cannot create a file: %s", strerror(errno));
    close(fd);
    files->end++;
    return 0;
}

static int delete_next(struct instance *self)
{
    struct files *files = self->state;
    char name[16];

    snprintf(name, sizeof name, "%04u", files->first);
    if (unlinkat(files->fd, name, 0) < 0)
        return fail(self, "cannot delete a file: %s", strerror(errno));
    files->first++;
    return 0;
}

static void leave_folder(struct instance *self)
{
    struct files *files = self->state;

    if (files->fd < 0)
        return;
    close(files->fd);
    files->fd = -1;
    unlinkat(self->shared->folder.fd, files->folder, AT_REMOVEDIR);
}

/* Removes the present folder, which is empty, and makes the next. */
static int next_folder(struct instance *self)
{
    struct files *files = self->state;
    const unsigned long long random = clock_now() * UINT64_C(0x9e3779b97f4a7c15);
    int parent = self->shared->folder.fd;

    leave_folder(self);
    files->first = files->end = 0;
    if (stopping())
        return fail(self, "it was told to stop");
    /* Where ext4 puts a folder depends on its name. */
    snprintf(files->folder, sizeof files->folder, "%s-%016llx", files->mode == CREATE ? "create" : "delete",
             random);
    if (mkdirat(parent, files->folder, 0700) < 0)
        return fail(self, "cannot make a folder: %s", strerror(errno));
    files->fd = openat(parent, files->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (files->fd < 0)
        return fail(self, "cannot open a folder: %s", strerror(errno));
    return 0;
}

/* Tells ext4 that the folders in this one have nothing to do with each other, so that it does not
 * put them side by side; other file systems do not know it. */
static void spread_folders(int fd)
{
    int flags; /* the kernel takes an int, whatever the number of the request says */

    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0) {
        flags |= FS_TOPDIR_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
}

static int setup(struct instance *self)
{
    struct files *files = calloc(1, sizeof *files);
    const struct resources *shared = self->shared;

    self->state = files;
    if (files == NULL)
        return fail(self, "no memory");
    files->fd = -1;
    files->mode = (enum mode)self->surrogate->variant->mode;
    if (resources_folder(self) < 0)
        return -1;
    if (disk_space_allows(shared->folder.fd, shared->config->dir, MIB(4), self->error, sizeof self->error) < 0)
        return -1;
    spread_folders(shared->folder.fd);
    return next_folder(self);
}

/* Half of the time that is left, at most: on a slow file system fewer than a thousand must do. */
static uint64_t refill_deadline(const struct instance *self)
{
    uint64_t now = clock_now();

    return self->deadline_ns > now ? now + (self->deadline_ns - now) / 2 : now;
}

static int refill(struct instance *self)
{
    enum { LEAST = 8 };
    struct files *files = self->state;
    uint64_t until;

    if (files->mode == CREATE) {
        if (files->end == FILES) {
            while (files->first < files->end)
                if (delete_next(self) < 0)
                    return -1;
            if (next_folder(self) < 0)
                return -1;
        }
        self->max_steps = FILES - files->end;
        return 0;
    }
    if (files->first == files->end) {
        if (next_folder(self) < 0)
            return -1;
        until = refill_deadline(self);
        while (files->end < FILES && (files->end < LEAST || clock_now() < until))
            if (create_next(self) < 0)
                return -1;
    }
    self->max_steps = files->end - files->first;
    return 0;
}

static int run(struct instance *self, uint64_t steps)
{
    const struct files *files = self->state;
    int (*next)(struct instance *) = files->mode == CREATE ? create_next : delete_next;

    for (; steps > 0; steps--)
        if (next(self) < 0)
            return -1;
    return 0;
}

/* Of the files around the end of the work, those are there that should be. */
static int verify(struct instance *self)
{
    const struct files *files = self->state;
    struct stat status;
    char name[16];

    if (files->end > files->first) {
        snprintf(name, sizeof name, "%04u", files->end - 1);
        if (fstatat(files->fd, name, &status, 0) < 0)
            return fail(self, "a file that was created is not there");
    }
    snprintf(name, sizeof name, "%04u", files->first - 1);
    if (files->first > 0 && fstatat(files->fd, name, &status, 0) == 0)
        return fail(self, "a file that was deleted is still there");
    return 0;
}

static void teardown(struct instance *self)
{
    struct files *files = self->state;

    if (files != NULL && files->fd >= 0) {
        while (files->first < files->end && delete_next(self) == 0)
            ;
        leave_folder(self);
    }
    free(files);
}

#define HALF(SUFFIX, MODE, SUITES, SENTENCE) {SUFFIX, SIZE_NONE, 0, "metadata", SUITES, true, MODE, 0, SENTENCE}

static const struct variant variants[] = {
    HALF("create", CREATE, IN_ALL, "Creates a thousand empty files in a folder"),
    HALF("delete", DELETE, NOT_QUICK, "Deletes a thousand empty files from a folder"),
};

const struct microbench metadata_microbench = {
    .prefix = "metadata",
    .op = "one file",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .whole_ops = FILES,
    .setup = setup,
    .refill = refill,
    .run = run,
    .verify = verify,
    .teardown = teardown,
};
