/* Gaps of different causes. Each is a function that does what it is named after, and ends the gap with a kernel of that name. */
#include "cuda.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5, MILLISECONDS = 4 };

static volatile uint64_t sink;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

#define FOR_A_WHILE for (double end = now() + MILLISECONDS; now() < end;)
#define CAUSE(name)                                                                                                      \
    static CUfunction kernel_##name;                                                                                     \
    static __attribute__((noinline)) void cause_##name(void)

CAUSE(sleep)
{
    usleep(MILLISECONDS * 1000);
    LAUNCH(kernel_sleep, NULL);
}

CAUSE(busy_loop)
{
    FOR_A_WHILE sink++;
    LAUNCH(kernel_busy_loop, NULL);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t held;

static void *hold(void *unused)
{
    pthread_mutex_lock(&lock);
    pthread_barrier_wait(&held);
    usleep(MILLISECONDS * 1000);
    pthread_mutex_unlock(&lock);
    return unused;
}

CAUSE(lock)
{
    pthread_t holder;
    pthread_create(&holder, NULL, hold, NULL);
    pthread_barrier_wait(&held);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    pthread_join(holder, NULL);
    LAUNCH(kernel_lock, NULL);
}

CAUSE(page_faults)
{
    FOR_A_WHILE
    {
        size_t bytes = 1 << 20;
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t at = 0; memory != MAP_FAILED && at < bytes; at += 4096)
            memory[at] = 1;
        munmap(memory, bytes);
    }
    LAUNCH(kernel_page_faults, NULL);
}

CAUSE(allocation)
{
    FOR_A_WHILE
    {
        void *blocks[64];
        for (int i = 0; i < 64; i++)
            blocks[i] = malloc(100 + (size_t)i * 1000);
        for (int i = 0; i < 64; i++)
            free(blocks[i]);
    }
    LAUNCH(kernel_allocation, NULL);
}

CAUSE(file_reading)
{
    FOR_A_WHILE
    {
        char block[4096];
        FILE *file = fopen("/proc/self/exe", "r");
        while (file && fread(block, 1, sizeof block, file) == sizeof block)
            sink += (unsigned char)block[0];
        if (file)
            fclose(file);
    }
    LAUNCH(kernel_file_reading, NULL);
}

static void *send_later(void *channel)
{
    usleep(MILLISECONDS * 1000);
    if (write(*(int *)channel, "x", 1) != 1)
        exit(73);
    return NULL;
}

CAUSE(channel_wait)
{
    int ends[2];
    char word;
    pthread_t sender;
    if (pipe(ends) != 0)
        exit(74);
    pthread_create(&sender, NULL, send_later, &ends[1]);
    if (read(ends[0], &word, 1) != 1)
        exit(75);
    pthread_join(sender, NULL);
    close(ends[0]);
    close(ends[1]);
    LAUNCH(kernel_channel_wait, NULL);
}

/* A pool of one thread, which is busy with another job. */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t pool_changed = PTHREAD_COND_INITIALIZER;
static int jobs, done;

static void *work_in_pool(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&pool_lock);
        while (done == jobs)
            pthread_cond_wait(&pool_changed, &pool_lock);
        pthread_mutex_unlock(&pool_lock);
        usleep(MILLISECONDS * 500);
        pthread_mutex_lock(&pool_lock);
        done++;
        pthread_cond_broadcast(&pool_changed);
        pthread_mutex_unlock(&pool_lock);
    }
    return unused;
}

CAUSE(pool_starvation)
{
    pthread_mutex_lock(&pool_lock);
    int own = jobs += 2;
    pthread_cond_broadcast(&pool_changed);
    while (done < own)
        pthread_cond_wait(&pool_changed, &pool_lock);
    pthread_mutex_unlock(&pool_lock);
    LAUNCH(kernel_pool_starvation, NULL);
}

/* Code that is made at run time, with a frame pointer, and in the map that perf reads. */
static CUfunction kernel_compiled;
static void (*compiled)(void (*)(void));

static __attribute__((noinline)) void spin_and_launch(void)
{
    FOR_A_WHILE sink++;
    LAUNCH(kernel_compiled, NULL);
}

static void compile(void)
{
#ifdef __x86_64__
    /* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
#elif defined __aarch64__
    /* stp x29, x30, [sp, #-16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #16; ret */
    static const uint32_t code[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#endif
    char name[64];
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(76);
    memcpy(memory, code, sizeof code);
    mprotect(memory, 4096, PROT_READ | PROT_EXEC);
    __builtin___clear_cache((char *)memory, (char *)memory + sizeof code);
    *(void **)&compiled = memory;
    snprintf(name, sizeof name, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(name, "w");
    if (!map)
        exit(77);
    fprintf(map, "%lx %zx py::cause_compiled:/secret/folder/program.py\n", (unsigned long)memory, sizeof code);
    fclose(map);
}

int main(void)
{
    pthread_t pool;
    open_driver();
    open_device();
    pthread_barrier_init(&held, NULL, 2);
    pthread_create(&pool, NULL, work_in_pool, NULL);
    compile();
    CUfunction warm = kernel("warm");
#define CAUSES(_) _(sleep) _(busy_loop) _(lock) _(page_faults) _(allocation) _(file_reading) _(channel_wait) _(pool_starvation)
#define KERNEL(name) kernel_##name = kernel(#name);
    CAUSES(KERNEL)
    kernel_compiled = kernel("compiled");
    LAUNCH(warm, NULL);
    for (int round = 0; round < ROUNDS; round++) {
#define RUN(name) cause_##name();
        CAUSES(RUN)
        compiled(spin_and_launch);
    }
    CHECK(cuCtxSynchronize());
    printf("%d\n", (int)getpid());
    return 0;
}
