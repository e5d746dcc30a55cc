/* The subcommands of kongming-microbench. Each takes its own name as argv[0] and returns an exit
 * status. */
#ifndef KONGMING_COMMANDS_H
#define KONGMING_COMMANDS_H

enum exit_status { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

int cmd_list(int argc, char **argv);
int cmd_probe(int argc, char **argv);
int cmd_induce(int argc, char **argv);
int cmd_exec(int argc, char **argv);

#endif
