#include "check.h"
#include "registry.h"

#include <string.h>

static struct suite_of_node suite;

static const struct surrogate *find(const char *name)
{
    return registry_find(&suite, name);
}

static void check_normal_node(void)
{
    static const char *const paper[] = {
        "memory.streaming.1K", "memory.streaming.1M", "memory.streaming.1G", "memory.random.1K", "memory.random.1M",
        "memory.random.1G",    "stream.add",          "stream.copy",         "stream.scale",     "stream.triad",
        "iobench.read.4M",     "iobench.read.64M",    "iobench.read.1G",     "iobench.write.4M", "iobench.write.64M",
        "iobench.write.1G",    "metadata.create",     "metadata.delete"};
    struct config config = CONFIG_DEFAULTS;
    size_t of_paper = 0;
    size_t quick = 0;

    config.memory_bytes = GIB(4);
    config.l2_bytes = MIB(1) + 100;
    config.llc_bytes = MIB(48);
    registry_resolve(&config, &suite);
    for (size_t i = 0; i < suite.count; i++) {
        const struct variant *variant = suite.surrogates[i].variant;
        of_paper += variant->paper;
        quick += (variant->suites & SUITE_QUICK) != 0;
        CHECK(suite.surrogates[i].instead_of[0] == '\0');
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(suite.surrogates[i].name, suite.surrogates[k].name) != 0);
    }
    for (size_t i = 0; i < sizeof paper / sizeof paper[0]; i++)
        CHECK(find(paper[i]) != NULL && find(paper[i])->variant->paper);
    CHECK(of_paper == sizeof paper / sizeof paper[0]);
    CHECK(quick >= 12 && quick <= 15);
    CHECK(find("memory.random.1G")->size_bytes == GIB(1));
    CHECK(find("memory.random.L2half")->size_bytes == MIB(1) / 2);
    CHECK(find("memory.random.LLChalf")->size_bytes == MIB(24));
    CHECK(find("memory.streaming.LLCx2")->size_bytes == MIB(96));
    CHECK(find("memory.decay.LLCquarter.10ms")->size_bytes == MIB(12));
    CHECK(find("memory.decay.LLChalf.10ms")->size_bytes == MIB(24));
    CHECK(find("memory.decay.LLChalf.10ms")->variant->suites == SUITE_FULL);
    CHECK(find("iobench.read.1G")->size_bytes == GIB(1));
    CHECK(find("stream.copy")->size_bytes == 2 * MIB(192));
    CHECK(find("stream.triad")->size_bytes == 3 * MIB(192));
    CHECK(find("no.such") == NULL);
}

/* Other sizes have other names, and say what they stand for. */
static void check_small_node(void)
{
    struct config config = CONFIG_DEFAULTS;

    config.memory_bytes = GIB(1);
    config.io_bytes = MIB(600);
    config.llc_bytes = MIB(512);
    registry_resolve(&config, &suite);
    CHECK(find("memory.random.1G") == NULL);
    CHECK(find("memory.random.512M") != NULL);
    CHECK(find("memory.random.512M")->size_bytes == MIB(512));
    CHECK(strcmp(find("memory.random.512M")->instead_of, "memory.random.1G") == 0);
    CHECK(strcmp(find("iobench.write.256M")->instead_of, "iobench.write.1G") == 0);
    CHECK(find("iobench.read.256M")->size_bytes == MIB(256));
    CHECK(find("memory.random.LLCx2")->size_bytes == MIB(512));
    CHECK(find("stream.triad")->size_bytes <= config.memory_bytes / 10 * 3);
}

/* Where the next smaller size is a column already, the stand-in is smaller still: none is lost. */
static void check_stand_in_beside_its_neighbour(void)
{
    struct config config = CONFIG_DEFAULTS;
    size_t of_paper = 0;

    config.memory_bytes = MIB(256);
    registry_resolve(&config, &suite);
    CHECK(find("memory.random.128M") != NULL && find("memory.random.128M")->instead_of[0] == '\0');
    CHECK(find("memory.random.64M") != NULL);
    CHECK(strcmp(find("memory.random.64M")->instead_of, "memory.random.1G") == 0);
    for (size_t i = 0; i < suite.count; i++)
        of_paper += suite.surrogates[i].variant->paper;
    CHECK(of_paper == 18);
}

/* No name comes twice, and no set is larger than what may be had. */
static void check_tiny_nodes(void)
{
    for (uint64_t memory = MIB(1); memory <= GIB(2); memory *= 2) {
        struct config config = CONFIG_DEFAULTS;
        config.memory_bytes = memory;
        config.io_bytes = memory;
        registry_resolve(&config, &suite);
        for (size_t i = 0; i < suite.count; i++) {
            const struct surrogate *s = &suite.surrogates[i];
            CHECK(registry_find(&suite, s->name) == s);
            if (s->variant->rule == SIZE_ARENA || s->variant->rule == SIZE_LLC_TWICE)
                CHECK(s->size_bytes <= memory / 10 * 7);
            if (s->variant->rule == SIZE_BLOCK)
                CHECK(s->size_bytes <= memory / 2);
        }
    }
}

int main(void)
{
    check_normal_node();
    check_small_node();
    check_stand_in_beside_its_neighbour();
    check_tiny_nodes();
    return checks_result();
}
