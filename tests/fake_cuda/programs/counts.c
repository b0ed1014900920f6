/* Launches, copies, fills, a graph and threads; prints its own counts. */
#include "cuda.h"

#include <pthread.h>
#include <string.h>

enum { LAUNCHES = 200, REPLAYS = 7, THREADS = 4, BYTES = 4096 };

static CUcontext context;
static CUfunction axpy, norm;

static void *launch_on_thread(void *unused)
{
    CUstream stream;
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, 1));
    for (int i = 0; i < LAUNCHES; i++)
        LAUNCH(norm, stream);
    CHECK(cuStreamSynchronize(stream));
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    CUstream stream, other;
    CUevent event;
    CUdeviceptr a, b;
    CUgraph graph;
    CUgraphExec exec;
    char in[BYTES], out[BYTES];

    open_driver();
    context = open_device();
    CHECK(cuInit(0));
    axpy = kernel("axpy");
    norm = kernel("norm");
    CHECK(cuStreamCreate(&stream, 0));
    CHECK(cuStreamCreate(&other, 1));
    CHECK(cuEventCreate(&event, 0));
    CHECK(cuMemAlloc_v2(&a, BYTES));
    CHECK(cuMemAlloc_v2(&b, BYTES));

    /* Memory is memory. */
    memset(in, 42, BYTES);
    CHECK(cuMemcpyHtoD_v2(a, in, BYTES));
    CHECK(cuMemcpyDtoDAsync_v2(b, a, BYTES, stream));
    CHECK(cuMemcpyDtoH_v2(out, b, BYTES));
    if (memcmp(in, out, BYTES) != 0)
        return 1;

    for (int i = 0; i < LAUNCHES; i++)
        LAUNCH(axpy, stream);
    CHECK(cuEventRecord(event, stream));
    CHECK(cuStreamWaitEvent(other, event, 0));
    CHECK(cuEventSynchronize(event));

    CHECK(cuStreamBeginCapture_v2(stream, 0));
    LAUNCH(axpy, stream);
    CHECK(cuMemsetD8Async(b, 7, BYTES, stream));
    LAUNCH(norm, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuMemcpyDtoH_v2(out, b, BYTES));
    if (out[0] != 42) /* what is captured is not done yet */
        return 2;
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < REPLAYS; i++)
        CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH_v2(out, b, BYTES));
    if (out[0] != 7 || out[BYTES - 1] != 7)
        return 3;

    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, launch_on_thread, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    /* Errors are errors: too many threads, memory that is not the device's. */
    if (cuLaunchKernel(axpy, 1, 1, 1, 4096, 1, 1, 0, stream, NULL, NULL) != 1 || cuMemcpyHtoD_v2(a, in, BYTES + 1) != 1)
        return 4;
    CHECK(cuCtxSynchronize());

    printf("axpy %d\nnorm %d\ncopies %d\nfills %d\ngraphs %d\n", LAUNCHES + REPLAYS, THREADS * LAUNCHES + REPLAYS, 5, REPLAYS,
           REPLAYS);
    return 0;
}
