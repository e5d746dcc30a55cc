#include "json.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Kept for the closing brace, the newline and the terminating zero. */
enum { RESERVED = 3 };

static void put(struct json *j, const char *text, size_t length)
{
    if (j->overflow || length > sizeof j->text - RESERVED - j->used) {
        j->overflow = true;
        return;
    }
    memcpy(j->text + j->used, text, length);
    j->used += length;
}

__attribute__((format(printf, 2, 3))) static void put_formatted(struct json *j, const char *format, ...)
{
    char text[64];
    va_list arguments;

    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): the analyser loses sight of va_start() */
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put(j, text, (size_t)length);
}

/* Bytes of the UTF-8 character at the beginning of a text; 0: it is none. */
static size_t utf8_length(const unsigned char *text)
{
    size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;

    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    /* Longer than need be, half of a pair, or beyond the last character. */
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

static void put_quoted(struct json *j, const char *value)
{
    put(j, "\"", 1);
    for (; *value != '\0'; value++) {
        unsigned char c = (unsigned char)*value;
        size_t length = c >= 0x80 ? utf8_length((const unsigned char *)value) : 0;
        if (length > 0) {
            put(j, value, length);
            value += length - 1;
            continue;
        }
        if (c == '"' || c == '\\') {
            char escaped[2] = {'\\', *value};
            put(j, escaped, 2);
        } else if (c == '\n') {
            put(j, "\\n", 2);
        } else if (c < 0x20 || c >= 0x7f) {
            /* File names may hold any bytes: taken for Latin-1, the line is valid all the same. */
            put_formatted(j, "\\u%04x", c);
        } else {
            put(j, value, 1);
        }
    }
    put(j, "\"", 1);
}

static void put_key(struct json *j, const char *key)
{
    if (j->comma)
        put(j, ",", 1);
    j->comma = true;
    if (key != NULL) {
        put_quoted(j, key);
        put(j, ":", 1);
    }
}

void json_begin(struct json *j)
{
    j->used = 0;
    j->overflow = false;
    put(j, "{", 1);
    j->comma = false;
}

void json_string(struct json *j, const char *key, const char *value)
{
    if (value == NULL) {
        json_null(j, key);
        return;
    }
    put_key(j, key);
    put_quoted(j, value);
}

void json_unsigned(struct json *j, const char *key, uint64_t value)
{
    put_key(j, key);
    put_formatted(j, "%llu", (unsigned long long)value);
}

void json_signed(struct json *j, const char *key, int64_t value)
{
    put_key(j, key);
    put_formatted(j, "%lld", (long long)value);
}

void json_double(struct json *j, const char *key, double value)
{
    if (!isfinite(value)) {
        json_null(j, key);
        return;
    }
    put_key(j, key);
    put_formatted(j, "%.17g", value);
}

void json_bool(struct json *j, const char *key, bool value)
{
    put_key(j, key);
    put_formatted(j, "%s", value ? "true" : "false");
}

void json_null(struct json *j, const char *key)
{
    put_key(j, key);
    put(j, "null", 4);
}

void json_array_begin(struct json *j, const char *key)
{
    put_key(j, key);
    put(j, "[", 1);
    j->comma = false;
}

void json_array_end(struct json *j)
{
    put(j, "]", 1);
    j->comma = true;
}

const char *json_finish(struct json *j)
{
    if (j->overflow)
        j->used = (size_t)snprintf(j->text, sizeof j->text, "{\"event\":\"error\",\"error\":\"a result was too long\"");
    j->text[j->used++] = '}';
    j->text[j->used++] = '\n';
    j->text[j->used] = '\0';
    return j->text;
}

int json_end(struct json *j)
{
    const char *text = json_finish(j);
    size_t left = j->used;

    while (left > 0) {
        ssize_t written = write(STDOUT_FILENO, text, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -1;
        text += written;
        left -= (size_t)written;
    }
    return 0;
}
