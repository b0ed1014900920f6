/* Does what its input says: "launch COUNT", "fork COUNT", "exit STATUS", "raise SIGNAL", "fail 0". Answers each line with "done". */
#include "cuda.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    char word[16];
    int number;

    open_driver();
    open_device();
    CUfunction step = kernel("step");
    printf("ready\n");
    fflush(stdout);
    while (scanf("%15s %d", word, &number) == 2) {
        if (strcmp(word, "launch") == 0) {
            for (int i = 0; i < number; i++)
                LAUNCH(step, NULL);
            CHECK(cuCtxSynchronize());
        } else if (strcmp(word, "fork") == 0) {
            pid_t child = fork();
            if (child == 0)
                exit(number); /* with the handlers of the parent */
            waitpid(child, NULL, 0);
        } else if (strcmp(word, "fail") == 0) {
            if (cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0)
                exit(73); /* no such kernel */
        } else if (strcmp(word, "exit") == 0) {
            exit(number);
        } else if (strcmp(word, "raise") == 0) {
            raise(number);
        }
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
