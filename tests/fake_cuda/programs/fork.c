/* What a forked child may do: nothing with its parent's CUDA, all with its own. Prints what each child saw. */
#include "cuda.h"

#include <sys/wait.h>
#include <unistd.h>

static int status_of(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

int main(void)
{
    CUstream stream;
    CUfunction function;
    pid_t child;

    open_driver();
    child = fork(); /* before cuInit: the child has a driver of its own */
    if (child == 0) {
        open_device();
        function = kernel("of_child");
        LAUNCH(function, NULL);
        CHECK(cuCtxSynchronize());
        _exit(7);
    }
    printf("own %d\n", status_of(child));

    open_device();
    function = kernel("of_parent");
    CHECK(cuStreamCreate(&stream, 0));
    LAUNCH(function, stream);
    fflush(stdout);
    child = fork(); /* after: CUDA_ERROR_NOT_INITIALIZED */
    if (child == 0)
        _exit(cuInit(0) == 3 && cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL) == 3 ? 8 : 9);
    printf("parents %d\n", status_of(child));
    LAUNCH(function, stream);
    CHECK(cuStreamSynchronize(stream));
    return 0;
}
