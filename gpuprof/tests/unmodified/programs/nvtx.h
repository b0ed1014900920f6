/* A client of NVTX by hand, one copy for each object that includes this, as with NVTX's own header: it loads the library that
 * NVTX_INJECTION64_PATH names at its first call, and hands it a table of its functions. */
#ifndef UNMODIFIED_NVTX_H
#define UNMODIFIED_NVTX_H

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef void (*nvtx_function)(void);
static int (*nvtx_push)(const char *); /* nvtxRangePushA */
static int (*nvtx_pop)(void);          /* nvtxRangePop */

enum { NVTX_CORE = 1, NVTX_CORE_SIZE = 16, NVTX_PUSH = 9, NVTX_POP = 11 };

static nvtx_function *nvtx_core[NVTX_CORE_SIZE + 1];

static int nvtx_module(int module, nvtx_function ***table, unsigned *size)
{
    static nvtx_function unused[NVTX_CORE_SIZE];
    if (module != NVTX_CORE)
        return 0;
    for (int id = 1; id < NVTX_CORE_SIZE; id++)
        nvtx_core[id] = &unused[id];
    nvtx_core[NVTX_PUSH] = (nvtx_function *)&nvtx_push;
    nvtx_core[NVTX_POP] = (nvtx_function *)&nvtx_pop;
    *table = nvtx_core;
    *size = NVTX_CORE_SIZE;
    return 1;
}

static void nvtx_set_version(uint32_t version)
{
    (void)version;
}

static const void *nvtx_export(uint32_t id)
{
    static const struct {
        size_t size;
        int (*module)(int, nvtx_function ***, unsigned *);
    } callbacks = {sizeof callbacks, nvtx_module};
    static const struct {
        size_t size;
        uint32_t version, reserved;
        void (*set_version)(uint32_t);
    } versions = {sizeof versions, 3, 0, nvtx_set_version};
    return id == 1 ? (const void *)&callbacks : id == 3 ? (const void *)&versions : NULL;
}

static void nvtx_load(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
    int (*init)(const void *(*)(uint32_t)) = NULL;
    if (library)
        *(void **)&init = dlsym(library, "InitializeInjectionNvtx2");
    if (init && init(nvtx_export) != 1)
        nvtx_push = NULL, nvtx_pop = NULL;
}

static void push(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, nvtx_load);
    if (nvtx_push)
        nvtx_push(name);
}

static void pop(void)
{
    if (nvtx_pop)
        nvtx_pop();
}

#endif
