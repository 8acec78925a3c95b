// SPDX-License-Identifier: Apache-2.0
// Where a key belongs that stands in the wrong section, or has an engine's name.
#include <algorithm>

#include "core/config/config_writer.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_keys.h"

namespace metronome {
namespace {

// Options of engines and their benchmarks that have another name here.
struct Elsewhere {
  std::string_view option;
  std::string_view place;
};
constexpr Elsewhere kElsewhere[] = {
    {"max_running_requests", "engine.max_num_seqs"},
    {"max_batch_size", "engine.max_num_seqs"},
    {"n_parallel", "engine.max_num_seqs"},
    {"parallel", "engine.max_num_seqs"},
    {"context_length", "engine.max_model_len"},
    {"async_scheduling", "engine.async_depth: 2"},
    {"disable_overlap_schedule", "engine.async_depth: 1"},
    {"page_size", "kv_cache.block_size"},
    {"tokens_per_block", "kv_cache.block_size"},
    {"num_gpu_blocks_override", "kv_cache.num_blocks"},
    {"disable_radix_cache", "kv_cache.enable_prefix_caching: false"},
    {"kv_cache_dtype", "kv_cache.dtype"},
    {"mem_fraction_static", "cost_model.gpu_memory_utilization"},
    {"tp", "cost_model.tensor_parallel_size"},
    {"tp_size", "cost_model.tensor_parallel_size"},
    {"gpu", "hardware"},
    {"num_prompts", "workload.num_requests"},
    {"request_rate", "workload.arrivals.rate"},
    {"max_concurrency", "workload.arrivals.concurrency"},
    {"dataset_path", "workload.trace.file"},
};

constexpr std::size_t kMostPlaces = 3;  // a name with more is too common for a hint

// Adds the sections and the key on this path that have the name, each once.
void add_places(const std::string& path, std::string_view name, std::vector<std::string>& places) {
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    if (std::string_view(path).substr(begin, end - begin) == name) {
      std::string place = path.substr(0, end);
      if (begin == 0) place += " at the top level";
      if (places.empty() || places.back() != place) places.push_back(std::move(place));
    }
    begin = end + 1;
  }
}

}  // namespace

std::string place_of_key(std::string_view key) {
  for (const Elsewhere& elsewhere : kElsewhere) {
    if (elsewhere.option == key) return std::string(elsewhere.place);
  }
  std::vector<std::string> places;
  for (const DocumentedKey& known : documented_scenario_keys()) add_places(known.key, key, places);
  if (places.size() > kMostPlaces) return {};
  std::string text;
  for (const std::string& place : places) text += (text.empty() ? "" : " or ") + place;
  return text;
}

}  // namespace metronome
