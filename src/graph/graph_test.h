/* graph_test.h - switches of a graph for tests. */
#ifndef AF_GRAPH_TEST_H
#define AF_GRAPH_TEST_H

#include "graph/graph_access.h"

typedef struct af_graph_test {
    uint64_t guard;  /* spare bytes after every tensor, and no memory is used twice */
    uint64_t bucket; /* bytes of gradients that are summed over ranks together; 0 = as always */
} af_graph_test;

/* Before plan; `t` must live as long as the graph. NULL = all off, as at first. */
void af_graph_set_test(af_graph *g, const af_graph_test *t);
#endif
