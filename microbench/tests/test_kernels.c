/* The arithmetic of the kernels, seen from inside: results that are wrong are found. */
#include "check.h"
#include "chain.h"
#include "clock.h"
#include "line_sum.h"
#include "multiversion.h"

/* NOLINTNEXTLINE(bugprone-suspicious-include): its static functions are what is tested */
#include "stream.c"

static void check_stream_mode(enum mode mode)
{
    enum { ELEMENTS = 10000, BATCH = 7001 };
    static double memory[3 * ELEMENTS];
    struct stream stream = {.mode = mode};
    struct instance instance = {.state = &stream};

    arrays.elements = ELEMENTS;
    arrays.a = memory;
    arrays.b = memory + ELEMENTS;
    arrays.c = memory + (size_t)2 * ELEMENTS;
    fill(arrays.a, arrays.b, arrays.c, ELEMENTS);

    CHECK(run(&instance, BATCH) == 0);
    CHECK(stream.position == BATCH);
    CHECK(verify(&instance) == 0);
    CHECK(run(&instance, BATCH) == 0); /* past the end, on from the beginning */
    CHECK(stream.position == 2 * BATCH - ELEMENTS);
    for (uint64_t i = 0; i < ELEMENTS; i++)
        CHECK(arrays.a[i] == expected(mode, i));
    CHECK(verify(&instance) == 0);
    for (uint64_t i = stream.last_from + stream.last_count - 4096 + 1; i < stream.position; i += 97) {
        double kept = arrays.a[i];
        arrays.a[i] = kept + 1;
        CHECK(verify(&instance) == -1);
        CHECK(instance.error[0] != '\0');
        arrays.a[i] = kept;
    }
    arrays.a = arrays.b = arrays.c = NULL;
}

static void check_line_sum(void)
{
    enum { LINES = 37 };
    static _Alignas(LINE_BYTES) uint64_t words[LINES * LINE_WORDS];

    for (uint64_t i = 0; i < (uint64_t)LINES * LINE_WORDS; i++)
        words[i] = i * i + 1;
    for (uint64_t position = 0; position < LINES; position++) {
        for (uint64_t count = 0; count < (uint64_t)2 * LINES; count++) {
            uint64_t sum = 0;
            for (uint64_t i = 0; i < count; i++)
                for (unsigned w = 0; w < LINE_WORDS; w++)
                    sum += words[(position + i) % LINES * LINE_WORDS + w];
            CHECK(line_sum((const char *)words, LINES, position, count) == sum);
        }
    }
}

/* Bytes per operation times operations in a set are the bytes of the set. */
static void check_byte_counts(void)
{
    static struct suite_of_node suite;
    struct config config = CONFIG_DEFAULTS;

    config.memory_bytes = GIB(8);
    registry_resolve(&config, &suite);
    for (size_t i = 0; i < suite.count; i++) {
        const struct surrogate *s = &suite.surrogates[i];
        uint64_t per_op = s->variant->bytes_per_op == BYTES_ARE_SIZE ? s->size_bytes : s->variant->bytes_per_op;
        if (s->size_bytes != 0 && per_op != 0)
            CHECK(s->size_bytes % per_op == 0);
        if (s->variant->rule == SIZE_ARRAYS)
            CHECK(per_op * registry_array_elements(&config) == s->size_bytes);
    }
}

static void check_clock(void)
{
    uint64_t before = clock_now();
    uint64_t granularity = clock_granularity();

    CHECK(granularity > 0 && granularity < NS_PER_S);
    clock_sleep_until(before + 2 * NS_PER_MS);
    CHECK(clock_now() >= before + 2 * NS_PER_MS);
    CHECK(clock_from_seconds(0.5) == NS_PER_S / 2);
    CHECK(clock_from_seconds(-1) == 0);
}

int main(void)
{
    check_stream_mode(COPY);
    check_stream_mode(SCALE);
    check_stream_mode(ADD);
    check_stream_mode(TRIAD);
    check_line_sum();
    check_byte_counts();
    check_clock();
    return checks_result();
}
