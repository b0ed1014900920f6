/* Programs in one: each argument is a program that works with CUDA and ends in its way. All print what they did:
 * `kernel NAME COUNT`, `copies COUNT`, `range NAME COUNT`. */
#define _GNU_SOURCE
#include "cuda.h"
#include "nvtx.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static const char *own_path, *folder;

/* What this process did, for `settle`. */
static atomic_int launched, copied;

/* Some launches and two copies on a stream of their own. */
static void work(const char *name, int launches)
{
    CUfunction function = kernel(name);
    CUdeviceptr memory;
    CUstream stream;
    int there = 7, back = 0;
    CHECK(cuStreamCreate(&stream, 1));
    CHECK(cuMemAlloc_v2(&memory, sizeof there));
    CHECK(cuMemcpyHtoD_v2(memory, &there, sizeof there));
    for (int i = 0; i < launches; i++)
        LAUNCH(function, stream);
    CHECK(cuMemcpyDtoH_v2(&back, memory, sizeof back));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree_v2(memory));
    if (back != there)
        exit(73);
    launched += launches;
    copied += 2;
    printf("kernel %s %d\ncopies 2\n", name, launches);
    fflush(stdout);
}

static void sleep_ms(int milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {
    }
}

/* Leaves a recorder the time to write; alone there is nothing to wait for. */
static void pause_ms(int milliseconds)
{
    if (getenv("GPUPROF_RUN") != NULL)
        sleep_ms(milliseconds);
}

/* Waits until the recording has what was done: the test removes the file that names it. */
static void settle(void)
{
    char path[4096], part[4200];
    if (getenv("GPUPROF_RUN") == NULL)
        return;
    snprintf(path, sizeof path, "%s/settle.%d", folder, (int)getpid());
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "w");
    if (file == NULL)
        exit(77);
    fprintf(file, "%d", launched + copied);
    if (fclose(file) != 0 || rename(part, path) != 0)
        exit(77);
    while (access(path, F_OK) == 0)
        sleep_ms(1);
}

/* Work that is on the disk before a death that no hook sees. */
static void settled_work(void)
{
    open_device();
    work("settled", 100);
    settle();
}

static int status_of(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static int launches(void)
{
    open_device();
    work("plain", 1000);
    return 0;
}

static int returns_three(void)
{
    open_device();
    work("three", 10);
    fprintf(stderr, "an error of the program's own\n");
    return 3;
}

static int never_launches(void)
{
    open_device();
    return 0;
}

static int never_calls_cuda(void)
{
    printf("nothing\n");
    return 0;
}

static void *call_cu_init(void *unused)
{
    (void)unused;
    for (int i = 0; i < 10; i++)
        CHECK(cuInit(0));
    return NULL;
}

static int initialises_on_many_threads(void)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, call_cu_init, NULL);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    open_device();
    work("many_inits", 50);
    return 0;
}

static int calls_exit(void)
{
    open_device();
    work("exited", 40);
    exit(4);
}

static void *exit_on_thread(void *unused)
{
    (void)unused;
    open_device();
    work("on_thread", 40);
    exit(5);
}

static int exits_on_a_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, exit_on_thread, NULL);
    pthread_join(thread, NULL);
    return 0;
}

static void *launch_for_ever(void *unused)
{
    CUfunction function;
    (void)unused;
    open_device();
    function = kernel("unfinished");
    for (;;)
        cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    return NULL;
}

/* Other threads launch while the process ends. */
static int ends_while_others_launch(void)
{
    pthread_t threads[3];
    open_device();
    work("main", 40);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, launch_for_ever, NULL);
    sleep_ms(100);
    return 6;
}

static int calls_underscore_exit(void)
{
    settled_work();
    _exit(7);
}

static int is_killed(void)
{
    settled_work();
    raise(SIGKILL);
    return 0;
}

static int is_terminated(void)
{
    settled_work();
    raise(SIGTERM);
    return 0;
}

static void leave(int signal)
{
    _exit(signal == SIGTERM ? 8 : 9);
}

static int handles_sigterm(void)
{
    signal(SIGTERM, leave);
    settled_work();
    raise(SIGTERM);
    return 0;
}

static int aborts(void)
{
    settled_work();
    abort();
}

static int segfaults(void)
{
    volatile int *nothing = NULL;
    settled_work();
    *nothing = 1;
    return 0;
}

static int forks_without_cuda(void)
{
    pid_t children[4];
    open_device();
    work("parent", 100);
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            /* A worker computes, uses ranges, and ends by exit, with all handlers. */
            push("worker");
            volatile unsigned sum = 0;
            for (unsigned j = 0; j < 1000000; j++)
                sum += j;
            pop();
            exit(i);
        }
    }
    for (int i = 0; i < 4; i++)
        if (status_of(children[i]) != i)
            return 74;
    work("parent_again", 100);
    return 0;
}

static int forks_before_cuda(void)
{
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            open_device();
            work("child", 30);
            exit(0);
        }
    }
    for (int i = 0; i < 3; i++)
        if (status_of(children[i]) != 0)
            return 74;
    open_device();
    work("parent", 30);
    return 0;
}

/* A child that is forked while other threads launch. */
static int forks_amid_launches(void)
{
    pthread_t threads[3];
    open_device();
    work("main", 10);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, launch_for_ever, NULL);
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0)
            exit(i % 3);
        if (status_of(child) != i % 3)
            return 74;
    }
    return 0;
}

static int spawns(void)
{
    pid_t child;
    char *const arguments[] = {(char *)own_path, "launches", (char *)folder, NULL};
    open_device();
    work("parent", 20);
    if (posix_spawn(&child, own_path, NULL, NULL, arguments, environ) != 0)
        return 75;
    return status_of(child);
}

/* Two images of one process. */
static int executes_another(void)
{
    open_device();
    work("first_image", 20);
    settle();
    execl(own_path, own_path, "launches", folder, (char *)NULL);
    return 75;
}

static int daemonises(void)
{
    if (fork() != 0)
        _exit(0);
    setsid();
    if (fork() != 0)
        _exit(0);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    sleep_ms(300);
    open_device();
    work("daemon", 60);
    return 0;
}

/* As daemons do: closes what it did not open, then opens files of its own, which get the same numbers. */
static int closes_all_descriptors(void)
{
    char path[4096], buffer[4096] = "";
    FILE *own;
    int files[32];
    open_device();
    work("before", 50);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    snprintf(path, sizeof path, "%s/own", folder);
    unlink(path);
    for (int i = 0; i < 32; i++)
        files[i] = open(path, O_RDWR | O_CREAT | O_APPEND, 0600);
    CHECK(write(files[0], "own", 3) != 3);
    printf("kernel after 50\ncopies 0\n");
    fflush(stdout);
    CUfunction function = kernel("after");
    for (int i = 0; i < 50; i++)
        LAUNCH(function, NULL);
    CHECK(cuCtxSynchronize());
    launched += 50;
    settle();
    own = fopen(path, "r");
    buffer[fread(buffer, 1, sizeof buffer - 1, own)] = 0;
    return strcmp(buffer, "own") == 0 ? 0 : 76;
}

/* One descriptor is left: enough to load libraries, and no more. */
static int has_few_descriptors(void)
{
    struct rlimit limit = {4, 4};
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    setrlimit(RLIMIT_NOFILE, &limit);
    open_device();
    work("poor", 20);
    return 0;
}

/* A limit on the size of files: a write beyond it is SIGXFSZ, and an error where the signal is blocked. */
static int limits_files(void)
{
    struct rlimit limit = {20000, 20000};
    setrlimit(RLIMIT_FSIZE, &limit);
    open_device();
    for (int i = 0; i < 5; i++) {
        work("limited", 2000);
        pause_ms(300);
    }
    return 0;
}

static int fills_the_disk(void)
{
    open_device();
    for (int i = 0; i < 10; i++) {
        work("many", 5000);
        pause_ms(200);
    }
    return 0;
}

/* Launches until its standard input ends; then some more. */
static int waits_for_its_input(void)
{
    char byte;
    open_device();
    work("early", 1000);
    settle();
    printf("ready\n");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {
    }
    work("late", 1000);
    return 0;
}

static int uses_two_contexts(void)
{
    CUcontext contexts[2];
    CUfunction functions[2];
    CHECK(cuInit(0));
    for (int i = 0; i < 2; i++) {
        CHECK(cuCtxCreate_v2(&contexts[i], 0, 0));
        functions[i] = kernel(i ? "in_second" : "in_first");
    }
    for (int i = 0; i < 200; i++) {
        CHECK(cuCtxSetCurrent(contexts[i % 2]));
        LAUNCH(functions[i % 2], NULL);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuCtxSynchronize());
        CHECK(cuCtxDestroy_v2(contexts[i]));
    }
    printf("kernel in_first 100\nkernel in_second 100\n");
    return 0;
}

static int uses_two_devices(void)
{
    CUcontext context;
    int count = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&count));
    for (int device = 0; device < count; device++) {
        CHECK(cuDevicePrimaryCtxRetain(&context, device));
        CHECK(cuCtxSetCurrent(context));
        work("on_each", 50);
    }
    return 0;
}

/* Two copies of NVTX, of which one is closed and opened again. */
static int closes_a_library(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/plugin.so", folder);
    open_device();
    push("program");
    for (int i = 0; i < 3; i++) {
        int (*launch)(int);
        void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!plugin) {
            fprintf(stderr, "%s\n", dlerror());
            return 70;
        }
        *(void **)&launch = dlsym(plugin, "launch_in_plugin");
        if (launch(10) != 10 || dlclose(plugin) != 0)
            return 77;
    }
    work("after", 10);
    pop();
    printf("kernel plugin 30\nrange program 1\nrange plugin 3\n");
    return 0;
}

/* A graph whose nodes keep the range of their capture. */
static int replays_a_graph(void)
{
    CUfunction function;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    open_device();
    function = kernel("layer");
    CHECK(cuStreamCreate(&stream, 1));
    CHECK(cuStreamBeginCapture_v2(stream, 0));
    push("layer");
    for (int i = 0; i < 5; i++)
        LAUNCH(function, stream);
    pop();
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    push("decode");
    for (int i = 0; i < 20; i++)
        CHECK(cuGraphLaunch(exec, stream));
    pop();
    CHECK(cuStreamSynchronize(stream));
    printf("kernel layer 100\nrange layer 1\nrange decode 1\n");
    return 0;
}

static CUcontext shared;
static CUfunction shared_function;

static void *launch_once(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(shared));
    push("thread");
    LAUNCH(shared_function, NULL);
    pop();
    return NULL;
}

/* Ten thousand in a thorough run. */
static int starts_thousands_of_threads(void)
{
    enum { AT_ONCE = 20 };
    int rounds = getenv("THOROUGH_TESTS") != NULL ? 500 : 50;
    pthread_t threads[AT_ONCE];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 * 1024);
    shared = open_device();
    shared_function = kernel("short");
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < AT_ONCE; i++)
            if (pthread_create(&threads[i], &attributes, launch_once, NULL) != 0)
                return 78;
        for (int i = 0; i < AT_ONCE; i++)
            pthread_join(threads[i], NULL);
    }
    CHECK(cuCtxSynchronize());
    printf("kernel short %d\nrange thread %d\n", AT_ONCE * rounds, AT_ONCE * rounds);
    return 0;
}

/* As a runtime that is linked statically: the driver's functions by cuGetProcAddress alone. */
static int resolves_by_address(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CUresult (*find)(const char *, void **, int, unsigned long long, int *);
    void *init, *retain, *set, *load, *get, *launch, *wait;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    int status;
    *(void **)&find = dlsym(driver, "cuGetProcAddress_v2");
#define RESOLVE(name, place) CHECK(find(name, &place, 13000, 0, &status) != 0 || status != 0)
    RESOLVE("cuInit", init);
    RESOLVE("cuDevicePrimaryCtxRetain", retain);
    RESOLVE("cuCtxSetCurrent", set);
    RESOLVE("cuModuleLoadData", load);
    RESOLVE("cuModuleGetFunction", get);
    RESOLVE("cuLaunchKernel", launch);
    RESOLVE("cuCtxSynchronize", wait);
    CHECK(find("cuNoSuchFunction", &wait, 13000, 0, &status) == 0);
    RESOLVE("cuCtxSynchronize", wait);
    CHECK(((CUresult(*)(unsigned))init)(0));
    CHECK(((CUresult(*)(CUcontext *, CUdevice))retain)(&context, 0));
    CHECK(((CUresult(*)(CUcontext))set)(context));
    CHECK(((CUresult(*)(CUmodule *, const void *))load)(&module, ""));
    CHECK(((CUresult(*)(CUfunction *, CUmodule, const char *))get)(&function, module, "resolved"));
    *(void **)&cuLaunchKernel = launch;
    for (int i = 0; i < 60; i++)
        LAUNCH(function, NULL);
    CHECK(((CUresult(*)(void))wait)());
    printf("kernel resolved 60\n");
    return 0;
}

typedef struct {
    unsigned x, y, z;
} extent;

static void registered(void)
{
}

/* As a program of nvcc: kernels are registered and launched through the runtime. */
static int uses_the_runtime(void)
{
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
    void (*add)(void **, const void *, char *, const char *, int, void *, void *, void *, void *, int *);
    int (*launch)(const void *, extent, extent, void **, size_t, void *), (*wait)(void);
    extent grid = {4, 1, 1}, block = {64, 1, 1};
    *(void **)&add = dlsym(runtime, "__cudaRegisterFunction");
    *(void **)&launch = dlsym(runtime, "cudaLaunchKernel");
    *(void **)&wait = dlsym(runtime, "cudaDeviceSynchronize");
    add(NULL, (const void *)registered, NULL, "registered", 0, NULL, NULL, NULL, NULL, NULL);
    for (int i = 0; i < 70; i++)
        CHECK(launch((const void *)registered, grid, block, NULL, 0, NULL));
    CHECK(wait());
    printf("kernel registered 70\n");
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
} programs[] = {
#define PROGRAM(name) {#name, name},
    PROGRAM(launches) PROGRAM(returns_three) PROGRAM(never_launches) PROGRAM(never_calls_cuda)
    PROGRAM(initialises_on_many_threads) PROGRAM(calls_exit) PROGRAM(exits_on_a_thread) PROGRAM(ends_while_others_launch)
    PROGRAM(calls_underscore_exit) PROGRAM(is_killed) PROGRAM(is_terminated) PROGRAM(handles_sigterm) PROGRAM(aborts)
    PROGRAM(segfaults) PROGRAM(forks_without_cuda) PROGRAM(forks_before_cuda) PROGRAM(forks_amid_launches) PROGRAM(spawns)
    PROGRAM(executes_another) PROGRAM(daemonises) PROGRAM(closes_all_descriptors) PROGRAM(has_few_descriptors)
    PROGRAM(limits_files) PROGRAM(fills_the_disk) PROGRAM(waits_for_its_input) PROGRAM(uses_two_contexts) PROGRAM(uses_two_devices)
    PROGRAM(closes_a_library) PROGRAM(replays_a_graph) PROGRAM(starts_thousands_of_threads) PROGRAM(resolves_by_address)
    PROGRAM(uses_the_runtime)
};

/* endings PROGRAM FOLDER */
int main(int argc, char **argv)
{
    if (argc != 3)
        return 64;
    own_path = argv[0];
    folder = argv[2];
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strcmp(programs[i].name, argv[1]) == 0) {
            open_driver();
            return programs[i].run();
        }
    return 64;
}
