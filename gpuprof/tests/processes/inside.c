/* Gaps whose cause has returned when they end: nothing of it is on the stack of the launch. Each is a function that is named after what
 * it does, and the next kernel has its name. With an argument `denied` the kernel refuses perf_event_open. */
#define AFTER(name) sink++;
#include "causes.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { ROUNDS = 5 };

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
    AFTER(decompression)
}

/* It counts down, with a frame pointer. */
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
    *(void **)&compiled = compiled_code(code, sizeof code, "cause_compiled");
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
    AFTER(garbage_collection)
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
    milliseconds = count > 1 ? atoi(arguments[1]) : 8;
    if (count > 2 && strcmp(arguments[2], "denied") == 0)
        deny_perf();
    open_driver();
    open_device();
    begin_causes();
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
