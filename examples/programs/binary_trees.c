/* Builds binary trees node by node and frees them again, small ones and large ones, while one
 * stays alive: the allocator, and pointers to what it gave.
 * Usage: binary_trees DEPTH */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHALLOWEST = 4, DEEPEST = 26 };

struct tree {
    struct tree *left;
    struct tree *right;
};

static struct tree *grown(int depth)
{
    struct tree *tree = malloc(sizeof *tree);
    if (!tree) {
        fprintf(stderr, "binary_trees: not enough memory\n");
        exit(1);
    }
    tree->left = depth > 0 ? grown(depth - 1) : NULL;
    tree->right = depth > 0 ? grown(depth - 1) : NULL;
    return tree;
}

static uint64_t nodes_of(const struct tree *tree)
{
    return tree ? 1 + nodes_of(tree->left) + nodes_of(tree->right) : 0;
}

static void fell(struct tree *tree)
{
    if (!tree)
        return;
    fell(tree->left);
    fell(tree->right);
    free(tree);
}

int main(int argc, char **argv)
{
    const long depth = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
    const long times = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (depth < SHALLOWEST || depth > DEEPEST || times < 1) {
        fprintf(stderr, "usage: binary_trees DEPTH TIMES (depth %d to %d)\n", SHALLOWEST, DEEPEST);
        return 2;
    }
    uint64_t nodes = 0;
    for (long time = 0; time < times; time++) {
        struct tree *lasting = grown((int)depth);
        for (int height = SHALLOWEST; height <= depth; height += 2)
            for (long i = 0; i < 1L << (depth - height); i++) {
                struct tree *tree = grown(height);
                nodes += nodes_of(tree);
                fell(tree);
            }
        nodes += nodes_of(lasting);
        fell(lasting);
    }
    printf("counted %llu nodes\n", (unsigned long long)nodes);
    return 0;
}
