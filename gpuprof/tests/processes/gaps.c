/* Gaps of different causes. Each is a function that does what it is named after, and ends the gap with a kernel of that name. */
#include "cuda.h"

#define CAUSES(_) _(sleep) _(busy_loop) _(lock) _(page_faults) _(allocation) _(file_reading) _(channel_wait) _(pool_starvation)
#define DECLARED(name) static CUfunction kernel_##name;
CAUSES(DECLARED)
#define AFTER(name) LAUNCH(kernel_##name, NULL);
#include "causes.h"

enum { ROUNDS = 5 };

/* Code that calls a function: with a frame pointer, and without one as the trampolines of CPython 3.12 on x86-64. */
static CUfunction kernel_compiled, kernel_trampoline;
static void (*compiled)(void (*)(void)), (*trampoline)(void (*)(void));

static __attribute__((noinline)) void spin_and_launch(void)
{
    FOR_A_WHILE sink++;
    LAUNCH(kernel_compiled, NULL);
}

static __attribute__((noinline)) void spin_in_trampoline(void)
{
    FOR_A_WHILE sink++;
    LAUNCH(kernel_trampoline, NULL);
}

static void compile(void)
{
#ifdef __x86_64__
    /* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    /* sub $8, %rsp; call *%rdi; add $8, %rsp; ret */
    static const unsigned char bare[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3};
#elif defined __aarch64__
    /* stp x29, x30, [sp, #-16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #16; ret */
    static const uint32_t code[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#define bare code
#endif
    *(void **)&compiled = compiled_code(code, sizeof code, "py::cause_compiled:/secret/folder/program.py");
    *(void **)&trampoline = compiled_code(bare, sizeof bare, "py::cause_trampoline:/secret/folder/program.py");
}

int main(void)
{
    milliseconds = 4;
    open_driver();
    open_device();
    begin_causes();
    compile();
    CUfunction warm = kernel("warm");
#define KERNEL(name) kernel_##name = kernel(#name);
    CAUSES(KERNEL)
    kernel_compiled = kernel("compiled");
    kernel_trampoline = kernel("trampoline");
    LAUNCH(warm, NULL);
    for (int round = 0; round < ROUNDS; round++) {
#define RUN(name) cause_##name();
        CAUSES(RUN)
        compiled(spin_and_launch);
        trampoline(spin_in_trampoline);
    }
    CHECK(cuCtxSynchronize());
    printf("%d\n", (int)getpid());
    return 0;
}
