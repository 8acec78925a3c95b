// SPDX-License-Identifier: Apache-2.0
// Every scheduling policy by name: description, the scheduler keys it reads, and its factory.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/engine/arrival_gate.h"
#include "core/engine/engine_choices.h"
#include "core/engine/kv/kv_cache.h"
#include "core/engine/policies/remedy.h"
#include "core/engine/scheduler_config.h"

namespace metronome {

class FieldVisitor;
class Policy;
struct BudgetTerms;
struct DocumentedKey;
struct PolicyContext;
struct EngineSetup;
struct KernelRules;
struct KvCacheConfig;
struct MemoryFacts;
struct ModelConfig;

enum class PrefixCaching : std::uint8_t {
  Never,
  OptionalOff,  // off unless switched on
  Optional,     // on unless switched off
  Always,
};

// The cache rules of an engine; KvCacheLayout explains each.
struct CacheRules {
  bool has_null_block = false;
  HashTime hash_time = HashTime::Plan;
  bool uses_radix_tree = false;
  DuplicateRule duplicates = DuplicateRule::KeepAll;
  bool reuses_unhashed_first = false;
  // A request may hit blocks that a victim of the same plan should have filled, as with engines.
  bool hits_unfilled_blocks = false;
};

// Host time between dependent steps of an unmodified engine, and the source of the measurement.
struct HostGap {
  double us = 0;
  double us_per_request = 0;  // in addition, for each request of the step
  std::string_view source = {};
};

// The passes with prompts that an engine launches as CUDA graphs.
enum class PromptGraphs : std::uint8_t {
  AsDecodes,  // up to cost_model.max_graph_tokens
  All,
  None,
};

// Host time for the launches of a layer where no CUDA graph has them, microseconds: from Python, by
// the number of kernels. docs/internals/cost_models.md says what the defaults were fitted to.
struct EagerLaunches {
  double dense_alone_us = 300;  // on one GPU
  double dense_us = 600;        // on several: all-reduces come in between, the slowest host counts
  double experts_us = 1150;     // on any number
  double attention_us = 550;    // what latent or linear attention adds
};

// The whole of which an engine's share of memory is a part.
enum class MemoryShare : std::uint8_t {
  OfAll,         // the whole memory; the share has room for weights and activations
  OfFree,        // what was free before the weights came
  OfWhatIsLeft,  // by weights and the largest step
};

constexpr std::int32_t kWholeModelLength = std::int32_t{1} << 24;  // means a budget of
                                                                   // max_model_len

struct PolicyInfo {
  std::string_view name;
  std::string_view summary;       // one line for `metronome list policies`
  std::string_view source;        // the reproduced engine and version
  std::string_view product = {};  // its name in messages: "vLLM"
  // Settings of its own, of which it reads every key: visit_settings_of<T>.
  void (*visit)(FieldVisitor&, PolicySettings&) = nullptr;
  // The settings of its own, with their defaults. Registration sets them.
  std::span<const DocumentedKey> own_keys = {};
  // Keys of `scheduler:` that it reads, in addition to `policy`. Registration adds those of
  // `visit`.
  std::span<const std::string_view> keys = {};
  bool allows_order = false;           // `order` other than fcfs
  bool allows_allocation = false;      // kv_cache.allocation; engines have fixed rules
  bool allows_watermark = false;       // kv_cache.watermark
  std::string_view budget_key = {};    // limits the tokens of a step
  std::string_view chunk_key = {};     // limits the prompt tokens of a request in a step
  bool chunk_is_of_step = false;       // or those of all requests
  std::string_view lacks_chunks = {};  // why keys about chunks are refused; empty: as others
  bool chunks_fill_blocks = false;     // chunks are multiples of block_size
  PrefixCaching prefix_caching = PrefixCaching::Never;
  bool requires_paged = false;                 // kv_cache.backend slotted is impossible
  bool allows_sliding_window = false;          // kv_cache.sliding_window
  bool groups_states = false;                  // blocks of the cache hold states, too
  bool verifies_drafts = false;                // SchedulerConfig::drafts
  bool allows_handover = false;                // RequestSpec::num_received_tokens, hands_over
  std::string_view gap_note = {};              // a sentence below tables of latencies
  bool predicts_steps = false;                 // needs PolicyContext::predictor
  StepShape natural_shape = StepShape::Mixed;  // the meaning of step_shape `auto`
  bool requires_separate = false;              // step_shape mixed is impossible
  std::int32_t default_token_budget = 2048;    // max_num_batched_tokens: auto
  double default_watermark = 0;                // kv_cache.watermark: null
  std::optional<HostGap> host_gap = {};        // absent: no published value
  MemoryShare memory_share = MemoryShare::OfAll;
  // GiB of one device, so that KV blocks get `gpu_memory_utilization` times its memory less the
  // weights and this. nullptr: 2 GB.
  double (*reserved_gib)(const MemoryFacts&, const ModelConfig&) = nullptr;
  const KernelRules* kernels = nullptr;
  bool fuses_conversions = false;  // cost_model.fuses_conversions: auto
  PromptGraphs prompt_graphs = PromptGraphs::AsDecodes;
  // Models whose prompts are no graphs although those of others are.
  bool (*lacks_prompt_graphs)(const ModelConfig&, bool is_data_centre_blackwell) = nullptr;
  // Decodes of the largest CUDA graph by default; 0: see cost_model.max_graph_tokens.
  std::int32_t default_graph_requests = 0;
  EagerLaunches eager = {};
  // A step is computed in passes of at most so many tokens, in order; nullptr: in one.
  std::int64_t (*pass_tokens)(const SchedulerConfig&) = nullptr;
  CacheRules cache = {};
  // Applies rules that depend on settings to an otherwise complete layout.
  void (*adjust_cache)(const SchedulerConfig&, std::int32_t max_model_len,
                       KvCacheLayout& layout) = nullptr;
  // Before which plans it receives requests; nullptr: before each.
  ReceiveInterval (*receive_interval)(const SchedulerConfig&) = nullptr;
  // A fault that its server may have with these settings and so many drafts; empty: none.
  std::string (*warning)(const SchedulerConfig&, std::int64_t num_drafts) = nullptr;
  // See budget_terms(). nullptr: token_budget(), and a note that it is the nearest.
  BudgetTerms (*budget_terms)(const SchedulerConfig&) = nullptr;
  // Diagnosis tries these, in this order. It also tries this policy in the place of others:
  // the lowest rank first, 0 never. It is tried with `alternative_settings`.
  std::span<const Remedy> remedies = {};
  int alternative_rank = 0;
  std::span<const PolicySetting> alternative_settings = {};
  std::unique_ptr<Policy> (*make)(const PolicyContext&) = nullptr;

  // The key for the size of a step; empty: it has none.
  std::string_view size_key() const { return budget_key.empty() ? chunk_key : budget_key; }
};

template <class T>
void visit_settings_of(FieldVisitor& visitor, PolicySettings& settings) {
  visit_fields(visitor, settings.edit<T>());
}
// The settings of all policies, in the order of registration.
void visit_settings(FieldVisitor& visitor, PolicySettings& settings);

// Applies the cache rules of the policy's engine to an otherwise complete `setup`.
void arrange_cache(const PolicyInfo& policy, EngineSetup& setup);
// `share` of the pool in blocks, rounded as engines do; nullopt: the policy's default share.
std::int64_t watermark_blocks(const PolicyInfo& policy, std::optional<double> share,
                              std::int64_t num_blocks);

ReceiveInterval receive_interval(const SchedulerConfig& config);

bool caches_prefixes(const PolicyInfo& policy, const KvCacheConfig& config);

// Whether the policy reads that key of the `scheduler` section.
bool reads_key(const PolicyInfo& policy, std::string_view key);

// Adds a policy to our own. Those that are there stay where they are.
void register_policy(const PolicyInfo& policy);
std::span<const PolicyInfo> all_policies();             // in the order they are listed
const PolicyInfo* find_policy(std::string_view name);   // nullptr when unknown
std::string policies_with(bool PolicyInfo::*property);  // their names: "sglang, vllm"

}  // namespace metronome
