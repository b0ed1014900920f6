/* A library with CUDA work and a copy of NVTX of its own, which a program opens and closes. */
#include "cuda.h"
#include "nvtx.h"

int launch_in_plugin(int launches)
{
    CUfunction function;
    open_driver();
    open_device();
    function = kernel("plugin");
    push("plugin");
    for (int i = 0; i < launches; i++)
        LAUNCH(function, NULL);
    pop();
    CHECK(cuCtxSynchronize());
    return launches;
}
