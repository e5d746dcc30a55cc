/* list: the surrogates of this node. */
#include "commands.h"
#include "json.h"
#include "registry.h"

#include <stdio.h>

static const char help[] = "Usage: kongming-microbench list [OPTION]...\n"
                           "\n"
                           "One line for each surrogate of this node.\n"
                           "\n" SHARED_OPTIONS_HELP
                           "  --hidden                 also those that only test the drivers\n";

static int print_surrogate(const struct surrogate *surrogate)
{
    const struct microbench *kernel = surrogate->kernel;
    const struct variant *variant = surrogate->variant;
    char description[512];
    struct json line;

    json_begin(&line);
    json_string(&line, "name", surrogate->name);
    json_string(&line, "family", variant->family);
    json_string(&line, "op", kernel->op);
    json_string(&line, "unit", "s");
    json_array_begin(&line, "roles");
    json_string(&line, NULL, "probe");
    if (kernel->no_inducer_reason == NULL)
        json_string(&line, NULL, "inducer");
    json_array_end(&line);
    json_bool(&line, "paper", variant->paper);
    json_array_begin(&line, "suites");
    if (variant->suites & SUITE_QUICK)
        json_string(&line, NULL, "quick");
    if (variant->suites & SUITE_STANDARD)
        json_string(&line, NULL, "standard");
    if (variant->suites & SUITE_FULL)
        json_string(&line, NULL, "full");
    json_array_end(&line);
    if (surrogate->size_bytes != 0)
        json_unsigned(&line, "size_bytes", surrogate->size_bytes);
    else
        json_null(&line, "size_bytes");
    if (variant->bytes_per_op == BYTES_ARE_SIZE)
        json_unsigned(&line, "bytes_per_op", surrogate->size_bytes);
    else if (variant->bytes_per_op != 0)
        json_unsigned(&line, "bytes_per_op", variant->bytes_per_op);
    else
        json_null(&line, "bytes_per_op");
    if (surrogate->instead_of[0] != '\0') {
        snprintf(description, sizeof description, "%s (instead of %s, for which this node is too small)",
                 variant->description, surrogate->instead_of);
        json_string(&line, "description", description);
        json_string(&line, "instead_of", surrogate->instead_of);
    } else {
        json_string(&line, "description", variant->description);
        json_null(&line, "instead_of");
    }
    json_string(&line, "no_inducer_reason", kernel->no_inducer_reason);
    return json_end(&line);
}

int cmd_list(int argc, char **argv)
{
    enum { OPTION_HIDDEN = OPTION_OWN };
    static const struct option options[] = {
        SHARED_OPTIONS, {"hidden", no_argument, NULL, OPTION_HIDDEN}, {NULL, 0, NULL, 0}};
    static struct suite_of_node suite;
    struct config config = CONFIG_DEFAULTS;
    bool hidden = false;
    int value;

    while ((value = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (value == 'h') {
            fputs(help, stdout);
            return EXIT_OK;
        }
        if (value == OPTION_HIDDEN)
            hidden = true;
        else if (option_shared(&config, value, optarg) < 0)
            return EXIT_USAGE;
    }
    if (optind < argc) {
        fprintf(stderr, "kongming-microbench list: takes no names, but got '%s'\n", argv[optind]);
        return EXIT_USAGE;
    }
    registry_resolve(&config, &suite);
    for (size_t i = 0; i < suite.count; i++) {
        if ((suite.surrogates[i].variant->suites & SUITE_HIDDEN) && !hidden)
            continue;
        if (print_surrogate(&suite.surrogates[i]) < 0)
            return EXIT_FAILED;
    }
    return EXIT_OK;
}
