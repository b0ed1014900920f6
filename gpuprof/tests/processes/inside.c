/* Gaps whose cause has returned when they end: nothing of it is on the stack of the launch. Each is a function that is named after what
 * it does, and the next kernel has its name. With an argument `denied` the kernel refuses perf_event_open. */
#include "cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5 };

static int milliseconds;
static volatile uint64_t sink;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

#define FOR_A_WHILE for (double end = now() + milliseconds; now() < end;)
#define CAUSE(name) static __attribute__((noinline)) void cause_##name(void)

static void wait_a_while(void)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

CAUSE(sleep)
{
    wait_a_while();
    sink++;
}

CAUSE(busy_loop)
{
    FOR_A_WHILE for (int i = 0; i < 1000; i++) sink++;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t held;

static void *hold(void *unused)
{
    pthread_mutex_lock(&lock);
    pthread_barrier_wait(&held);
    wait_a_while();
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
    sink++;
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
}

CAUSE(file_reading)
{
    FOR_A_WHILE
    {
        static char block[1 << 16];
        int file = open("/proc/self/exe", O_RDONLY);
        while (file >= 0 && read(file, block, sizeof block) > 0)
            sink += (unsigned char)block[0];
        if (file >= 0)
            close(file);
    }
}

/* Runs of a byte: count and value by turns. */
CAUSE(decompression)
{
    static unsigned char packed[2048], unpacked[2048 * 255];
    for (size_t i = 0; i < sizeof packed; i++)
        packed[i] = (unsigned char)(i * 7 + 1);
    FOR_A_WHILE
    {
        size_t out = 0;
        for (size_t i = 0; i + 1 < sizeof packed; i += 2)
            for (unsigned n = packed[i]; n > 0; n--)
                unpacked[out++] = packed[i + 1];
        sink += unpacked[out / 2];
    }
}

static void *send_later(void *channel)
{
    wait_a_while();
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
        wait_a_while();
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
}

/* Code that is made at run time: it counts down, with a frame pointer, and is in the map that perf reads. */
static void (*compiled)(uint64_t);

static void compile(void)
{
#ifdef __x86_64__
    /* push %rbp; mov %rsp, %rbp; 1: dec %rdi; jnz 1b; pop %rbp; ret */
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3};
#elif defined __aarch64__
    /* stp x29, x30, [sp, #-16]!; mov x29, sp; 1: subs x0, x0, #1; b.ne 1b; ldp x29, x30, [sp], #16; ret */
    static const uint32_t code[] = {0xa9bf7bfd, 0x910003fd, 0xf1000400, 0x54ffffe1, 0xa8c17bfd, 0xd65f03c0};
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
    fprintf(map, "%lx %zx cause_compiled\n", (unsigned long)memory, sizeof code);
    fclose(map);
}

static void run_compiled(void)
{
    FOR_A_WHILE compiled(200000);
}

/* Marks what can be reached and frees the rest, as a collector does. */
struct object {
    struct object *next, *other;
    int is_marked;
};

CAUSE(garbage_collection)
{
    enum { OBJECTS = 4096 };
    static struct object objects[OBJECTS];
    for (size_t i = 0; i < OBJECTS; i++)
        objects[i].next = &objects[i * 17 % OBJECTS], objects[i].other = &objects[(i * 31 + 7) % OBJECTS];
    FOR_A_WHILE
    {
        struct object *at = &objects[1];
        for (int i = 0; i < 10 * OBJECTS; i++) {
            at->is_marked = 1;
            at = i % 3 ? at->next : at->other;
        }
        for (int i = 0; i < OBJECTS; i++) {
            sink += (uint64_t)objects[i].is_marked;
            objects[i].is_marked = 0;
        }
    }
}

static void deny_perf(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        exit(78);
}

int main(int count, char **arguments)
{
    pthread_t pool;
    milliseconds = count > 1 ? atoi(arguments[1]) : 8;
    if (count > 2 && strcmp(arguments[2], "denied") == 0)
        deny_perf();
    open_driver();
    open_device();
    pthread_barrier_init(&held, NULL, 2);
    pthread_create(&pool, NULL, work_in_pool, NULL);
    compile();
    CUfunction warm = kernel("warm");
#define CAUSES(_)                                                                                                        \
    _(sleep) _(busy_loop) _(lock) _(page_faults) _(allocation) _(file_reading) _(decompression) _(channel_wait)          \
        _(pool_starvation) _(garbage_collection)
#define KERNEL(name) CUfunction kernel_##name = kernel(#name);
    CAUSES(KERNEL)
    KERNEL(compiled)
    /* The sampler sees the thread from its first launch on. */
    LAUNCH(warm, NULL);
    usleep(100000);
    for (int round = 0; round < ROUNDS; round++) {
#define RUN(name)                                                                                                        \
    LAUNCH(warm, NULL);                                                                                                  \
    cause_##name();                                                                                                      \
    LAUNCH(kernel_##name, NULL);
        CAUSES(RUN)
        LAUNCH(warm, NULL);
        run_compiled();
        LAUNCH(kernel_compiled, NULL);
    }
    CHECK(cuCtxSynchronize());
    printf("%d\n", (int)getpid());
    return 0;
}
