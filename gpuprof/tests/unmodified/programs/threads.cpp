// A C++ program with threads, exceptions and a kernel of a template, whose name is mangled.
#include "cuda.h"

#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static const char *const NAME = "_Z4axpyIfEvPT_i"; // void axpy<float>(float*, int)

static void launch(CUcontext context, CUfunction function, int launches)
{
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < launches; i++) {
        try {
            LAUNCH(function, nullptr);
            if (i % 10 == 0)
                throw std::runtime_error("of the program");
        } catch (const std::runtime_error &) {
        }
    }
}

int main()
{
    open_driver();
    CUcontext context = open_device();
    CUfunction function = kernel(NAME);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back(launch, context, function, 100);
    for (auto &thread : threads)
        thread.join();
    CHECK(cuCtxSynchronize());
    std::cout << "kernel " << NAME << " " << 4 * 100 << std::endl;
    return 0;
}
