/* JSON lines on standard output: one object, one line, one write. */
#ifndef KONGMING_JSON_H
#define KONGMING_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
    size_t used;
    bool overflow;
    bool comma; /* something stands before the next value */
    char text[16384];
};

void json_begin(struct json *j);

/* A key and its value. A key of NULL writes the value alone, as in an array. */
void json_string(struct json *j, const char *key, const char *value); /* NULL gives null */
void json_unsigned(struct json *j, const char *key, uint64_t value);
void json_signed(struct json *j, const char *key, int64_t value);
void json_double(struct json *j, const char *key, double value); /* not finite gives null */
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);
void json_array_begin(struct json *j, const char *key);
void json_array_end(struct json *j);

/* Closes the object and writes the line. -1 when nobody reads it any more. */
int json_end(struct json *j);

/* Closes the object and returns it as a string that lives in j: what json_end would write. */
const char *json_finish(struct json *j);

#endif
