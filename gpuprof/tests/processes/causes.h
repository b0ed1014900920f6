/* Causes of gaps. Each is a function that does what it is named after for some time, and then AFTER(name), which the program defines
 * before it includes this file: what ends the gap, or what keeps the function's frame to its end. */
#ifndef CAUSES_H
#define CAUSES_H

#include "cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

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
    AFTER(sleep)
}

CAUSE(busy_loop)
{
    FOR_A_WHILE for (int i = 0; i < 1000; i++) sink++;
    AFTER(busy_loop)
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
    AFTER(lock)
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
    AFTER(page_faults)
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
    AFTER(allocation)
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
    AFTER(file_reading)
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
    AFTER(channel_wait)
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
    AFTER(pool_starvation)
}

/* Code that is made at run time, in the map that perf reads under this name. */
static void *compiled_code(const void *code, size_t bytes, const char *name)
{
    char path[64];
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(76);
    memcpy(memory, code, bytes);
    mprotect(memory, 4096, PROT_READ | PROT_EXEC);
    __builtin___clear_cache((char *)memory, (char *)memory + bytes);
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    static int has_map;
    FILE *map = fopen(path, has_map++ ? "a" : "w");
    if (!map)
        exit(77);
    fprintf(map, "%lx %zx %s\n", (unsigned long)memory, bytes, name);
    fclose(map);
    return memory;
}

/* What the causes need: the thread of the pool. */
static void begin_causes(void)
{
    pthread_t pool;
    pthread_barrier_init(&held, NULL, 2);
    pthread_create(&pool, NULL, work_in_pool, NULL);
}

#endif
