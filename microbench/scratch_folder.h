/* A folder of this process's own for small files, `.kongming-BOOT-PID-XXXXXX`.
 *
 * It is locked as long as the process lives. Who runs on the same boot of the same machine, and can
 * lock one, knows that nobody lives there any more and removes it: so even what is left after
 * kill -9 is gone with the next start. A lock says nothing of the processes of other machines that
 * share the file system; their folders have another name of a boot, and stay. */
#ifndef KONGMING_SCRATCH_FOLDER_H
#define KONGMING_SCRATCH_FOLDER_H

#include <stddef.h>

struct scratch_folder {
    int parent_fd; /* -1: there is none */
    int fd;
    char name[64];
};

void scratch_folder_init(struct scratch_folder *folder);

/* Does nothing if it is there. -1 with a sentence. */
int scratch_folder_make(struct scratch_folder *folder, const char *dir, char *error, size_t length);

/* With all that is in it. May be called from another thread while files are still being made, if
 * that is about to end. */
void scratch_folder_remove(struct scratch_folder *folder);

/* Removes the folders of this boot in DIR in which nobody lives. */
void scratch_folder_sweep(const char *dir);

#endif
