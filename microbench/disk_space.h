/* How much may be written to a disk. */
#ifndef KONGMING_DISK_SPACE_H
#define KONGMING_DISK_SPACE_H

#include <stddef.h>
#include <stdint.h>

/* 0 when so many more bytes leave a tenth of the disk, and 2 GiB at least, free; else -1 with a
 * sentence. */
int disk_space_allows(int folder_fd, const char *folder, uint64_t bytes, char *error, size_t length);

#endif
