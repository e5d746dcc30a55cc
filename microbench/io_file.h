/* The file for block I/O, `kongming-io.dat`: laid out once with real data and kept, then read, and
 * overwritten in place, past the page cache where the file system lets one. */
#ifndef KONGMING_IO_FILE_H
#define KONGMING_IO_FILE_H

#include "scratch_folder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IO_PAGE = 4096, IO_LARGEST_REQUEST = 4 << 20 };

struct io_file {
    int fd; /* -1: not open */
    bool writable;
    int direct; /* 1: past the page cache */
    uint64_t bytes;
    char *buffer; /* IO_LARGEST_REQUEST bytes, aligned, of random data */
};

struct io_file_request {
    const char *dir;
    uint64_t bytes;       /* of the shared file */
    uint64_t block_bytes; /* the largest block for which a file of one's own is wanted */
    bool own;             /* if the shared file is not there: one without a name, which vanishes */
    void (*on_layout)(uint64_t done, uint64_t total);
};

void io_file_init(struct io_file *file);
int io_file_open(struct io_file *file, const struct io_file_request *request, struct scratch_folder *folder,
                 char *error, size_t length);
void io_file_close(struct io_file *file);

/* Each page of the file begins with a number that follows from its place: these put it into the
 * pages of a request, and count the pages of one in which it is wrong. */
void io_file_stamp(char *buffer, uint64_t offset, uint64_t bytes);
uint64_t io_file_wrong_pages(const char *buffer, uint64_t offset, uint64_t bytes);

#endif
