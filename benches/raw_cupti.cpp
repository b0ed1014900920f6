// The floor that `launch_cost` compares with: CUPTI driven from C++ with nothing of ours around it.
//
// It enables the same activity kinds and the same callback ids as the Rust collector, but its driver callback is empty,
// and nothing is kept of a record beyond its bytes. What a launch costs here is CUPTI's own.
//
// Built as a shared library and loaded at run time:
//   g++ -O2 -std=c++17 -shared -fPIC -pthread raw_cupti.cpp -I<cuda>/include -I<cuda>/extras/CUPTI/include
//       -L<cuda>/extras/CUPTI/lib64 -L<cuda>/lib64 -lcupti -o libraw_cupti.so
//
// One collection at a time; start and stop belong to one thread.

#include <cupti.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr size_t BUFFER_BYTES = size_t{1} << 20;
/// Buffers made ready at the start.
constexpr uint32_t PREPARED = 16;
/// The most buffers kept for later use.
constexpr uint32_t KEPT = 256;
constexpr uint32_t NONE = UINT32_MAX;
/// How long a stop waits for records that the GPU has not finished.
constexpr auto DRAIN_LIMIT = std::chrono::seconds(10);

constexpr CUpti_ActivityKind KINDS[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,           CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_OVERHEAD,          CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
};

struct Node {
    uint8_t *buffer = nullptr;
    std::atomic<uint32_t> next{NONE};
};

Node nodes[KEPT];

/// A lock-free stack of indices into `nodes`. Its head carries a tag that changes with every operation, so that a head
/// that was taken and put back meanwhile is told from one that stayed (ABA).
class Stack {
public:
    void push(uint32_t index) {
        uint64_t head = head_.load(std::memory_order_relaxed);
        do {
            nodes[index].next.store(static_cast<uint32_t>(head), std::memory_order_relaxed);
        } while (!head_.compare_exchange_weak(head, tagged(head, index), std::memory_order_release,
                                              std::memory_order_relaxed));
    }

    /// NONE if it is empty.
    uint32_t pop() {
        uint64_t head = head_.load(std::memory_order_acquire);
        for (;;) {
            const uint32_t index = static_cast<uint32_t>(head);
            if (index == NONE) {
                return NONE;
            }
            // May be stale where another thread took the node meanwhile; the tag then fails the exchange.
            const uint32_t next = nodes[index].next.load(std::memory_order_relaxed);
            if (head_.compare_exchange_weak(head, tagged(head, next), std::memory_order_acquire,
                                            std::memory_order_acquire)) {
                return index;
            }
        }
    }

private:
    static uint64_t tagged(uint64_t old, uint32_t index) { return ((old >> 32) + 1) << 32 | index; }

    std::atomic<uint64_t> head_{NONE};
};

/// Nodes that hold a zeroed buffer, and nodes that hold none.
Stack ready;
Stack vacant;

uint8_t *take_buffer() {
    const uint32_t index = ready.pop();
    if (index == NONE) {
        return static_cast<uint8_t *>(std::calloc(1, BUFFER_BYTES));
    }
    uint8_t *buffer = nodes[index].buffer;
    vacant.push(index);
    return buffer;
}

/// The buffer must be all zero again.
void give_buffer(uint8_t *buffer) {
    const uint32_t index = vacant.pop();
    if (index == NONE) {
        std::free(buffer);
        return;
    }
    nodes[index].buffer = buffer;
    ready.push(index);
}

/// What was collected: the valid bytes of each buffer, and how many records of which sort they hold.
struct Store {
    std::mutex lock;
    std::vector<std::vector<uint8_t>> buffers;
    uint64_t records = 0;
    uint64_t kernels = 0;
    uint64_t bytes = 0;
};

Store store;
/// Buffers that CUPTI holds.
std::atomic<int64_t> with_cupti{0};
CUpti_SubscriberHandle subscriber = nullptr;

/// Empty: only the call itself is paid for.
void CUPTIAPI callback(void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *) {}

void CUPTIAPI requested(uint8_t **buffer, size_t *size, size_t *max_records) {
    with_cupti.fetch_add(1, std::memory_order_relaxed);
    *buffer = take_buffer();
    *size = *buffer != nullptr ? BUFFER_BYTES : 0;
    *max_records = 0;
}

void CUPTIAPI completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    if (buffer == nullptr) {
        return;
    }
    uint64_t records = 0;
    uint64_t kernels = 0;
    CUpti_Activity *record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        ++records;
        kernels += record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    }
    // By insert, so that the bytes are not zeroed first.
    std::vector<uint8_t> bytes;
    bytes.insert(bytes.end(), buffer, buffer + valid);
    {
        const std::lock_guard<std::mutex> held(store.lock);
        store.records += records;
        store.kernels += kernels;
        store.bytes += valid;
        store.buffers.push_back(std::move(bytes));
    }
    std::memset(buffer, 0, BUFFER_BYTES);
    give_buffer(buffer);
    with_cupti.fetch_sub(1, std::memory_order_release);
}

/// Fills the pool; the pages of every prepared buffer are there afterwards.
bool prepare() {
    static bool prepared = false;
    if (prepared) {
        return true;
    }
    for (uint32_t index = 0; index < KEPT; ++index) {
        vacant.push(index);
    }
    for (uint32_t count = 0; count < PREPARED; ++count) {
        auto *buffer = static_cast<uint8_t *>(std::calloc(1, BUFFER_BYTES));
        if (buffer == nullptr) {
            return false;
        }
        for (size_t at = 0; at < BUFFER_BYTES; at += 4096) {
            // A plain store of zero to fresh zeroes could be left out.
            static_cast<volatile uint8_t *>(buffer)[at] = 0;
        }
        give_buffer(buffer);
    }
    prepared = true;
    return true;
}

/// Says what failed; true if something did.
bool failed(const char *function, CUptiResult code) {
    if (code == CUPTI_SUCCESS) {
        return false;
    }
    const char *text = nullptr;
    cuptiGetResultString(code, &text);
    std::fprintf(stderr, "raw_cupti: %s: %s (%d)\n", function, text != nullptr ? text : "?",
                 static_cast<int>(code));
    return true;
}

/// Callbacks of these calls; and the kinds, if records are wanted.
CUptiResult enable(const uint32_t *driver_cbids, size_t n, bool with_records) {
    uint8_t zeroed = 1;
    size_t size = sizeof zeroed;
    CUptiResult code = cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed);
    if (code != CUPTI_ERROR_INVALID_PARAMETER && failed("cuptiActivitySetAttribute", code)) {
        return code;
    }
    code = cuptiActivityRegisterCallbacks(requested, completed);
    if (failed("cuptiActivityRegisterCallbacks", code)) {
        return code;
    }
    for (size_t i = 0; i < n; ++i) {
        code = cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, driver_cbids[i]);
        // Functions that are newer than the library cannot be called in it either.
        if (code != CUPTI_ERROR_INVALID_PARAMETER && failed("cuptiEnableCallback", code)) {
            return code;
        }
    }
    if (!with_records) {
        return CUPTI_SUCCESS;
    }
    code = cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
    if (failed("cuptiEnableCallback", code)) {
        return code;
    }
    for (const CUpti_ActivityKind kind : KINDS) {
        code = cuptiActivityEnable(kind);
        if (failed("cuptiActivityEnable", code)) {
            return code;
        }
    }
    return CUPTI_SUCCESS;
}

void disable() {
    for (const CUpti_ActivityKind kind : KINDS) {
        cuptiActivityDisable(kind);
    }
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    cuptiUnsubscribe(subscriber);
    subscriber = nullptr;
}

/// Flushes until CUPTI holds no buffer, which then has no unfinished record.
CUptiResult drain() {
    const auto deadline = std::chrono::steady_clock::now() + DRAIN_LIMIT;
    auto pause = std::chrono::microseconds(50);
    for (;;) {
        const CUptiResult code = cuptiActivityFlushAll(0);
        if (failed("cuptiActivityFlushAll", code)) {
            return code;
        }
        if (with_cupti.load(std::memory_order_acquire) <= 0 || std::chrono::steady_clock::now() >= deadline) {
            return CUPTI_SUCCESS;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(10000));
    }
}

} // namespace

extern "C" {

/// CUPTI's API version; 0 if it does not say.
uint32_t raw_version() {
    uint32_t version = 0;
    return cuptiGetVersion(&version) == CUPTI_SUCCESS ? version : 0;
}

/// Starts collecting: callbacks of these calls, and records unless they are not wanted. Gives 0, or CUPTI's error code after
/// saying on stderr what failed; then everything is put back.
int32_t raw_start(const uint32_t *driver_cbids, size_t n, bool with_records) {
    if (!prepare()) {
        return CUPTI_ERROR_OUT_OF_MEMORY;
    }
    {
        // What the last collection gave is freed here, where no clock runs.
        const std::lock_guard<std::mutex> held(store.lock);
        store.buffers.clear();
        store.records = store.kernels = store.bytes = 0;
    }
    CUptiResult code = cuptiSubscribe(&subscriber, callback, nullptr);
    if (failed("cuptiSubscribe", code)) {
        return code;
    }
    code = enable(driver_cbids, n, with_records);
    if (code != CUPTI_SUCCESS) {
        disable();
    }
    return code;
}

/// Stops and fills in what was collected: records, kernels among them, records that CUPTI dropped, bytes.
int32_t raw_stop(uint64_t out[4]) {
    const CUptiResult drained = drain();
    disable();
    size_t dropped = 0;
    const CUptiResult code = cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped);
    {
        const std::lock_guard<std::mutex> held(store.lock);
        out[0] = store.records;
        out[1] = store.kernels;
        out[2] = dropped;
        out[3] = store.bytes;
    }
    return failed("cuptiActivityGetNumDroppedRecords", code) ? code : drained;
}

} // extern "C"
