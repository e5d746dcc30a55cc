#include "memory_limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of the line that begins with that key, in whatever unit it has. 0: there is none. */
static uint64_t field_of(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    char line[256];
    uint64_t value = 0;
    size_t length = strlen(key);

    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, length) == 0) {
            value = strtoull(line + length, NULL, 10);
            break;
        }
    }
    fclose(file);
    return value;
}

/* The number that a file consists of. UINT64_MAX: no such file, or it says "max". */
static uint64_t number_in(const char *path)
{
    FILE *file = fopen(path, "re");
    char text[64];
    char *end = text;
    uint64_t value = UINT64_MAX;

    if (file == NULL)
        return UINT64_MAX;
    if (fgets(text, sizeof text, file) != NULL)
        value = strtoull(text, &end, 10);
    fclose(file);
    return end != text ? value : UINT64_MAX;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What a memory group and those above it leave. */
static uint64_t left_in_group(const char *root, char *group, const char *limit_name, const char *usage_name,
                              const char *cache_key)
{
    uint64_t left = UINT64_MAX;

    for (;;) {
        char path[512];
        uint64_t limit;
        uint64_t usage;
        uint64_t cache;

        snprintf(path, sizeof path, "%s%s/%s", root, group, limit_name);
        limit = number_in(path);
        snprintf(path, sizeof path, "%s%s/%s", root, group, usage_name);
        usage = number_in(path);
        if (limit != UINT64_MAX && usage != UINT64_MAX) {
            /* Page cache that can be dropped counts as used there, but is to be had. */
            snprintf(path, sizeof path, "%s%s/memory.stat", root, group);
            cache = field_of(path, cache_key);
            usage = usage > cache ? usage - cache : 0;
            left = smaller(left, limit > usage ? limit - usage : 0);
        }
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return left;
        *slash = '\0';
    }
}

uint64_t memory_available(void)
{
    uint64_t available = field_of("/proc/meminfo", "MemAvailable:") * 1024;
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[256];

    if (file == NULL)
        return available;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        if (controllers[1] == '\0') /* version 2 */
            available = smaller(available,
                                left_in_group("/sys/fs/cgroup", group, "memory.max", "memory.current", "inactive_file "));
        else if (strcmp(controllers + 1, "memory") == 0) /* version 1 */
            available = smaller(available, left_in_group("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                                                         "memory.usage_in_bytes", "total_inactive_file "));
    }
    fclose(file);
    return available;
}
