/* Steps until the end of its input, and at least one: a range "step" with a kernel "gemm" and an all-reduce, and "forward" in it. The argument is the
 * time of a step in microseconds. */
#include "cuda.h"

#include "../unmodified/programs/nvtx.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_int ends;

static void *wait_for_end(void *unused)
{
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    ends = 1;
    return unused;
}

int main(int count, char **arguments)
{
    useconds_t period = count > 1 ? atoi(arguments[1]) : 1000;
    pthread_t thread;

    open_driver();
    open_device();
    CUfunction gemm = kernel("gemm"), reduce = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    if (pthread_create(&thread, NULL, wait_for_end, NULL) != 0)
        return 1;
    do {
        push("step");
        push("forward");
        LAUNCH(gemm, NULL);
        pop();
        LAUNCH(reduce, NULL);
        CHECK(cuCtxSynchronize());
        pop();
        usleep(period);
    } while (!ends);
    pthread_join(thread, NULL);
    return 0;
}
