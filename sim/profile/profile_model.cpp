// SPDX-License-Identifier: Apache-2.0
#include "sim/profile/profile_model.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/base/real.h"
#include "core/engine/decode_run.h"
#include "sim/cost/device_share.h"
#include "sim/cost/interpolation.h"

namespace metronome {
namespace {

constexpr std::size_t kReserve = 4096;

// How often a pass calls a dense layer. Layer names are those of the profiles. All other names,
// such as qk_norm and rotary_emb, are called once per layer of the model.
double num_calls(const std::string& layer, const ModelConfig& model) {
  const double layers = real(model.n_layers);
  if (layer == "embedding" || layer == "final_layernorm") return 1;
  if (layer == "layernorm") return layers * real(model.n_layer_norms());
  const bool is_mlp = layer == "gate_up_proj" || layer == "act_fn" || layer == "down_proj";
  return is_mlp ? layers - real(model.n_moe_layers()) : layers;
}

void require_layers(const ProfileTables& tables, const ModelConfig& model) {
  const auto fail = [&](const std::string& missing) {
    throw UnplacedConfigError(
        "cost_model.file",
        "has no times of " + missing + "; allowed: a profile with all layers of " + model.name);
  };
  for (const char* name : {"embedding", "qkv_proj", "o_proj"}) {
    if (tables.find_dense(name) == nullptr) fail(name);
  }
  if (model.n_moe_layers() > 0 && tables.experts.empty()) fail("experts");
  if (model.n_moe_layers() == model.n_layers) return;
  for (const char* name : {"gate_up_proj", "act_fn", "down_proj"}) {
    if (tables.find_dense(name) == nullptr) fail(name);
  }
}

std::vector<CollectiveTimes> collectives_of(const Profile& profile, std::int64_t tp) {
  if (profile.tables.allreduce.empty()) return {};
  return {{Collective::AllReduce, tp, true, profile.tables.allreduce}};
}

}  // namespace

ProfileCostModel::ProfileCostModel(Profile profile, const ModelConfig& model,
                                   const HardwareSpec& hardware, const CostModelConfig& config)
    : KernelCostModel(model, hardware, config),
      profile_(std::move(profile)),
      link_(make_link(config, hardware, collectives_of(profile_, config.tensor_parallel_size))) {
  const std::int64_t tp = config.tensor_parallel_size;
  const ProfileTables& tables = profile_.tables;
  require_layers(tables, model);
  std::vector<WeightedCurve> dense;
  for (const LayerTimes& layer : tables.dense) {
    const double calls = num_calls(layer.name, model);
    if (calls > 0) dense.push_back({&layer.us, calls});
  }
  dense_ = sum_of(dense);
  std::vector<WeightedCurve> head;
  for (const LayerTimes& layer : tables.per_sequence) {
    if (layer.name != "sampler") head.push_back({&layer.us, 1});
  }
  head_ = sum_of(head);
  layers_ = real(model.n_layers);
  query_heads_ = model.n_heads / tp;
  kv_heads_ = device_kv_heads(model, tp);
  prompts_.reserve(kReserve);
  contexts_.reserve(kReserve);
  if (!profile_.filling) return;
  launch_.emplace(profile_.filling->num_multiprocessors);
  max_split_blocks_ = split_limit_blocks(profile_.filling->num_multiprocessors);
  for (const double sequences : tables.attention.decode.rows) {
    if (sequences * real(kv_heads_) < max_split_blocks_) ++num_split_rows_;
  }
}

double ProfileCostModel::activated_experts(std::int64_t num_tokens) const {
  const double num_experts = real(model_.n_experts);
  const double missed = 1 - real(model_.n_experts_per_token) / num_experts;
  return num_experts * (1 - pow_of(missed, real(num_tokens)));
}

void ProfileCostModel::sort_chunks(const PassChunks& pass, PassPart part, bool drafts_are_chunks) {
  prompts_.clear();
  contexts_.clear();
  if (const RunMembers* run = pass.run) {
    // How unequal decodes fill the multiprocessors depends on each context.
    for (const RunMembers::Member& member : run->all()) {
      contexts_.push_back(real(run->position_of(member)));
    }
  }
  for (const ScheduledChunk& chunk : pass.chunks) {
    const bool is_decode = chunk.kind == ChunkKind::Decode;
    if (part == PassPart::Decodes && !is_decode) continue;
    // For the kernels the last token of a prompt is a decode.
    if (chunk.num_tokens > 1 && (drafts_are_chunks || !is_decode)) {
      prompts_.push_back({real(chunk.num_tokens), real(chunk.first_position)});
    } else {
      contexts_.push_back(real(chunk.end_position() - 1));
    }
  }
  has_equal_contexts_ = std::all_of(contexts_.begin(), contexts_.end(),
                                    [this](double c) { return c == contexts_.front(); });
  const double sum = std::accumulate(contexts_.begin(), contexts_.end(), 0.0);
  mean_context_ = contexts_.empty() ? 0 : sum / real(contexts_.size());
}

double ProfileCostModel::decode_attention_us(double graph_sequences, bool& is_outside) {
  const AttentionTable& table = profile_.tables.attention;
  const std::size_t num_rows = table.decode.rows.size();
  const bool is_split = graph_sequences * real(kv_heads_) < max_split_blocks_;
  std::size_t begin = is_split ? 0 : num_split_rows_;
  std::size_t end = is_split ? num_split_rows_ : num_rows;
  if (begin == end) {  // no measurements on this side
    begin = 0;
    end = num_rows;
  }
  const double us = table.decode_us(real(contexts_.size()), mean_context_, begin, end, is_outside);
  const bool needs_blocks = launch_ && !is_split && profile_.corrects_lengths;
  return needs_blocks ? unsplit_attention_us(begin, end) : us;
}

// The simulated time of the blocks, times the ratio of the table to the simulated equal blocks. The
// ratio is interpolated between measured rows, not the time: equal contexts end in whole waves,
// unequal ones do not.
double ProfileCostModel::unsplit_attention_us(std::size_t begin, std::size_t end) {
  const Grid& table = profile_.tables.attention.decode;
  const std::int64_t num_multiprocessors = profile_.filling->num_multiprocessors;
  const BlockTimes& times = profile_.filling->decode;
  const auto equal_us = [&](double num_sequences) {
    return equal_blocks_us(static_cast<std::int64_t>(num_sequences) * kv_heads_, mean_context_,
                           num_multiprocessors, times);
  };
  bool ignored = false;
  const auto level = [&](std::size_t row) {
    return table.row_at(row, mean_context_, ignored) / equal_us(table.rows[row]);
  };
  const double num_sequences = real(contexts_.size());
  const Bracket rows = find_bracket(
      end - begin, [&](std::size_t i) { return table.rows[begin + i]; },
      std::min(num_sequences, table.rows[end - 1]), ignored);
  const double factor = interpolate(rows, [&](std::size_t i) { return level(begin + i); });
  if (has_equal_contexts_) return factor * equal_us(num_sequences);
  launch_->clear();
  for (const double context : contexts_) launch_->add_decode(context);
  return factor * launch_->time_us(kv_heads_, times);
}

// How much longer the launch takes than a launch with a single prompt and equal decodes.
double ProfileCostModel::filling_ratio(const Prompt& merged) {
  const bool keeps_contexts = profile_.corrects_lengths && !has_equal_contexts_;
  if (!launch_ || (prompts_.size() == 1 && !keeps_contexts)) return 1;
  const BlockTimes& times = profile_.filling->mixed;
  launch_->clear();
  for (const double context : contexts_) {
    launch_->add_decode(keeps_contexts ? context : mean_context_);
  }
  for (const Prompt& prompt : prompts_) launch_->add_chunk(prompt.tokens, prompt.history);
  const double actual_us = launch_->time_us(query_heads_, times);
  launch_->clear();
  for (std::size_t i = 0; i < contexts_.size(); ++i) launch_->add_decode(mean_context_);
  launch_->add_chunk(merged.tokens, merged.history);
  return actual_us / launch_->time_us(query_heads_, times);
}

double ProfileCostModel::mixed_attention_us(bool& is_outside) {
  // Merges the prompts into one chunk with as many (query, key) pairs.
  double tokens = 0;
  double area = 0;
  for (const Prompt& prompt : prompts_) {
    tokens += prompt.tokens;
    area += prompt.tokens * (prompt.history + prompt.tokens / 2);
  }
  const double triangle = tokens * tokens / 2;
  const Prompt merged{tokens, std::max((area - triangle) / tokens, 0.0)};
  const AttentionTable& table = profile_.tables.attention;
  const double us = contexts_.empty()
                        ? table.prefill_us(merged.tokens, merged.history, is_outside)
                        : table.mixed_us(merged.tokens, merged.history, real(contexts_.size()),
                                         mean_context_, is_outside);
  if (launch_) return us * filling_ratio(merged);
  if (area >= triangle) return us;
  // In several prompts each query sees fewer keys than in one: scale by the share of pairs.
  const double alone_us = table.prefill_us(tokens, 0, is_outside);
  return us - std::min(us, alone_us) * (1 - area / triangle);
}

double ProfileCostModel::attention_us(const PassChunks& pass, PassPart part, double graph_sequences,
                                      bool has_drafts, bool& is_outside) {
  sort_chunks(pass, part, false);
  double us = prompts_.empty() ? decode_attention_us(graph_sequences, is_outside)
                               : mixed_attention_us(is_outside);
  if (launch_ && has_drafts) {
    sort_chunks(pass, part, true);
    us = std::max(us, mixed_attention_us(is_outside));
  }
  return us;
}

double ProfileCostModel::comm_us(double num_tokens, double num_rows, bool& is_outside) const {
  if (config_.tensor_parallel_size == 1) return 0;
  const double activations = num_tokens * real(model_.hidden_dim) * kBytesPerActivation;
  const double logits = num_rows * real(model_.vocab_size) * kBytesPerActivation;
  // Gathering the logits moves half of the bytes that an all-reduce of the same size moves.
  const bool is_graph = config_.max_graph_tokens.value_or(1) > 0;
  return (2 * layers_ + 1) * link_.us(Collective::AllReduce, activations, is_graph, is_outside) +
         link_.us(Collective::AllReduce, logits / 2, is_graph, is_outside);
}

PassCost ProfileCostModel::pass_cost(const PassChunks& pass, PassPart part, bool& is_outside) {
  const PassSums sums = sum_pass(pass, part);
  const double num_rows = real(sums.num_rows);
  const double tokens = graph_tokens(sums.num_tokens(), sums);
  const ProfileTables& tables = profile_.tables;
  double linear_us = dense_.at(tokens, is_outside);
  if (!head_.empty()) linear_us += head_.at(num_rows, is_outside);
  if (model_.n_moe_layers() > 0) {
    const double activated = activated_experts(sums.num_tokens());
    linear_us += real(model_.n_moe_layers()) * tables.experts_us(tokens, activated, is_outside);
  }
  PassCost cost;
  cost.linear_ns = linear_us * kNsPerMicro;
  const double attention =
      attention_us(pass, part, tokens / real(sums.tokens_of_each), sums.num_drafts > 0, is_outside);
  cost.attention_ns = layers_ * attention * kNsPerMicro;
  cost.comm_ns = comm_us(tokens, num_rows, is_outside) * kNsPerMicro;
  if (const Curve* sampler = tables.find_per_sequence("sampler")) {
    cost.overhead_ns = sampler->at(num_rows, is_outside) * kNsPerMicro;
  }
  return cost;
}

}  // namespace metronome
