// SPDX-License-Identifier: Apache-2.0
#include "sim/roofline/roofline.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/base/real.h"
#include "core/engine/decode_run.h"
#include "sim/cost/device_share.h"

namespace metronome {
namespace {

constexpr double kNsPerSec = 1e9;
constexpr double kAllreducesPerLayer = 2;  // after the output and the down projection

constexpr double kExpertPaddingTokens = 32;  // half a tile of 64 rows
// A layer has nine kernels, one of latent attention four more. That number was chosen by
// aiconfigurator-core 0.12.0's table of decodes in its modules of TensorRT-LLM on an H100: with
// none more they come out 14 % off, with four 5 %, with five 7 %.
constexpr double kLatentKernels = 13.0 / 9;
constexpr double kRoutingEvenness = 0.6;  // 1: every expert is as likely as any other

// The units that compute a format, and the share of their peak that is reachable.
struct Units {
  double peak_flops = 0;
  double matmul_efficiency = 1;
  double expert_efficiency = 1;
  bool has_fewer_bits = false;  // than 16: activations are converted
};

double given_or(double value, double otherwise) { return value > 0 ? value : otherwise; }

Units units_of(WeightFormat format, const HardwareSpec& hardware) {
  const Units bf16{hardware.peak_flops, hardware.matmul_efficiency,
                   given_or(hardware.expert_efficiency, hardware.matmul_efficiency)};
  // Integers of 8 bits have a peak of fp8's size.
  const bool is_fp8 = format == WeightFormat::Fp8 || format == WeightFormat::Fp8Block ||
                      format == WeightFormat::Mxfp8 || format == WeightFormat::Int8 ||
                      format == WeightFormat::Int4Fp8 ||
                      (format == WeightFormat::Mxfp4 && hardware.peak_flops_fp4 > 0);
  if (is_fp8 && hardware.peak_flops_fp8 > 0) {
    return {hardware.peak_flops_fp8,
            given_or(hardware.matmul_efficiency_fp8, bf16.matmul_efficiency),
            given_or(hardware.expert_efficiency_fp8, bf16.expert_efficiency), true};
  }
  if (format == WeightFormat::Nvfp4 && hardware.peak_flops_fp4 > 0) {
    return {hardware.peak_flops_fp4,
            given_or(hardware.matmul_efficiency_fp4, bf16.matmul_efficiency),
            given_or(hardware.expert_efficiency_fp4, bf16.expert_efficiency), true};
  }
  return bf16;
}

// Modules of several formats: their times add up.
struct MeanUnits {
  double ns_per_flop = 0;
  double peak_flops = 0;
  double converted = 0;  // the share of modules in front of which activations are converted
};

// `converts` says it of a format; `efficiency` is the one of the modules.
template <class Converts>
MeanUnits mean_units(const std::vector<FormatShare>& shares, const HardwareSpec& hardware,
                     double Units::*efficiency, Converts converts) {
  MeanUnits mean;
  double s_per_flop = 0;
  for (const FormatShare& share : shares) {
    const Units units = units_of(share.format, hardware);
    mean.ns_per_flop += share.share * (kNsPerSec / (units.peak_flops * (units.*efficiency)));
    s_per_flop += share.share / units.peak_flops;
    mean.converted += converts(share.format, units) ? share.share : 0;
    mean.peak_flops = units.peak_flops;
  }
  if (shares.size() > 1) mean.peak_flops = 1 / s_per_flop;
  return mean;
}

}  // namespace

std::int64_t attention_pairs(std::int64_t first_position, std::int64_t num_tokens,
                             std::int64_t window) {
  // The first `num_full` queries attend to all earlier positions; the rest attend to a whole
  // window.
  std::int64_t num_full = num_tokens;
  if (window > 0) num_full = std::clamp<std::int64_t>(window - first_position, 0, num_tokens);
  return num_full * first_position + num_full * (num_full + 1) / 2 +
         (num_tokens - num_full) * window;
}

std::int64_t attended_positions(std::int64_t first_position, std::int64_t num_tokens,
                                std::int64_t window) {
  if (window == 0) return first_position + num_tokens;
  return std::min(first_position, window - 1) + num_tokens;
}

double StepWork::total_flops() const {
  return projections.flops + experts.flops + head.flops + prefill_attention.flops +
         decode_attention.flops + prefill_states.flops + decode_states.flops;
}

double StepWork::total_bytes() const {
  return projections.bytes + experts.bytes + head.bytes + prefill_attention.bytes +
         decode_attention.bytes + prefill_states.bytes + decode_states.bytes + other_bytes +
         gather_bytes;
}

// Pairs and positions of the queries of a reach, in a layer.
struct Reached {
  std::int64_t pairs = 0;
  std::int64_t context = 0;   // positions whose KV moves
  std::int64_t gathered = 0;  // positions that gather_kv copies; it does not copy padding
};

// Integer sums over the chunks of a pass of one kind.
struct RooflineCostModel::PassGroup {
  std::int64_t num_chunks = 0;
  std::int64_t num_tokens = 0;
  std::array<Reached, kMaxReaches> reached;  // of reaches_
  std::int64_t longest = 0;                  // chunk
  std::int64_t max_tokens = 0;
  std::int64_t max_context = 0;
  std::int64_t num_rows = 0;  // logits
};

// They determine the pass's time.
struct RooflineCostModel::PassSums {
  PassGroup prefill;
  PassGroup decode;

  std::int64_t num_tokens() const { return prefill.num_tokens + decode.num_tokens; }
  std::int64_t num_rows() const { return prefill.num_rows + decode.num_rows; }
};

RooflineCostModel::RooflineCostModel(const ModelConfig& model, const HardwareSpec& hardware,
                                     const CostModelConfig& config, std::int64_t input_params)
    : model_(model), hardware_(hardware), config_(config), link_(make_link(config, hardware)) {
  const std::int64_t tp = config.tensor_parallel_size;
  check_tensor_parallel(model, tp);
  layers_ = layer_costs(model, tp);
  small_params_ = real(model.n_small_params());
  const double shards = real(tp);
  const double projections = device_projection_params(model, tp);
  const std::int64_t plain_params = model.n_router_params() + input_params;
  projection_params_ = projections + real(plain_params);
  projection_bytes_ =
      device_projection_bytes(model, tp) + real(plain_params * model.bytes_per_weight);
  expert_params_ = real(model.n_moe_layers() * model.n_expert_params()) / shards;
  if (model.has_expert_biases) {
    const std::int64_t width = (model.n_mlp_matrices() - 1) * model.expert_ffn_dim;
    expert_bias_params_ = real(model.n_moe_layers() * (width + model.hidden_dim));
  }
  head_params_ = real(model.n_embedding_params()) / shards;

  // The share of a layer's projections that convert. expert_overhead_us has those of experts. A
  // layer of experts counts whole, too: it is rather too fast already.
  const bool fuses = config.fuses_conversions.value_or(false);
  const auto converts = [fuses](WeightFormat format, const Units& units) {
    return units.has_fewer_bits && (!fuses || format == WeightFormat::Fp8Block);
  };
  const MeanUnits linear = mean_units(model.formats_of(kAttentionModules), hardware,
                                      &Units::matmul_efficiency, converts);
  ns_per_linear_flop_ = linear.ns_per_flop;
  linear_peak_flops_ = linear.peak_flops;
  double converted = linear.converted;
  if (model.has_mlp_formats()) {
    const MeanUnits mlp =
        mean_units(model.formats_of(kMlpModules), hardware, &Units::matmul_efficiency, converts);
    converted = 0.5 * (converted + mlp.converted);
    const double share = real(model.n_mlp_params()) / shards / projection_params_;
    ns_per_linear_flop_ += share * (mlp.ns_per_flop - ns_per_linear_flop_);
    linear_peak_flops_ = 1 / ((1 - share) / linear.peak_flops + share / mlp.peak_flops);
  }
  const MeanUnits expert =
      mean_units(model.formats_of(kExpertModules), hardware, &Units::expert_efficiency, converts);
  const Units head = units_of(WeightFormat::Plain, hardware);
  ns_per_expert_flop_ = expert.ns_per_flop;
  expert_peak_flops_ = expert.peak_flops;
  bytes_per_expert_weight_ = model.bytes_per_expert_weight();
  bytes_per_head_weight_ = model.bytes_per_head_weight();
  ns_per_head_flop_ = kNsPerSec / (head.peak_flops * head.matmul_efficiency);
  ns_per_attention_flop_ = kNsPerSec / (hardware.peak_flops * hardware.attention_efficiency);
  const auto ns_per_byte = [&hardware](double efficiency) {
    return kNsPerSec / (hardware.peak_bandwidth * efficiency);
  };
  ns_per_byte_ = ns_per_byte(hardware.bandwidth_efficiency);
  ns_per_kv_byte_ =
      ns_per_byte(given_or(hardware.kv_bandwidth_efficiency, hardware.bandwidth_efficiency));
  if (hardware.activation_bandwidth_efficiency > 0) {
    ns_per_activation_byte_ = ns_per_byte(hardware.activation_bandwidth_efficiency);
  }
  set_overheads(converted);
}

// `converted`: the share of layers' projections that convert activations.
void RooflineCostModel::set_overheads(double converted) {
  const HardwareSpec& hardware = hardware_;
  ns_per_decode_ = layers_.num_attending * hardware.sequence_overhead_us * kNsPerMicro;
  if (hardware.num_sms > 0) {
    const double flops_of_one =
        hardware.peak_flops * hardware.attention_efficiency / real(hardware.num_sms);
    ns_per_scanned_token_ = layers_.scan_flops_in_order * kNsPerSec / flops_of_one;
  }
  num_layers_ = model_.n_whole_layers();
  const double latent_share = layers_.num_latent / num_layers_;
  const double layer_kernels = (1 - latent_share) + latent_share * kLatentKernels;
  const double layer_us = layer_kernels * hardware.kernel_overhead_us +
                          converted * hardware.quantised_overhead_us +
                          (config_.tensor_parallel_size > 1 ? hardware.tp_overhead_us : 0);
  launch_ns_ = (hardware.launch_overhead_us + num_layers_ * layer_us +
                real(model_.n_moe_layers()) * hardware.expert_overhead_us) *
               kNsPerMicro;
}

template <std::size_t kNumWindows, bool kIsPadded>
void RooflineCostModel::add_chunks(const PassChunks& pass, PassSums& sums) const {
  constexpr std::size_t kNumReaches = 1 + kNumWindows;
  const auto& reaches = layers_.reaches;
  PassGroup& prefill = sums.prefill;
  PassGroup& decode = sums.decode;
  if (const RunMembers* run = pass.run) {
    decode.num_chunks = decode.num_rows = decode.num_tokens = run->size();
    decode.reached[0].pairs = decode.reached[0].context = run->sum_of_contexts();
    for (std::size_t r = 1; r < kNumReaches; ++r) {
      decode.reached[r].pairs = run->sum_of_contexts(reaches[r].window);
      decode.reached[r].context = decode.reached[r].pairs;
    }
    if constexpr (kIsPadded) {  // depends on each context
      for (const RunMembers::Member& member : run->all()) {
        decode.max_context =
            std::max(decode.max_context, std::int64_t{run->position_of(member)} + 1);
      }
    }
  }
  for (const ScheduledChunk& chunk : pass.chunks) {
    // The tokens of a decode, its drafts among them, attend to one context, which moves once.
    const bool is_decode = chunk.kind == ChunkKind::Decode;
    PassGroup& group = is_decode ? decode : prefill;
    const std::int64_t first = chunk.first_position;
    const std::int64_t n = chunk.num_tokens;
    const bool is_gathered = first > 0 || !chunk.samples_token;
    group.num_chunks += 1;
    group.num_tokens += n;
    group.num_rows += pass.num_rows(chunk);
    group.longest = std::max(group.longest, n);
    for (std::size_t r = 0; r < kNumReaches; ++r) {
      const std::int64_t window = r == 0 ? 0 : reaches[r].window;
      const std::int64_t attended = attended_positions(first, n, window);
      Reached& reached = group.reached[r];
      reached.pairs += attention_pairs(first, n, window);
      reached.context += attended;
      if (is_gathered) reached.gathered += attended;
    }
    if constexpr (kIsPadded) {
      group.max_tokens = std::max(group.max_tokens, n);
      group.max_context = std::max(group.max_context, first + n);
    }
  }
  decode.max_tokens = std::max<std::int64_t>(decode.max_tokens, 1);  // of the run
  for (std::size_t r = 0; r < kNumReaches; ++r) {
    decode.reached[r].gathered = decode.reached[r].context;  // even at position 0
  }
}

// Chunks and decodes form two batches. In each batch every sequence costs as much as the longest
// chunk at the end of the longest context.
void RooflineCostModel::pad(PassSums& sums) const {
  for (PassGroup* group : {&sums.prefill, &sums.decode}) {
    const std::int64_t n = group->num_chunks;
    if (n == 0) continue;
    const std::int64_t first = group->max_context - group->max_tokens;
    group->num_tokens = n * group->max_tokens;
    for (std::size_t r = 0; r < layers_.num_reaches(); ++r) {
      const std::int64_t window = layers_.reaches[r].window;
      group->reached[r].pairs = n * attention_pairs(first, group->max_tokens, window);
      group->reached[r].context = n * attended_positions(first, group->max_tokens, window);
    }
  }
}

RooflineCostModel::PassSums RooflineCostModel::sum_pass(const PassChunks& pass) const {
  PassSums sums;
  if (config_.batching == Batching::Padded) {
    switch (layers_.num_windows) {
      case 0: add_chunks<0, true>(pass, sums); break;
      case 1: add_chunks<1, true>(pass, sums); break;
      default: add_chunks<kMaxWindows, true>(pass, sums);
    }
    pad(sums);
  } else {
    switch (layers_.num_windows) {
      case 0: add_chunks<0, false>(pass, sums); break;
      case 1: add_chunks<1, false>(pass, sums); break;
      default: add_chunks<kMaxWindows, false>(pass, sums);
    }
  }
  return sums;
}

void RooflineCostModel::add_experts(double num_tokens, StepWork& work) const {
  if (model_.n_experts == 0) return;
  const double num_experts = real(model_.n_experts);
  const double picked = real(model_.n_experts_per_token);
  const double draws = 1 + kRoutingEvenness * (num_tokens - 1);
  const double num_read = num_experts * (1 - pow_of(1 - picked / num_experts, draws));
  work.experts = {2 * num_tokens * picked * expert_params_,
                  num_read * (expert_params_ * bytes_per_expert_weight_ +
                              expert_bias_params_ * real(model_.bytes_per_weight))};
  work.padding_flops = 2 * num_read * kExpertPaddingTokens * expert_params_;
}

OperationWork RooflineCostModel::attention_work(const PassGroup& group, bool is_decode) const {
  double pairs = 0;
  double positions = 0;
  for (std::size_t r = 0; r < layers_.num_reaches(); ++r) {
    const Reach& reach = layers_.reaches[r];
    const Reached& reached = group.reached[r];
    pairs += (is_decode ? reach.decode_pairs : reach.chunk_pairs) * real(reached.pairs);
    positions +=
        (is_decode ? reach.decode_positions : reach.chunk_positions) * real(reached.context);
  }
  if (is_decode) {
    return {pairs * layers_.decode_flops_per_pair, positions * layers_.kv_bytes_per_position};
  }
  const double earlier = layers_.num_expanding * real(group.reached[0].context - group.num_tokens);
  return {pairs * layers_.chunk_flops_per_pair + earlier * layers_.expansion_flops,
          positions * layers_.chunk_bytes_per_position};
}

// A draft may be rejected: the state behind each token of a decode is written.
OperationWork RooflineCostModel::state_work(const PassGroup& group, bool is_decode) const {
  const double tokens = real(group.num_tokens);
  if (is_decode) {
    return {tokens * layers_.recurrence_flops,
            (real(group.num_chunks) + tokens) * layers_.state_bytes};
  }
  return {tokens * layers_.scan_flops, 2 * real(group.num_chunks) * layers_.state_bytes};
}

// All but attention, states and copies.
StepWork RooflineCostModel::product_work(std::int64_t num_tokens, std::int64_t num_rows) const {
  const double weight = real(model_.bytes_per_weight);
  const double tokens = real(num_tokens);
  const double rows = real(num_rows);
  StepWork work;
  work.projections = {2 * tokens * projection_params_, projection_bytes_};
  add_experts(tokens, work);
  if (rows > 0) work.head = {2 * rows * head_params_, head_params_ * bytes_per_head_weight_};
  // Embeddings of tokens, and of positions where the model learned them.
  const double embedded = (model_.has_learned_positions ? 2 : 1) * tokens * real(model_.hidden_dim);
  // Biases of experts count where their expert is read.
  const double small = small_params_ - real(model_.n_experts) * expert_bias_params_;
  work.other_bytes = (small + embedded) * weight;
  const double tp = real(config_.tensor_parallel_size);
  if (config_.tensor_parallel_size > 1) {
    const double activations = tokens * real(model_.hidden_dim) * kBytesPerActivation;
    work.allreduce_bytes = kAllreducesPerLayer * num_layers_ * activations * 2 * (tp - 1) / tp;
  }
  return work;
}

// Of copies of gather_kv.
double RooflineCostModel::gather_bytes(const PassSums& sums) const {
  if (!config_.gather_kv) return 0;
  double positions = 0;
  for (std::size_t r = 0; r < layers_.num_reaches(); ++r) {
    positions += layers_.reaches[r].decode_positions *
                 real(sums.prefill.reached[r].gathered + sums.decode.reached[r].gathered);
  }
  return 2 * positions * layers_.kv_bytes_per_position;
}

StepWork RooflineCostModel::pass_work(const PassSums& sums) const {
  StepWork work = product_work(sums.num_tokens(), sums.num_rows());
  work.prefill_attention = attention_work(sums.prefill, false);
  work.decode_attention = attention_work(sums.decode, true);
  work.prefill_states = state_work(sums.prefill, false);
  work.decode_states = state_work(sums.decode, true);
  work.gather_bytes = gather_bytes(sums);
  return work;
}

// Activations of this many tokens are added up after the output and the down projection.
double RooflineCostModel::allreduce_ns(double num_tokens, bool& is_outside) const {
  if (config_.tensor_parallel_size == 1) return 0;
  const double bytes = num_tokens * real(model_.hidden_dim) * kBytesPerActivation;
  const bool is_graph = config_.max_graph_tokens.value_or(1) > 0;
  double us = kAllreducesPerLayer * link_.us(Collective::AllReduce, bytes, is_graph, is_outside);
  if (const double exchanged = num_tokens * qk_norm_exchange_bytes(model_); exchanged > 0) {
    us += link_.us(Collective::AllReduce, exchanged, is_graph, is_outside);
  }
  return num_layers_ * us * kNsPerMicro;
}

// A product whose arithmetic takes `flop_ns` and which reads `bytes` of weights.
double RooflineCostModel::product_ns(double flop_ns, double bytes) const {
  const double byte_ns = bytes * ns_per_byte_;
  const double longer = std::max(flop_ns, byte_ns);
  const double shorter = std::min(flop_ns, byte_ns);
  return longer > 0 ? longer + hardware_.crossover_loss * shorter * (shorter / longer) : 0;
}

// The time of the longer: arithmetic or memory.
double RooflineCostModel::attention_ns(const OperationWork& work) const {
  return std::max(work.flops * ns_per_attention_flop_, work.bytes * ns_per_kv_byte_);
}

double RooflineCostModel::decode_attention_ns(const PassGroup& decodes) const {
  return attention_ns(attention_work(decodes, true)) + attention_ns(state_work(decodes, true)) +
         real(decodes.num_chunks) * ns_per_decode_;
}

double RooflineCostModel::prefill_attention_ns(const PassGroup& prefill) const {
  const double states_ns = std::max(attention_ns(state_work(prefill, false)),
                                    real(prefill.longest) * ns_per_scanned_token_);
  return attention_ns(attention_work(prefill, false)) + states_ns;
}

// The cost of a pass but for its attention and copies. Batches of one size are frequent, so the
// last costs are kept.
const PassCost& RooflineCostModel::product_cost(std::int64_t num_tokens, std::int64_t num_rows) {
  const auto place = static_cast<std::size_t>(num_tokens * 37 + num_rows) % product_costs_.size();
  ProductCost& kept = product_costs_[place];
  if (kept.num_tokens == num_tokens && kept.num_rows == num_rows) [[likely]]
    return kept.cost;
  const StepWork work = product_work(num_tokens, num_rows);
  const double tokens = real(num_tokens);
  PassCost cost;
  cost.linear_ns =
      product_ns(work.projections.flops * ns_per_linear_flop_, work.projections.bytes) +
      product_ns((work.experts.flops + work.padding_flops) * ns_per_expert_flop_,
                 work.experts.bytes) +
      product_ns(work.head.flops * ns_per_head_flop_, work.head.bytes) +
      work.other_bytes * ns_per_byte_ + tokens * layers_.activation_bytes * ns_per_activation_byte_;
  cost.comm_ns = allreduce_ns(tokens, cost.is_extrapolated);
  cost.overhead_ns = launch_ns_;
  kept = {num_tokens, num_rows, cost};
  return kept.cost;
}

void RooflineCostModel::add_pass(const PassSums& sums, double attention_ns, PassCost& cost) {
  PassCost pass = product_cost(sums.num_tokens(), sums.num_rows());
  pass.attention_ns = attention_ns;
  pass.overhead_ns += gather_bytes(sums) * ns_per_kv_byte_;
  cost += pass;
}

// Of a step with the run and nothing else, whose chunks are not padded.
StepCost RooflineCostModel::run_cost(const RunMembers& run) {
  PassSums sums;
  PassGroup& decodes = sums.decode;
  decodes.num_chunks = decodes.num_rows = decodes.num_tokens = run.size();
  for (std::size_t r = 0; r < layers_.num_reaches(); ++r) {
    const std::int64_t sum =
        r == 0 ? run.sum_of_contexts() : run.sum_of_contexts(layers_.reaches[r].window);
    decodes.reached[r] = {sum, sum, sum};
  }
  PassCost cost;
  add_pass(sums, decode_attention_ns(decodes), cost);
  return step_cost_of(cost);
}

StepCost RooflineCostModel::step_cost(const StepPlan& plan) {
  METRONOME_CHECK(!plan.passes.empty(), "a plan without passes has no cost");
  const bool has_only_run = plan.chunks.empty() && config_.batching != Batching::Padded;
  return has_only_run ? run_cost(*plan.run.members) : listed_cost(plan);
}

// Of any step.
StepCost RooflineCostModel::listed_cost(const StepPlan& plan) {
  PassCost all;
  PassCost decodes;
  for (const ForwardPass& pass : plan.passes) {
    PassSums sums = sum_pass(chunks_of(plan, pass));
    const bool has_prefill = sums.prefill.num_chunks > 0;
    const double decode_ns = decode_attention_ns(sums.decode);
    add_pass(sums, decode_ns + (has_prefill ? prefill_attention_ns(sums.prefill) : 0), all);
    if (sums.decode.num_chunks == 0) continue;
    sums.prefill = {};
    add_pass(sums, decode_ns, decodes);
  }
  return step_cost_of(all, decodes);
}

StepWork RooflineCostModel::step_work(const StepPlan& plan) const {
  StepWork total;
  const auto add = [](OperationWork& sum, const OperationWork& operation) {
    sum.flops += operation.flops;
    sum.bytes += operation.bytes;
  };
  for (const ForwardPass& pass : plan.passes) {
    const StepWork work = pass_work(sum_pass(chunks_of(plan, pass)));
    add(total.projections, work.projections);
    add(total.experts, work.experts);
    total.padding_flops += work.padding_flops;
    add(total.head, work.head);
    add(total.prefill_attention, work.prefill_attention);
    add(total.decode_attention, work.decode_attention);
    add(total.prefill_states, work.prefill_states);
    add(total.decode_states, work.decode_states);
    total.other_bytes += work.other_bytes;
    total.gather_bytes += work.gather_bytes;
    total.allreduce_bytes += work.allreduce_bytes;
  }
  return total;
}

TimeNs RooflineCostModel::floor_ns(const StepWork& work) const {
  const double linear_s = work.projections.flops / linear_peak_flops_;
  const double expert_s = work.experts.flops / expert_peak_flops_;
  const double others = work.total_flops() - work.projections.flops - work.experts.flops;
  const double compute_ns = kNsPerSec * (linear_s + expert_s + others / hardware_.peak_flops);
  const double memory_ns = work.total_bytes() * kNsPerSec / hardware_.peak_bandwidth;
  return round_ns(std::max(compute_ns, memory_ns));
}

TimeNs RooflineCostModel::host_gap_ns(const StepPlan& plan) const {
  return metronome::host_gap_ns(hardware_, config_, plan.num_chunks());
}

std::int64_t RooflineCostModel::kv_capacity_blocks(std::int64_t block_tokens) const {
  return metronome::kv_capacity_blocks(model_, hardware_, config_, block_tokens);
}

}  // namespace metronome
