/* An injection library that finds out what CUDA's driver allows while it initialises.
 *
 *   cc -shared -fPIC -o nested_init.so nested_init.c -ldl
 *   CUDA_INJECTION64_PATH=$PWD/nested_init.so python -c 'import torch; torch.cuda.init(); print("ok")'
 *
 * Each step is written before and after. A step that does not return ends the process after 20 s by SIGALRM. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *driver;

static void say(const char *what, int code)
{
    char line[128];
    snprintf(line, sizeof line, "nested_init: %s %d\n", what, code);
    (void)!write(2, line, strlen(line));
}

static int call_init(void)
{
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    return init ? init(0) : -1;
}

static int call_count(void)
{
    int count = -1;
    int (*get)(int *) = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
    int code = get ? get(&count) : -1;
    say("devices", count);
    return code;
}

static void *on_thread(void *unused)
{
    (void)unused;
    say("cuInit on another thread begins", 0);
    say("cuInit on another thread", call_init());
    say("cuDeviceGetCount on another thread", call_count());
    return NULL;
}

int InitializeInjection(void)
{
    pthread_t thread;
    int version = -1;
    alarm(20);
    driver = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*get)(int *) = (int (*)(int *))dlsym(driver, "cuDriverGetVersion");
    say("cuDriverGetVersion", get ? get(&version) : -1);
    say("version", version);
    say("cuDeviceGetCount before cuInit", call_count());
    say("cuInit begins", 0);
    say("cuInit", call_init());
    say("cuDeviceGetCount", call_count());
    /* Not waited for: it may need this thread to return. */
    pthread_create(&thread, NULL, on_thread, NULL);
    usleep(200000);
    say("InitializeInjection returns", 1);
    return 1;
}
