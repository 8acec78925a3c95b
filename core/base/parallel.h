// Runs the same work on many items, on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace metronome {

// Calls visit(i) for every i below `count` on `num_threads` threads, including the calling thread.
// Returns when all calls have returned. If some calls throw, rethrows the exception of the lowest
// such i. All calls with a lower i have been made then; higher ones may be missing.
void for_each_index(std::size_t count, int num_threads,
                    const std::function<void(std::size_t)>& visit);

}  // namespace metronome
