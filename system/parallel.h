// SPDX-License-Identifier: Apache-2.0
// Runs the same work on many items, on several threads.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace metronome {

// Calls visit(i) for every i below `count` on `num_threads` threads, including the calling thread.
// Returns when all calls have returned. If some calls throw, rethrows the exception of the lowest
// such i. All calls with a lower i have been made then; higher ones may be missing.
void for_each_index(std::size_t count, int num_threads,
                    const std::function<void(std::size_t)>& visit);

// Adds a thread that calls `work`. False: the system has no memory, or no right, for one more.
bool start_thread(std::vector<std::thread>& threads, std::function<void()> work);

// Gives the threads that start later stacks of 8 MiB, where the limit of the main thread's stack is
// lower. Raises that limit as far as it may. Returns the limit in bytes.
std::size_t prepare_stacks();

}  // namespace metronome
