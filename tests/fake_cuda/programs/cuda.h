/* The driver functions that these programs call, declared by hand and found in libcuda.so.1 at run time. */
#ifndef FAKE_CUDA_PROGRAMS_CUDA_H
#define FAKE_CUDA_PROGRAMS_CUDA_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream, *CUevent, *CUgraph, *CUgraphExec;

#define FUNCTIONS(_)                                                                                                     \
    _(cuInit, (unsigned))                                                                                                \
    _(cuDeviceGet, (CUdevice *, int))                                                                                    \
    _(cuDeviceGetCount, (int *))                                                                                         \
    _(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                                 \
    _(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice))                                                                 \
    _(cuCtxDestroy_v2, (CUcontext))                                                                                      \
    _(cuCtxSetCurrent, (CUcontext))                                                                                      \
    _(cuCtxSynchronize, (void))                                                                                          \
    _(cuModuleLoadData, (CUmodule *, const void *))                                                                      \
    _(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                                       \
    _(cuStreamCreate, (CUstream *, unsigned))                                                                            \
    _(cuStreamSynchronize, (CUstream))                                                                                   \
    _(cuStreamBeginCapture_v2, (CUstream, int))                                                                          \
    _(cuStreamEndCapture, (CUstream, CUgraph *))                                                                         \
    _(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                                         \
    _(cuGraphLaunch, (CUgraphExec, CUstream))                                                                            \
    _(cuEventCreate, (CUevent *, unsigned))                                                                              \
    _(cuEventRecord, (CUevent, CUstream))                                                                                \
    _(cuEventSynchronize, (CUevent))                                                                                     \
    _(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                                                  \
    _(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                            \
    _(cuMemFree_v2, (CUdeviceptr))                                                                                       \
    _(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                                              \
    _(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                                                    \
    _(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                                \
    _(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                                   \
    _(cuProfilerStart, (void))                                                                                           \
    _(cuProfilerStop, (void))                                                                                            \
    _(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,       \
                       void **, void **))

#define DECLARE(name, arguments) static CUresult(*name) arguments;
FUNCTIONS(DECLARE)
#undef DECLARE

/* Opens the driver, in a namespace of symbols of its own. */
static void open_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        exit(70);
    }
#define FIND(name, arguments)                                                                                            \
    *(void **)&name = dlsym(driver, #name);                                                                              \
    if (!name) {                                                                                                         \
        fprintf(stderr, "libcuda.so.1 has no " #name "\n");                                                              \
        exit(71);                                                                                                        \
    }
    FUNCTIONS(FIND)
#undef FIND
}

/* A call that has to succeed. */
#define CHECK(call)                                                                                                      \
    do {                                                                                                                 \
        CUresult result = (call);                                                                                        \
        if (result != 0) {                                                                                               \
            fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, result);                               \
            exit(72);                                                                                                    \
        }                                                                                                                \
    } while (0)

#define LAUNCH(function, stream) CHECK(cuLaunchKernel(function, 4, 2, 1, 64, 2, 1, 0, stream, NULL, NULL))

/* Device 0 with its primary context current on this thread. */
static CUcontext open_device(void)
{
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    return context;
}

/* A kernel of this name in a module of its own, which does nothing. */
static CUfunction kernel(const char *name)
{
    CUmodule module;
    CUfunction function;
    char image[512];
    snprintf(image, sizeof image, ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry %s() { ret; }\n", name);
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

#endif
