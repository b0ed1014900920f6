/* A rank that enqueues 20 AllReduces as NCCL 2.28 does, with the profiler plugin of the environment. */
#include "cuda.h"

#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Interface v5, as far as it is used. */
struct plugin {
    const char *name;
    int (*init)(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, void *log);
    int (*start)(void *context, void **handle, void *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *arguments);
    int (*finalize)(void *context);
};

struct collective {
    uint64_t type;
    void *parent;
    int rank;
    uint64_t sequence;
    const char *function;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *datatype;
    uint8_t channels, warps;
    const char *algorithm, *protocol;
    void *group;
};

enum { COLLECTIVE = 1 << 1, LAUNCH_EVENT = 1 << 11, COUNT = 20 };

/* Both ranks begin each step at a multiple of 10 ms of the machine's clock, as after a barrier. */
static void wait_for_step(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long in_step = now.tv_nsec % 10000000;
    usleep((10000000 - in_step) / 1000);
}

int main(void)
{
    int rank = atoi(getenv("RANK")), mask = 0;
    void *context = NULL, *handle;
    open_driver();
    open_device();
    CUfunction work = kernel("work"), reduce = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL");

    void *library = dlopen(getenv("NCCL_PROFILER_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    struct plugin *plugin = library ? dlsym(library, "ncclProfiler_v5") : NULL;
    if (!plugin || plugin->init(&context, 0xabc, &mask, NULL, 1, 2, rank, NULL) != 0 || !(mask & COLLECTIVE)) {
        fprintf(stderr, "no plugin\n");
        return 1;
    }
    for (int step = 0; step < COUNT; step++) {
        struct collective event = {.type = LAUNCH_EVENT, .rank = rank};
        wait_for_step();
        LAUNCH(work, NULL);
        plugin->start(context, &handle, &event);
        LAUNCH(reduce, NULL);
        event = (struct collective){COLLECTIVE, NULL,  rank,        step, "AllReduce", NULL,     NULL, 1 << 10,
                                    0,          "ncclFloat32", 4,   16,   "RING",      "SIMPLE", NULL};
        plugin->start(context, &handle, &event);
    }
    CHECK(cuCtxSynchronize());
    return plugin->finalize(context) || dlclose(library);
}
