// SPDX-License-Identifier: Apache-2.0
#include "sim/operators/operator_compose.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/real.h"
#include "core/engine/kernel_rules.h"
#include "core/model/module_formats.h"
#include "sim/cost/device_share.h"
#include "sim/operators/attention_grid.h"
#include "sim/operators/latent_times.h"
#include "sim/operators/operator_rows.h"
#include "sim/operators/product_curve.h"
#include "sim/operators/state_times.h"

namespace metronome {
namespace {

constexpr const char* kBfloat16 = "bfloat16";
constexpr double kMiB = 1 << 20;
constexpr double kLeastAboveBoundUs = 1;
constexpr double kOddFalls = 0.05;  // of adjacent points; above, falling times are worth a remark
constexpr double kRouterTopKUs = 1.9;  // choosing the experts, a small kernel

[[noreturn]] void fail_missing(const OperatorMeta& meta, const std::string& what,
                               const std::set<std::string>& found) {
  std::string names;
  for (const std::string& name : found) names += (names.empty() ? "" : ", ") + name;
  throw ConfigError(meta.package + ", " + meta.system + ": has no " + what +
                    "; allowed: " + (names.empty() ? "none was measured" : names));
}

class Composer {
 public:
  Composer(const OperatorTables& tables, const ModelConfig& model, std::int64_t tp,
           RouterDtype router_dtype)
      : tables_(tables),
        meta_(tables_.meta),
        rules_(find_kernel_rules(meta_.engine)),
        model_(model),
        tp_(tp),
        router_dtype_(router_dtype) {}

  OperatorTimes compose() {
    check_model();
    add_products();
    if (!model_.linear_attention.is_empty()) add_states();
    if (model_.n_moe_layers() > 0) add_experts();
    say_falls();
    add_attention();
    times_.memory_bandwidth = meta_.memory_bandwidth;
    times_.fuses_norms = tp_ > 1 && (rules_.has_fused_reduces || borrows_reduces());
    if (tp_ > 1 && borrows_reduces()) times_.max_fused_bytes = max_fused_bytes();
    if (tp_ > 1) add_collectives();
    round_times();
    return std::move(times_);
  }

 private:
  // To nanoseconds, which no measurement resolves: files are half as long.
  void round_times() {
    std::vector<std::vector<double>*> all = {&times_.projections.us,
                                             &times_.mlp.us,
                                             &times_.experts.us,
                                             &times_.shared_experts.us,
                                             &times_.head.us,
                                             &times_.linear_projections.us,
                                             &times_.attention.prompts.us,
                                             &times_.attention.decodes.us};
    const auto add = [&all](auto& first, auto& second) {
      all.insert(all.end(), {&first.us, &second.us});
    };
    if (times_.latent) add(times_.latent->expansion, times_.latent->absorption);
    if (times_.states) add(times_.states->prompts, times_.states->decodes);
    if (times_.windowed) add(times_.windowed->prompts, times_.windowed->decodes);
    for (CollectiveTimes& times : times_.collectives) all.push_back(&times.us.us);
    for (std::vector<double>* times : all) {
      for (double& us : *times) us = std::max(std::round(us * 1e3) / 1e3, 1e-3);
    }
  }

  void say(std::string remark) {
    std::vector<std::string>& said = times_.remarks;
    if (std::find(said.begin(), said.end(), remark) == said.end()) said.push_back(remark);
  }

  void check_model() const {
    check_tensor_parallel(model_, tp_);
    if (model_.head_dim != meta_.head_dim) {
      fail_missing(meta_, fmt::format("attention of head_dim {}", model_.head_dim),
                   {std::to_string(meta_.head_dim)});
    }
    if (model_.bytes_per_weight != 2) {
      fail_missing(meta_, fmt::format("plain weights of {} bytes", model_.bytes_per_weight), {"2"});
    }
    if (model_.bytes_per_kv_element > 2) {
      fail_missing(meta_, fmt::format("KV of {} bytes", model_.bytes_per_kv_element), {"1", "2"});
    }
  }

  // ---- Products ----

  const ProductTable* find_products(const std::string& dtype) {
    std::set<std::string> found;
    bool has_launches = false;
    for (const ProductTable& table : tables_.products) {
      if (!word_of_dtype(table.dtype).empty()) found.emplace(word_of_dtype(table.dtype));
      if (table.dtype != dtype) continue;
      if (is_host_bound(table)) {
        say("products in " + dtype + ": not those of " + table.origin.text() +
            ", where the smallest take " + fixed_text(smallest_products_us(table), 0) +
            " us, as eager launches do");
        has_launches = true;
        continue;
      }
      if (table.origin.engine != meta_.engine) {
        say("products in " + dtype + ": of " + table.origin.text());
      }
      return &table;
    }
    const std::string word(word_of_dtype(dtype));
    found.erase(word);
    if (dtype != "int4_wo" && dtype != "weight_only") {
      fail_missing(meta_,
                   "matrix products of --quantization " + word +
                       (has_launches ? " that were not timed with their launches" : ""),
                   found);
    }
    say("products in " + dtype + ": not measured; those in bfloat16 count");
    return find_products(kBfloat16);
  }

  // Its own quantisation of the input, which the engine's layer does elsewhere.
  void subtract_quantisation(const ProductTable& table, const ProductPeaks& peaks, double n,
                             double k, Curve& curve) {
    const std::string& engine = table.origin.engine;
    if (!find_kernel_rules(engine).has_quantised_inputs) return;
    if (table.dtype != "fp8" && table.dtype != "nvfp4") return;
    std::vector<double> us(curve.us.size());
    std::set<std::string> kinds;
    for (const QuantizeTable& part : tables_.quantize) {
      if (part.origin.engine != engine || !kinds.insert(part.kind).second) continue;
      const Curve of_part = quantize_curve(part, k, curve);
      for (std::size_t i = 0; i < us.size(); ++i) us[i] += of_part.us[i];
    }
    if (kinds.empty()) {
      say("products in " + table.dtype + ": include quantising their input, whose times lack");
      return;
    }
    for (std::size_t i = 0; i < us.size(); ++i) {
      const double least = peaks.least_us(curve.x[i], n, k) + kLeastAboveBoundUs;
      curve.us[i] = std::max(curve.us[i] - us[i], least);
    }
    say("products in " + table.dtype + ": less what quantising their input takes");
  }

  Curve product(const std::string& dtype, std::int64_t n, std::int64_t k) {
    const ProductTable& table = *find_products(dtype);
    const ProductPeaks peaks = peaks_of(table.dtype, meta_);
    std::size_t num_clamped = 0;
    Curve curve = product_curve(table, peaks, real(n), real(k), num_clamped);
    const std::string name = fmt::format("{} x {} in {}", n, k, table.dtype);
    if (num_clamped > 0) {
      say(fmt::format("product {}: times beyond the GPU's peaks count as the peaks: {}", name,
                      num_clamped));
    }
    subtract_quantisation(table, peaks, real(n), real(k), curve);
    if (const double share = falling_share(curve); share > worst_falls_) {
      worst_falls_ = share;
      worst_product_ = name;
    }
    lower_to_later(curve);
    return curve;
  }

  // Of modules that may have several formats.
  Curve product(std::initializer_list<ModuleKind> kinds, std::int64_t n, std::int64_t k) {
    std::vector<Curve> curves;
    std::vector<WeightedCurve> terms;
    const std::vector<FormatShare> shares = model_.formats_of(kinds);
    for (const FormatShare& share : shares) {
      curves.push_back(product(table_dtype(share.format, meta_), n, k));
    }
    if (curves.size() == 1) return curves.front();
    for (std::size_t i = 0; i < curves.size(); ++i) terms.push_back({&curves[i], shares[i].share});
    return sum_of_measured(terms);
  }

  void say_falls() {
    if (worst_falls_ <= kOddFalls) return;
    say("products: as tokens grow, up to " + percent_text(worst_falls_, 0) +
        " of times fall by more than a tenth (" + worst_product_ +
        "); the least at or above counts");
  }

  static Curve sum(const Curve& a, const Curve& b) {
    const WeightedCurve terms[] = {{&a, 1}, {&b, 1}};
    return sum_of_measured(terms);
  }

  void add_products() {
    const std::int64_t hidden = model_.hidden_dim;
    if (model_.latent_attention.is_empty()) {
      const std::int64_t query = model_.n_heads / tp_ * model_.head_dim;
      const std::int64_t kv = device_kv_heads(model_, tp_) * model_.head_dim;
      const std::int64_t gate = model_.has_gated_attention ? query : 0;
      times_.projections = sum(product({ModuleKind::AttentionIn}, query + gate + 2 * kv, hidden),
                               product({ModuleKind::AttentionOut}, hidden, query));
    } else {
      add_latent_products();
    }
    if (model_.n_moe_layers() < model_.n_layers) {
      const std::int64_t ffn = model_.ffn_dim / tp_;
      const std::int64_t inputs = (model_.n_mlp_matrices() - 1) * ffn;
      times_.mlp = sum(product({ModuleKind::MlpIn}, inputs, hidden),
                       product({ModuleKind::MlpOut}, hidden, ffn));
    }
    if (const std::int64_t shared = model_.shared_expert_ffn_dim / tp_; shared > 0) {
      times_.shared_experts = sum(product({ModuleKind::SharedIn}, 2 * shared, hidden),
                                  product({ModuleKind::SharedOut}, hidden, shared));
    }
    times_.head = product({head_table(model_)}, model_.vocab_size / tp_, hidden);
  }

  // ---- Latent attention ----

  // Every device projects to the latent vectors of queries and of the cache.
  void add_latent_products() {
    const LatentAttention& latent = model_.latent_attention;
    const std::int64_t heads = model_.n_heads / tp_;
    const std::int64_t queries = heads * (latent.nope_dim + latent.rope_dim);
    const std::int64_t hidden = model_.hidden_dim;
    constexpr auto kIn = ModuleKind::AttentionIn;
    const Curve output = product({ModuleKind::AttentionOut}, hidden, heads * latent.value_dim);
    if (latent.q_rank > 0) {
      times_.projections = sum(sum(product({kIn}, latent.q_rank + latent.cached_dim(), hidden),
                                   product({kIn}, queries, latent.q_rank)),
                               output);
    } else {
      times_.projections = sum(product({kIn}, queries + latent.cached_dim(), hidden), output);
    }
    times_.latent =
        LatentTimes{product({kIn}, heads * (latent.nope_dim + latent.value_dim), latent.kv_rank),
                    latent_products(tables_, heads, model_.linear_format, times_.remarks)};
    const std::vector<std::int64_t> wanted = {latent.kv_rank, latent.nope_dim, latent.rope_dim,
                                              latent.value_dim};
    if (meta_.latent == wanted && !times_.latent->absorption.empty()) return;
    if (meta_.latent == wanted) {
      fail_missing(meta_, "products into and out of the latent space", {});
    }
    std::set<std::string> found;
    if (!meta_.latent.empty()) found.insert(sizes_text(meta_.latent));
    fail_missing(meta_, "latent attention of " + sizes_text(wanted), found);
  }

  static std::string sizes_text(const std::vector<std::int64_t>& sizes) {
    std::string text;
    for (const std::int64_t size : sizes)
      text += fmt::format("{}{}", text.empty() ? "" : "/", size);
    return text;
  }

  // ---- Linear attention ----

  void add_states() {
    const LinearAttention& linear = model_.linear_attention;
    const std::vector<std::int64_t> wanted = {linear.key_head_dim, linear.value_head_dim,
                                              linear.conv_width};
    const std::int64_t key_heads = linear.n_key_heads / tp_;
    const std::int64_t value_heads = linear.n_value_heads / tp_;
    if (meta_.states == wanted) {
      times_.states = state_times(tables_, key_heads, value_heads, times_.remarks);
    }
    if (!times_.states) {
      std::set<std::string> found;
      for (const StateCells& cells : tables_.context_states) {
        found.insert(fmt::format("{}/{}", cells.key_heads, cells.value_heads));
      }
      fail_missing(
          meta_,
          fmt::format(
              "linear attention of {}/{} key and value heads of {} x {} and a convolution of {}",
              key_heads, value_heads, linear.key_head_dim, linear.value_head_dim,
              linear.conv_width),
          found);
    }
    // Queries, keys, values and their gate; a write strength and a decay of each value head.
    const std::int64_t inputs = (linear.conv_channels() + linear.value_dim()) / tp_;
    times_.linear_projections =
        sum(product({ModuleKind::StateIn}, inputs + 2 * value_heads, model_.hidden_dim),
            product({ModuleKind::StateOut}, model_.hidden_dim, linear.value_dim() / tp_));
  }

  // ---- Experts ----

  // Of the first data type and origin, whatever its law; nullptr if there is none.
  const ExpertsTable* find_experts(const std::vector<std::string>& dtypes, std::int64_t tp) const {
    for (const std::string& dtype : dtypes) {
      for (const ExpertsTable& first : tables_.experts) {
        for (const char* law : {"power_law_1.2", "power_law_1.01", "balanced"}) {
          for (const ExpertsTable& table : tables_.experts) {
            const bool fits = table.origin == first.origin && table.dtype == dtype &&
                              table.tensor_parallel_size == tp && table.distribution == law;
            if (fits) return &table;
          }
        }
      }
    }
    return nullptr;
  }

  void check_experts() const {
    const std::vector<std::int64_t> wanted = {model_.hidden_dim, model_.expert_ffn_dim,
                                              model_.n_experts_per_token, model_.n_experts};
    if (meta_.experts == wanted) return;
    const auto text = [](const std::vector<std::int64_t>& shape) {
      return fmt::format("{} of {} experts of {} x {}", shape[2], shape[3], shape[0], shape[1]);
    };
    std::set<std::string> found;
    if (!meta_.experts.empty()) found.insert(text(meta_.experts));
    fail_missing(meta_, text(wanted), found);
  }

  // Devices among which each expert is divided.
  std::int64_t experts_tp() const { return tp_ / meta_.expert_parallel_size; }

  void add_experts() {
    check_experts();
    const std::vector<FormatShare> shares = model_.formats_of(kExpertModules);
    std::vector<Curve> curves;
    for (const FormatShare& share : shares) {
      curves.push_back(experts_curve(table_dtype(share.format, meta_)));
    }
    Curve router = router_scores();
    for (double& us : router.us) us += kRouterTopKUs;
    std::vector<WeightedCurve> terms = {{&router, 1}};
    for (std::size_t i = 0; i < curves.size(); ++i) terms.push_back({&curves[i], shares[i].share});
    times_.experts = sum_of_measured(terms);
  }

  // The times of all experts in this type.
  Curve experts_curve(const std::string& dtype) {
    std::vector<std::string> dtypes = {dtype};
    if (dtype == "fp8") dtypes.emplace_back("fp8_block");
    if (dtype == "fp8_block") dtypes.emplace_back("fp8");
    if (dtype == "w4a8_mxfp4_mxfp8") dtypes.emplace_back("w4a16_mxfp4");
    const std::int64_t tp = experts_tp();
    const std::string of_kernel =
        meta_.experts_kernel.empty() ? "" : " by kernels named *" + meta_.experts_kernel + "*";
    const ExpertsTable* table = find_experts(dtypes, tp);
    for (const std::int64_t other : {tp / 2, tp / 4, tp * 2}) {
      if (table == nullptr && tp > 1 && other > 0) table = find_experts(dtypes, other);
    }
    if (table == nullptr) {
      std::set<std::string> found;
      for (const ExpertsTable& other : tables_.experts) {
        const std::string_view word = word_of_dtype(other.dtype);
        if (word.empty()) continue;
        found.insert(fmt::format("{} by {}", word, other.tensor_parallel_size));
      }
      fail_missing(meta_,
                   fmt::format("experts of this shape of --quantization {}, each divided by {}{}",
                               word_of_dtype(dtype), tp, of_kernel),
                   found);
    }
    say_experts(*table, dtype);
    if (!of_kernel.empty()) say("experts: measured ones" + of_kernel);
    Curve experts = table->us;
    for (double& us : experts.us) us *= real(table->tensor_parallel_size) / real(tp);
    lower_to_later(experts);
    return experts;
  }

  Curve router_scores() {
    if (router_dtype_ == RouterDtype::Bfloat16) {
      return product(kBfloat16, model_.n_experts, model_.hidden_dim);
    }
    say("router in " + std::string(to_string(router_dtype_)) +
        ": not measured; scaled from the same product of other shapes on a GB200 and a GB300");
    return router_product(router_dtype_, real(model_.n_experts), real(model_.hidden_dim),
                          meta_.memory_bandwidth);
  }

  void say_experts(const ExpertsTable& table, const std::string& dtype) {
    if (table.origin.engine != meta_.engine || table.dtype != dtype) {
      say("experts in " + dtype + ": those in " + table.dtype + " of " + table.origin.text());
    }
    if (table.tensor_parallel_size != experts_tp()) {
      say(fmt::format("experts: measured on {} devices, scaled to {}", table.tensor_parallel_size,
                      experts_tp()));
    }
    if (table.distribution != "power_law_1.2") say("experts: routed by " + table.distribution);
  }

  // ---- Attention ----

  std::string wanted_kv_dtype() const {
    return model_.bytes_per_kv_element == 1 ? "fp8" : kBfloat16;
  }

  std::optional<LayerAttention> attention(std::int64_t window) {
    const bool is_latent = times_.latent.has_value();
    const AttentionWanted wanted = {model_.n_heads / tp_,
                                    is_latent ? model_.n_heads / tp_ : device_kv_heads(model_, tp_),
                                    window, wanted_kv_dtype()};
    auto prompts = attention_grid(tables_, AttentionPhase::Prompts, wanted, times_.remarks);
    auto decodes = attention_grid(tables_, AttentionPhase::Decodes, wanted, times_.remarks);
    if (!prompts || !decodes) return std::nullopt;
    if (window == 0) {
      for (double& tokens : prompts->columns) tokens = tokens * tokens / 2;  // pairs
    }
    return LayerAttention{std::move(*prompts), std::move(*decodes)};
  }

  void add_attention() {
    if (times_.latent) {
      for (const char* kv_dtype : {kBfloat16, "fp8"}) {
        std::vector<std::string> of_other_type;
        std::vector<std::string>& remarks =
            kv_dtype == wanted_kv_dtype() ? times_.remarks : of_other_type;
        tables_.context =
            without_slow_origins(tables_.context, kv_dtype, "latent attention of prompts", remarks);
        tables_.decode =
            without_slow_origins(tables_.decode, kv_dtype, "latent attention of decodes", remarks);
      }
    }
    const auto full = attention(0);
    if (!full) {
      std::set<std::string> found;
      for (const AttentionCells& cells : tables_.decode) {
        found.insert(fmt::format("{}/{}", cells.heads, cells.kv_heads));
      }
      fail_missing(meta_,
                   fmt::format("attention of {}/{} heads", model_.n_heads / tp_,
                               device_kv_heads(model_, tp_)),
                   found);
    }
    times_.attention = *full;
    if (model_.n_window_layers() == 0) return;
    times_.windowed = attention(model_.sliding_window);
    if (times_.windowed) return;
    say(
        fmt::format("attention with window {}: not measured; full attention with its lengths cut "
                    "to the window counts",
                    model_.sliding_window));
  }

  // ---- Collectives ----

  // Whether norms are fused with all-reduces by kernels of another product.
  bool borrows_reduces() const {
    return rules_.fuses_reduces != nullptr && rules_.fuses_reduces(model_, meta_.sm_version);
  }

  // Larger all-reduces are not fused.
  double max_fused_bytes() const { return rules_.max_fused_bytes(model_, tp_); }

  // The times of fused ones are those of the kernels' own product, if they were measured.
  void replace_fused_reduces(Curve& own) {
    const double most = max_fused_bytes();
    for (const CollectiveTable& table : tables_.collectives) {
      const CollectiveTimes& times = table.times;
      const bool is_theirs = find_kernel_rules(table.origin.engine).has_fused_reduces &&
                             times.is_graph && times.collective == Collective::AllReduce &&
                             times.num_devices == tp_;
      if (!is_theirs || times.us.x.front() > most) continue;
      Curve fused;
      const auto add = [&fused](const Curve& from, std::size_t i) {
        fused.x.push_back(from.x[i]);
        fused.us.push_back(from.us[i]);
      };
      for (std::size_t i = 0; i < times.us.x.size(); ++i) {
        if (times.us.x[i] <= most) add(times.us, i);
      }
      for (std::size_t i = 0; i < own.x.size(); ++i) {
        if (own.x[i] > most) add(own, i);
      }
      own = std::move(fused);
      say("all_reduce: up to " + fixed_text(most / kMiB, 0) + " MiB of " + table.origin.text() +
          ", whose kernels are fused with norms");
      return;
    }
  }

  // NCCL's versions count together; of an engine's the newest.
  void add_collectives() {
    for (const Collective collective : {Collective::AllReduce, Collective::AllGather}) {
      std::set<std::string> found;
      const CollectiveTable* chosen = nullptr;
      for (const bool is_graph : {true, false}) {
        for (const CollectiveTable& table : tables_.collectives) {
          if (table.times.collective != collective) continue;
          found.insert(std::to_string(table.times.num_devices));
          const bool fits = table.times.num_devices == tp_ && table.times.is_graph == is_graph;
          if (fits && chosen == nullptr) chosen = &table;
        }
      }
      const std::string name(to_string(collective));
      if (chosen == nullptr) {
        fail_missing(meta_, fmt::format("{} among {} devices", name, tp_), found);
      }
      if (chosen->origin.engine != meta_.engine && chosen->origin.engine != "nccl") {
        say(name + ": of " + chosen->origin.text());
      }
      if (!chosen->times.is_graph) say(name + ": of eager launches");
      CollectiveTimes times = chosen->times;
      times.is_graph = true;
      if (collective == Collective::AllReduce && borrows_reduces()) {
        replace_fused_reduces(times.us);
      }
      if (const std::size_t num_raised = raise_to_earlier(times.us); num_raised > 0) {
        say(fmt::format("{}: {} times fall as bytes grow; the largest at or below counts", name,
                        num_raised));
      }
      times_.collectives.push_back(std::move(times));
    }
  }

  OperatorTables tables_;
  const OperatorMeta& meta_;
  const KernelRules& rules_;  // of its engine
  const ModelConfig& model_;
  const std::int64_t tp_;
  const RouterDtype router_dtype_;
  OperatorTimes times_;
  double worst_falls_ = 0;  // of a product's adjacent times
  std::string worst_product_;
};

}  // namespace

std::string table_dtype(WeightFormat format, const OperatorMeta& meta) {
  switch (format) {
    case WeightFormat::Plain: return kBfloat16;
    case WeightFormat::Fp8: return "fp8";
    case WeightFormat::Fp8Block: return "fp8_block";
    case WeightFormat::Nvfp4: return "nvfp4";
    case WeightFormat::Mxfp4:
      return meta.is_datacenter_blackwell() ? "w4a8_mxfp4_mxfp8" : "w4a16_mxfp4";
    case WeightFormat::Int4: return "int4_wo";
    case WeightFormat::Mxfp8:
    case WeightFormat::Int8:
    case WeightFormat::Int4Fp8:
    case WeightFormat::WeightOnly: return std::string(to_string(format));
  }
  return {};
}

std::string_view word_of_dtype(std::string_view dtype) {
  if (dtype == kBfloat16) return "none";
  if (dtype == "int4_wo") return "int4";
  if (dtype == "w4a16_mxfp4" || dtype == "w4a8_mxfp4_mxfp8") return "mxfp4";
  const auto known = std::find(std::begin(kWeightFormatNames), std::end(kWeightFormatNames), dtype);
  return known == std::end(kWeightFormatNames) ? "" : dtype;
}

OperatorTimes compose_operators(const OperatorTables& tables, const ModelConfig& model,
                                std::int64_t tensor_parallel_size, RouterDtype router_dtype) {
  return Composer(tables, model, tensor_parallel_size, router_dtype).compose();
}

}  // namespace metronome
