// SPDX-License-Identifier: Apache-2.0
// Sources of the names and meanings: those of engine_flags.cpp.
#include "study/run/engine_settings.h"

#include <algorithm>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/engine/scheduler_config.h"
#include "engines/vllm/settings.h"
#include "reports/files/log_text.h"

namespace metronome {
namespace {

enum class Kind { Count, Number, Word, Switch, Negation, Off };  // Off: a key's value is 0

struct Row {
  std::string_view argument;
  std::string_view key;
  Kind kind = Kind::Count;
  std::string_view other_flag{};  // a second name of the flag
  std::string_view usual{};       // the engine's default, which needs no mention
};

constexpr Row kVllmRows[] = {
    {"max_num_batched_tokens", "scheduler.max_num_batched_tokens"},
    {"enable_chunked_prefill", "scheduler.enable_chunked_prefill", Kind::Switch},
    {"long_prefill_token_threshold", "scheduler.long_prefill_token_threshold", Kind::Count, "",
     "0"},
    {"scheduling_policy", "scheduler.scheduling_policy", Kind::Word, "", "fcfs"},
    {"scheduler_reserve_full_isl", "scheduler.scheduler_reserve_full_isl", Kind::Switch},
    {"max_num_active_seqs", "scheduler.max_num_active_seqs", Kind::Count, "", "0"},
    {"long_prefill_token_threshold_adaptive", "scheduler.long_prefill_token_threshold_adaptive",
     Kind::Switch},
    {"prefill_schedule_interval", "scheduler.prefill_schedule_interval", Kind::Count, "", "1"},
    {"max_num_seqs", "engine.max_num_seqs"},
    {"max_model_len", "engine.max_model_len"},
    {"block_size", "kv_cache.block_size"},
    {"enable_prefix_caching", "kv_cache.enable_prefix_caching", Kind::Switch},
    {"num_gpu_blocks_override", "kv_cache.num_blocks"},
    {"gpu_memory_utilization", "cost_model.gpu_memory_utilization", Kind::Number},
    {"async_scheduling", "engine.async_depth", Kind::Switch},
    {"max_cudagraph_capture_size", "cost_model.max_graph_tokens"},
    {"enforce_eager", "cost_model.max_graph_tokens", Kind::Off},
    {"tensor_parallel_size", "cost_model.tensor_parallel_size", Kind::Count, "-tp", "1"}};

constexpr Row kSglangRows[] = {
    {"schedule_policy", "scheduler.schedule_policy", Kind::Word},
    {"chunked_prefill_size", "scheduler.chunked_prefill_size"},
    {"max_prefill_tokens", "scheduler.max_prefill_tokens"},
    {"enable_mixed_chunk", "scheduler.enable_mixed_chunk", Kind::Switch},
    {"schedule_conservativeness", "scheduler.schedule_conservativeness", Kind::Number},
    {"scheduler_recv_interval", "scheduler.scheduler_recv_interval", Kind::Count, "", "1"},
    {"prefill_decode_interval", "scheduler.prefill_decode_interval", Kind::Count, "", "0"},
    {"prefill_decode_interval_min_bs", "scheduler.prefill_decode_interval_min_bs", Kind::Count, "",
     "0"},
    {"prefill_max_requests", "scheduler.prefill_max_requests"},
    {"enable_priority_scheduling", "scheduler.enable_priority_scheduling", Kind::Switch},
    {"schedule_low_priority_values_first", "scheduler.schedule_low_priority_values_first",
     Kind::Switch},
    {"priority_scheduling_preemption_threshold",
     "scheduler.priority_scheduling_preemption_threshold", Kind::Count, "", "10"},
    {"disable_priority_preemption", "scheduler.disable_priority_preemption", Kind::Switch},
    {"retraction_policy", "scheduler.retraction_policy", Kind::Word, "", "length"},
    {"max_running_requests", "engine.max_num_seqs"},
    {"context_length", "engine.max_model_len"},
    {"page_size", "kv_cache.block_size"},
    {"disable_radix_cache", "kv_cache.enable_prefix_caching", Kind::Negation},
    {"max_total_tokens", "kv_cache.num_blocks"},
    {"mem_fraction_static", "cost_model.gpu_memory_utilization", Kind::Number},
    {"disable_overlap_schedule", "engine.async_depth", Kind::Negation},
    {"tp_size", "cost_model.tensor_parallel_size", Kind::Count, "--tensor-parallel-size", "1"},
    {"max_queued_requests", "engine.max_waiting_requests"},
    {"cuda_graph_max_bs_decode", "cost_model.max_graph_tokens"},
    {"disable_cuda_graph", "cost_model.max_graph_tokens", Kind::Off},
    {"cuda_graph_max_bs_prefill", "cost_model.max_prompt_graph_tokens"},
    {"disable_prefill_cuda_graph", "cost_model.max_prompt_graph_tokens", Kind::Off}};

std::span<const Row> rows_of(LogEngine engine) {
  return engine == LogEngine::Vllm ? std::span<const Row>(kVllmRows)
                                   : std::span<const Row>(kSglangRows);
}

std::string flag_of(const Row& row) {
  std::string flag = "--" + std::string(row.argument);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

bool is_switch(const Row& row) {
  return row.kind == Kind::Switch || row.kind == Kind::Negation || row.kind == Kind::Off;
}

// Whether the value has the form that its row asks for.
bool is_valid(const Row& row, const std::string& value) {
  switch (row.kind) {
    case Kind::Count: return number_in<std::int64_t>(value).has_value();
    case Kind::Number: return number_in<double>(value).has_value();
    case Kind::Word: return !value.empty();
    case Kind::Switch:
    case Kind::Negation:
    case Kind::Off: return value == "True" || value == "False";
  }
  return false;
}

std::string known_flags(LogEngine engine) {
  std::vector<std::string> flags;
  for (const Row& row : rows_of(engine)) flags.push_back(flag_of(row));
  return join_names(std::vector<std::string_view>(flags.begin(), flags.end()));
}

// The row of a flag, and the value that the flag has by itself.
const Row* find_row(LogEngine engine, std::string_view flag, std::string& value) {
  for (const Row& row : rows_of(engine)) {
    const std::string name = flag_of(row);
    const bool is_off =
        engine == LogEngine::Vllm && is_switch(row) && flag == "--no-" + name.substr(2);
    if (flag != name && !is_off && (row.other_flag.empty() || flag != row.other_flag)) continue;
    if (is_switch(row)) value = is_off ? "False" : "True";
    return &row;
  }
  return nullptr;
}

EngineArguments parse_flags(LogEngine engine, std::string_view flags) {
  EngineArguments arguments;
  std::istringstream words{std::string(flags)};
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    std::string value;
    const Row* row = find_row(engine, flag, value);
    if (row == nullptr) {
      throw UsageError("--flags: '" + printable(flag) + "' is no setting of " +
                       std::string(kLogEngineNames[static_cast<int>(engine)]) +
                       " that a scenario has; allowed: " + known_flags(engine));
    }
    if (!is_switch(*row)) {
      if (equals != std::string::npos) {
        value = word.substr(equals + 1);
      } else if (!(words >> value)) {
        value.clear();
      }
    }
    const bool has_extra = is_switch(*row) && equals != std::string::npos;
    if (has_extra || !is_valid(*row, value)) {
      constexpr const char* kAllowed[] = {"an integer", "a number", "a word",
                                          "no value",   "no value", "no value"};
      throw UsageError("--flags: '" + flag + "': '" + printable(value) +
                       "' is not valid; allowed: " + kAllowed[static_cast<int>(row->kind)]);
    }
    arguments[std::string(row->argument)] = value;
  }
  return arguments;
}

const std::string kChosen = "chosen ";
constexpr std::string_view kPool = "KV cache";  // its tokens, among the chosen ones

// The engine's own choice, under the setting's usual name.
void take_chosen(EngineArguments& arguments, const std::string& name, const std::string& argument) {
  const auto found = arguments.find(name);
  if (found == arguments.end()) return;
  const std::string value = found->second;
  arguments.erase(found);
  arguments[kChosen + argument] = value;
}

std::optional<std::int64_t> count_of(const EngineArguments& arguments, const std::string& name) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? std::nullopt : number_in<std::int64_t>(found->second);
}

// "0.33.1" is {0, 33}.
std::pair<int, int> version_of(const EngineArguments& arguments) {
  const auto found = arguments.find("version");
  if (found == arguments.end()) return {};
  const std::string_view text = found->second;
  const std::size_t dot = std::min(text.find('.'), text.size());
  const std::string_view rest = text.substr(std::min(dot + 1, text.size()));
  return {number_in<int>(text.substr(0, dot)).value_or(0),
          number_in<int>(rest.substr(0, rest.find('.'))).value_or(0)};
}

// vLLM says its token budget at its start, "Chunked prefill is enabled with ...". From 0.32 on it
// leaves out this line where the budget is 2,048: seen in real logs, in 3 of 3 without the line and
// in none of 6 with it. The mark has the value's origin, for a note.
constexpr const char* kUnprintedBudget = "2048";
constexpr const char* kBudgetIsUnprinted = "max_num_batched_tokens is not printed";

void add_unprinted_budget(EngineArguments& arguments) {
  constexpr std::pair kFirstVersion(0, 32);
  const auto chunks = arguments.find("enable_chunked_prefill");
  const bool has_start = arguments.contains("model") || arguments.contains("model_tag");
  const bool is_chunked = chunks == arguments.end() || chunks->second != "False";
  if (!has_start || !is_chunked || version_of(arguments) < kFirstVersion) return;
  const std::string name = "max_num_batched_tokens";
  if (arguments.contains(name) || arguments.contains(kChosen + name)) return;
  arguments[kChosen + name] = kUnprintedBudget;
  arguments[kBudgetIsUnprinted] = "True";
}

std::string lower(const std::string& value) { return value == "True" ? "true" : "false"; }

// The value of a key in a scenario; nullopt: there is none for the setting.
std::optional<std::string> key_value(const Row& row, const std::string& value,
                                     const EngineArguments& arguments) {
  if (row.key == "engine.async_depth") {
    return (value == "True") == (row.kind == Kind::Switch) ? "2" : "1";
  }
  if (row.kind == Kind::Negation) return lower(value == "True" ? "False" : "True");
  if (row.kind == Kind::Switch) return lower(value);
  if (row.kind == Kind::Off) return "0";
  if (row.argument == "max_total_tokens") {
    const std::int64_t page = count_of(arguments, "page_size").value_or(1);
    if (page <= 0) return std::nullopt;
    return std::to_string(number_in<std::int64_t>(value).value_or(0) / page);
  }
  if (row.argument == "schedule_policy" && value != "lpm" && value != "fcfs") return std::nullopt;
  return value;
}

// "0.33.1" is 0.33.
void add_version(const EngineArguments& arguments, EngineSettings& settings) {
  const auto found = arguments.find("version");
  if (found == arguments.end()) return;
  const std::size_t minor = found->second.find('.');
  const std::string version = found->second.substr(0, found->second.find('.', minor + 1));
  if (std::find(std::begin(kVllmVersions), std::end(kVllmVersions), version) !=
      std::end(kVllmVersions)) {
    settings.assignments.push_back("scheduler.version=" + version);
  } else {
    settings.notes.push_back("vLLM " + printable(found->second) +
                             " is simulated with the rules of the scenario's version.");
  }
}

}  // namespace

EngineArguments merged_arguments(const EngineLog& log, std::string_view flags) {
  EngineArguments arguments = log.settings;
  for (const std::string& name : log.chosen) take_chosen(arguments, name, name);
  for (const std::string& prefix : {std::string(), kChosen}) {
    take_chosen(arguments, prefix + "context_len", "context_length");
    take_chosen(arguments, prefix + "max_total_num_tokens", std::string(kPool));
    take_chosen(arguments, prefix + "kv_cache_size_tokens", std::string(kPool));
  }
  const EngineArguments given = parse_flags(log.engine, flags);
  for (const auto& [name, value] : given) arguments[name] = value;
  // Another share of memory or another size is another pool than the log's.
  for (const char* name : {"num_gpu_blocks_override", "gpu_memory_utilization", "max_total_tokens",
                           "mem_fraction_static"}) {
    if (given.contains(name)) arguments.erase(kChosen + std::string(kPool));
  }
  if (log.engine == LogEngine::Vllm) add_unprinted_budget(arguments);
  return arguments;
}

std::optional<std::int64_t> count_in_force(const EngineArguments& arguments,
                                           const std::string& name) {
  const auto set = count_of(arguments, name);
  return set ? set : count_of(arguments, kChosen + name);
}

std::vector<std::string> EngineSettings::in_force() const {
  std::vector<std::string> all = flags;
  for (const std::string& one : chosen) {
    std::string flag = "--" + one;
    const auto name_end = flag.begin() + static_cast<std::ptrdiff_t>(flag.find(' '));
    std::replace(flag.begin(), name_end, '_', '-');
    all.push_back(std::move(flag));
  }
  return all;
}

std::string_view key_of_flag(LogEngine engine, std::string_view flag) {
  std::string value;
  const Row* row = find_row(engine, flag.substr(0, flag.find(' ')), value);
  return row == nullptr ? std::string_view() : row->key;
}

namespace {

// The log's KV cache, in blocks if their size is known.
void add_pool(LogEngine engine, const EngineArguments& arguments, EngineSettings& settings) {
  const auto tokens = count_of(arguments, kChosen + std::string(kPool));
  if (!tokens) return;
  settings.pool = std::string(kPool) + " " + count_text(*tokens, "token") + " (in the log";
  const bool is_vllm = engine == LogEngine::Vllm;
  const auto block = count_of(arguments, is_vllm ? "block_size" : "page_size");
  settings.pool += block ? ")" : "; the block's size is not)";
  if (!block || *block <= 0) {
    settings.pool_tokens = tokens;
  } else {
    settings.assignments.push_back("kv_cache.num_blocks=" + std::to_string(*tokens / *block));
  }
}

// The value of a row's argument; nullptr: there is none. Sets whether the engine chose it.
const std::string* value_of(const Row& row, const EngineArguments& arguments, bool& is_chosen) {
  is_chosen = false;
  const std::string name(row.argument);
  const auto set = arguments.find(name);
  if (set != arguments.end() && is_valid(row, set->second)) return &set->second;  // not None
  const auto chosen = arguments.find(kChosen + name);
  if (chosen == arguments.end() || !is_valid(row, chosen->second)) return nullptr;
  is_chosen = true;
  return &chosen->second;
}

void add_flag(LogEngine engine, const Row& row, const std::string& value,
              std::vector<std::string>& flags) {
  if (!row.usual.empty() && value == row.usual) return;
  if (!is_switch(row)) {
    flags.push_back(flag_of(row) + " " + printable(value));
  } else if (value == "True") {
    flags.push_back(flag_of(row));
  } else if (engine == LogEngine::Vllm) {
    flags.push_back("--no-" + flag_of(row).substr(2));
  }
}

}  // namespace

EngineSettings scenario_settings(LogEngine engine, const EngineArguments& arguments) {
  EngineSettings settings;
  if (arguments.empty()) return settings;
  settings.assignments.push_back("scheduler.policy=" +
                                 std::string(kLogEngines[static_cast<int>(engine)]));
  if (engine == LogEngine::Vllm) add_version(arguments, settings);
  if (arguments.contains(kBudgetIsUnprinted)) {
    settings.notes.push_back(
        "The log does not say --max-num-batched-tokens, and lacks the line \"Chunked prefill is "
        "enabled with\", which vLLM from 0.32 on leaves out where the value is 2048.");
  }
  bool has_pool = arguments.contains(kChosen + std::string(kPool));
  bool is_chosen = false;
  for (const Row& row : rows_of(engine)) {
    if (row.key == "kv_cache.num_blocks") {
      has_pool = has_pool || value_of(row, arguments, is_chosen) != nullptr;
    }
  }
  for (const Row& row : rows_of(engine)) {
    const std::string* given = value_of(row, arguments, is_chosen);
    const bool is_pool = row.key == "kv_cache.num_blocks";
    if (is_pool && given == nullptr) add_pool(engine, arguments, settings);
    if (given == nullptr) continue;
    // The size of the pool says it exactly.
    if (row.key == "cost_model.gpu_memory_utilization" && has_pool) {
      if (!is_chosen) add_flag(engine, row, *given, settings.flags);
      continue;
    }
    if (row.kind == Kind::Off && *given == "False") continue;
    const std::optional<std::string> value = key_value(row, *given, arguments);
    if (!value) {
      settings.notes.push_back(flag_of(row) + " " + printable(*given) +
                               " is not simulated: the scenario's value stays.");
      continue;
    }
    settings.assignments.push_back(std::string(row.key) + "=" + *value);
    if (is_chosen) {
      settings.chosen.push_back(std::string(row.argument) + " " + printable(*given));
    } else {
      add_flag(engine, row, *given, settings.flags);
    }
  }
  return settings;
}

}  // namespace metronome
