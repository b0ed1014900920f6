/* An injection library that appends a line to the file $INJECTED at each call, with the thread that it came on. It calls the
 * driver, as profilers do, and with $CUPTI_IN_CHILD it has a forked child call CUPTI. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int InitializeInjection(void)
{
    FILE *file = fopen(getenv("INJECTED"), "a");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    int (*init)(unsigned), devices = -1, (*count)(int *);
    uint32_t version = 0, (*get_version)(uint32_t *);

    if (!file || !driver || !cupti)
        return 0;
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&count = dlsym(driver, "cuDeviceGetCount");
    *(void **)&get_version = dlsym(cupti, "cuptiGetVersion");
    if (init(0) != 0 || count(&devices) != 0 || get_version(&version) != 0)
        return 0;
    fprintf(file, "on %s thread, %d devices, CUPTI %u\n", syscall(SYS_gettid) == getpid() ? "the first" : "another", devices,
            version);
    if (getenv("CUPTI_IN_CHILD")) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            close(2); /* what it says is not this program's output */
            get_version(&version);
            _exit(0);
        }
        waitpid(child, &status, 0);
        fprintf(file, "child: signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    fclose(file);
    return 1;
}
