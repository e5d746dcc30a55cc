#include "check.h"
#include "json.h"

#include <math.h>
#include <string.h>

static void check_values(void)
{
    struct json j;

    json_begin(&j);
    json_string(&j, "text", "a \"quote\", a \\, a\ttab, a\nline and \xc3\xa9");
    json_string(&j, "none", NULL);
    json_unsigned(&j, "large", UINT64_MAX);
    json_signed(&j, "small", -1);
    json_double(&j, "tenth", 0.1);
    json_double(&j, "nan", NAN);
    json_double(&j, "infinite", -INFINITY);
    json_bool(&j, "yes", true);
    json_array_begin(&j, "pairs");
    json_array_begin(&j, NULL);
    json_double(&j, NULL, 3);
    json_unsigned(&j, NULL, 4);
    json_array_end(&j);
    json_array_begin(&j, NULL);
    json_array_end(&j);
    json_array_end(&j);
    json_bool(&j, "last", false);
    CHECK(strcmp(json_finish(&j),
                 "{\"text\":\"a \\\"quote\\\", a \\\\, a\\u0009tab, a\\nline and \xc3\xa9\",\"none\":null,"
                 "\"large\":18446744073709551615,\"small\":-1,\"tenth\":0.10000000000000001,\"nan\":null,"
                 "\"infinite\":null,\"yes\":true,\"pairs\":[[3,4],[]],\"last\":false}\n") == 0);
    json_begin(&j);
    CHECK(strcmp(json_finish(&j), "{}\n") == 0);
    /* Not UTF-8: the line still is. */
    json_begin(&j);
    json_string(&j, "k", "\xff\xc3(\xed\xa0\x80\xf0\x9f\x98\x80");
    CHECK(strcmp(json_finish(&j), "{\"k\":\"\\u00ff\\u00c3(\\u00ed\\u00a0\\u0080\xf0\x9f\x98\x80\"}\n") == 0);
}

/* A line that is too long is an error, never half a line. */
static void check_overflow(void)
{
    struct json j;

    json_begin(&j);
    for (int i = 0; i < 10000; i++)
        json_unsigned(&j, "key", 1000000);
    CHECK(strcmp(json_finish(&j), "{\"event\":\"error\",\"error\":\"a result was too long\"}\n") == 0);
}

int main(void)
{
    check_values();
    check_overflow();
    return checks_result();
}
