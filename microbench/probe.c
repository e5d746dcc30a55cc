/* probe: times surrogates in short chunks, round by round, so that a phase of a neighbour cannot
 * hit just one of them. */
#include "clock.h"
#include "commands.h"
#include "instance.h"
#include "json.h"
#include "registry.h"
#include "resources.h"
#include "schedule.h"
#include "watcher.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help[] = "Usage: kongming-microbench probe [OPTION]... NAME...\n"
                           "\n"
                           "Times the surrogates of these names; 'kongming-microbench list' has them all.\n"
                           "\n" SHARED_OPTIONS_HELP
                           "  --seconds S              measure so long in all (default 2)\n"
                           "  --chunk S                measure each surrogate so long at a time\n"
                           "  --rounds R               end after R rounds through all of them\n"
                           "  --whole-blocks           take up to 8 s for one operation to be whole\n"
                           "  --seed N                 of the order within the rounds\n";

static const uint64_t WHOLE_OP_NS = 8 * NS_PER_S;
static const uint64_t LEAST_BATCH_NS = 200 * NS_PER_US;
enum { LEAST_TICKS = 1000 }; /* of the clock, in a batch */

struct prober {
    struct config config;
    struct suite_of_node suite;
    struct resources resources;
    struct watch watch;
    struct schedule_request request;
    bool whole_blocks;
    uint64_t seed;
    uint64_t batch_ns;
    size_t count;
    struct instance instances[MOST_SURROGATES];
};

static int tell_error(const struct instance *instance, const char *name)
{
    struct json line;

    json_begin(&line);
    json_string(&line, "event", "error");
    json_string(&line, "name", name);
    json_string(&line, "error", instance->error);
    return json_end(&line);
}

static int tell_chunk(const struct instance *instance, const struct chunk *chunk)
{
    struct json line;

    json_begin(&line);
    json_string(&line, "event", "chunk");
    json_string(&line, "name", instance->surrogate->name);
    json_unsigned(&line, "start_ns", chunk->start_ns);
    json_unsigned(&line, "end_ns", chunk->end_ns);
    json_double(&line, "ops", chunk->batches.ops);
    json_unsigned(&line, "ns", chunk->batches.ns);
    json_array_begin(&line, "batches");
    for (size_t i = 0; i < chunk->batches.count; i++) {
        json_array_begin(&line, NULL);
        json_double(&line, NULL, chunk->batches.list[i].ops);
        json_unsigned(&line, NULL, chunk->batches.list[i].ns);
        json_array_end(&line);
    }
    json_array_end(&line);
    json_bool(&line, "partial", chunk->partial);
    if (instance->direct >= 0)
        json_bool(&line, "direct", instance->direct != 0);
    return json_end(&line);
}

static int tell_start(const struct prober *prober, uint64_t granularity_ns)
{
    struct json line;

    json_begin(&line);
    json_string(&line, "event", "start");
    json_unsigned(&line, "schema", 1);
    json_unsigned(&line, "clock_granularity_ns", granularity_ns);
    if (prober->config.cpu >= 0)
        json_signed(&line, "cpu", prober->config.cpu);
    else
        json_null(&line, "cpu");
    json_signed(&line, "pid", getpid());
    json_unsigned(&line, "start_ns", clock_now());
    return json_end(&line);
}

static int tell_span(const char *event, const char *key, uint64_t ns)
{
    struct json line;

    json_begin(&line);
    json_string(&line, "event", event);
    json_unsigned(&line, key, ns);
    return json_end(&line);
}

static void tell_layout(uint64_t done, uint64_t total)
{
    struct json line;

    json_begin(&line);
    json_string(&line, "event", "layout");
    json_unsigned(&line, "bytes", done);
    json_unsigned(&line, "total", total);
    json_end(&line);
}

static void clean_up(void *argument)
{
    struct prober *prober = argument;

    scratch_folder_remove(&prober->resources.folder);
}

/* Sets up what was asked for; what cannot be is told and left out. -1: nobody listens any more. */
static int set_up(struct prober *prober, char **names, int name_count)
{
    for (int i = 0; i < name_count; i++) {
        const struct surrogate *surrogate = registry_find(&prober->suite, names[i]);
        struct instance *instance = &prober->instances[prober->count];
        bool twice = false;

        for (size_t k = 0; k < prober->count; k++)
            twice = twice || prober->instances[k].surrogate == surrogate;
        if (twice)
            continue;
        if (instance_setup(instance, surrogate, &prober->resources) == 0) {
            prober->count++;
            continue;
        }
        instance_teardown(instance);
        if (tell_error(instance, surrogate->name) < 0)
            return -1;
    }
    return 0;
}

static int measure(struct prober *prober, uint64_t start_ns)
{
    static struct chunk chunk;
    static struct schedule schedule;
    bool failed[MOST_SURROGATES] = {false};
    size_t which;
    uint64_t length_ns;

    schedule_init(&schedule, &prober->request, prober->count, prober->seed, start_ns);
    while (schedule_next(&schedule, clock_now(), &which, &length_ns)) {
        struct instance *instance = &prober->instances[which];
        struct plan_of_chunk plan = {
            .length_ns = length_ns,
            .batch_ns = prober->batch_ns,
            .whole_op_ns = prober->whole_blocks ? WHOLE_OP_NS : 0,
        };
        if (failed[which])
            continue;
        if (instance_measure(instance, &plan, &chunk) == 0) {
            if (tell_chunk(instance, &chunk) < 0)
                return -1;
        } else {
            failed[which] = true;
            schedule_drop(&schedule, which);
            if (tell_error(instance, instance->surrogate->name) < 0)
                return -1;
        }
    }
    return 0;
}

static int probe(struct prober *prober, char **names, int name_count)
{
    uint64_t granularity = clock_granularity();
    uint64_t start = clock_now();
    uint64_t ready;
    int status = EXIT_FAILED;

    prober->batch_ns = granularity * LEAST_TICKS > LEAST_BATCH_NS ? granularity * LEAST_TICKS : LEAST_BATCH_NS;
    if (tell_start(prober, granularity) < 0 || set_up(prober, names, name_count) < 0)
        goto out;
    ready = clock_now();
    if (tell_span("ready", "setup_ns", ready - start) < 0 || measure(prober, ready) < 0)
        goto out;
    if (tell_span("end", "elapsed_ns", clock_now() - ready) == 0)
        status = EXIT_OK;
out:
    watcher_stand_down();
    for (size_t i = 0; i < prober->count; i++)
        instance_teardown(&prober->instances[i]);
    resources_release(&prober->resources);
    return status;
}

enum { OPTION_SECONDS = OPTION_OWN, OPTION_CHUNK, OPTION_ROUNDS, OPTION_WHOLE_BLOCKS, OPTION_SEED };

static int parse(struct prober *prober, int argc, char **argv)
{
    static const struct option options[] = {SHARED_OPTIONS,
                                            {"seconds", required_argument, NULL, OPTION_SECONDS},
                                            {"chunk", required_argument, NULL, OPTION_CHUNK},
                                            {"rounds", required_argument, NULL, OPTION_ROUNDS},
                                            {"whole-blocks", no_argument, NULL, OPTION_WHOLE_BLOCKS},
                                            {"seed", required_argument, NULL, OPTION_SEED},
                                            {NULL, 0, NULL, 0}};
    int value;

    while ((value = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        double seconds = 0;
        int wrong = 0;
        switch (value) {
        case 'h':
            fputs(help, stdout);
            return 1;
        case OPTION_SECONDS:
            wrong = option_seconds("seconds", optarg, &seconds);
            prober->request.total_ns = clock_from_seconds(seconds);
            break;
        case OPTION_CHUNK:
            wrong = option_seconds("chunk", optarg, &seconds);
            prober->request.chunk_ns = clock_from_seconds(seconds);
            break;
        case OPTION_ROUNDS:
            wrong = option_unsigned("rounds", optarg, 1, 1000000, &prober->request.rounds);
            break;
        case OPTION_WHOLE_BLOCKS:
            prober->whole_blocks = true;
            break;
        case OPTION_SEED:
            wrong = option_unsigned("seed", optarg, 0, UINT64_MAX, &prober->seed);
            break;
        default:
            wrong = option_shared(&prober->config, value, optarg);
        }
        if (wrong)
            return -1;
    }
    if (optind == argc) {
        fprintf(stderr, "kongming-microbench probe: no surrogate named: see 'kongming-microbench list'\n");
        return -1;
    }
    registry_resolve(&prober->config, &prober->suite);
    for (int i = optind; i < argc; i++) {
        if (registry_find(&prober->suite, argv[i]) == NULL) {
            registry_explain_unknown(&prober->suite, argv[i]);
            return -1;
        }
    }
    return prober->config.cpu >= 0 ? pin_to_cpu(prober->config.cpu) : 0;
}

int cmd_probe(int argc, char **argv)
{
    static struct prober prober;
    int parsed;

    prober.config = CONFIG_DEFAULTS;
    prober.seed = clock_now();
    parsed = parse(&prober, argc, argv);
    if (parsed != 0)
        return parsed < 0 ? EXIT_USAGE : EXIT_OK;
    resources_init(&prober.resources, &prober.config);
    prober.resources.on_layout = tell_layout;
    prober.watch = (struct watch){
        .lifeline = prober.config.lifeline, .exit_status = EXIT_FAILED, .clean_up = clean_up, .argument = &prober};
    if (watcher_start(&prober.watch) < 0) {
        fprintf(stderr, "kongming-microbench probe: cannot start: %s\n", strerror(errno));
        return EXIT_FAILED;
    }
    return probe(&prober, argv + optind, argc - optind);
}
