// The same work on many things, on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace metronome {

// Calls visit(i) for every i below `count`, on `num_threads` threads, this one among them. Returns
// when all calls have. If some throw, throws on what the lowest i of them threw; calls for lower
// ones have been made then, others need not have been.
void for_each_index(std::size_t count, int num_threads,
                    const std::function<void(std::size_t)>& visit);

}  // namespace metronome
