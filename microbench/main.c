/* kongming-microbench: the part of Kongming that touches the machine. It speaks JSON lines. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: kongming-microbench list   [OPTION]...\n"
    "       kongming-microbench probe  [OPTION]... NAME...\n"
    "       kongming-microbench induce [OPTION]... NAME\n"
    "       kongming-microbench exec   [OPTION]... -- COMMAND [ARGUMENT]...\n"
    "\n"
    "list    the surrogates of this node, their sizes resolved\n"
    "probe   time surrogates in short interleaved chunks\n"
    "induce  run a surrogate as load until told to stop\n"
    "exec    run a command pinned, timed and accounted for\n"
    "\n"
    "Results are JSON lines on standard output. Each subcommand has --help.\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage.\n";

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {
        {"list", cmd_list},
        {"probe", cmd_probe},
        {"induce", cmd_induce},
        {"exec", cmd_exec},
    };

    if (argc < 2) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(usage, stdout);
        return EXIT_OK;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "kongming-microbench: there is no subcommand '%s': it is list, probe, induce or exec\n",
            argv[1]);
    return EXIT_USAGE;
}
