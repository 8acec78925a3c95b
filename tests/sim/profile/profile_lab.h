// SPDX-License-Identifier: Apache-2.0
// Kernel times from a formula, as a profiler would have written them.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/cost/device_share.h"
#include "sim/profile/profile_folder.h"
#include "sim/profile/profile_model.h"
#include "tests/scratch_folder.h"

namespace metronome::testing {

// Plausible on an RTX 4090: 20 % slower than the peaks, and 5 us a launch.
struct SyntheticTimes {
  ModelConfig model;
  std::int64_t tp = 1;
  HardwareSpec hardware = find_hardware("rtx-4090", {});

  double us(double flops, double bytes) const {
    return 5 + 1.2e6 * (flops / hardware.peak_flops + bytes / hardware.peak_bandwidth);
  }
  double product(double rows, double weights) const { return us(2 * rows * weights, 2 * weights); }
  double share(std::int64_t n) const { return static_cast<double>(n) / static_cast<double>(tp); }

  double dense(const std::string& layer, double tokens) const {
    const auto hidden = static_cast<double>(model.hidden_dim);
    const auto head = static_cast<double>(model.head_dim);
    const double query = share(model.n_heads) * head;
    const double kv = static_cast<double>(device_kv_heads(model, tp)) * head;
    if (layer == "qkv_proj") return product(tokens, hidden * (query + 2 * kv));
    if (layer == "o_proj") return product(tokens, hidden * query);
    if (layer == "gate_up_proj") return product(tokens, 2 * hidden * share(model.ffn_dim));
    if (layer == "down_proj") return product(tokens, hidden * share(model.ffn_dim));
    return us(0, 4 * tokens * hidden);
  }
  double per_sequence(const std::string& layer, double sequences) const {
    if (layer == "sampler") return 20 + sequences;
    return product(sequences, static_cast<double>(model.hidden_dim) * share(model.vocab_size));
  }
  // Linear in decodes, context and history, so interpolation in these is exact.
  double attention(double chunk, double history, double decodes, double context) const {
    const double pairs = chunk * (history + chunk / 2) + decodes * context;
    const double positions = (chunk > 0 ? history + chunk : 0) + decodes * context;
    return us(4 * pairs * share(model.n_heads) * static_cast<double>(model.head_dim),
              positions * device_kv_bytes(model, tp));
  }
  double experts(double tokens, double activated) const {
    const double expert = static_cast<double>(model.n_expert_params()) / static_cast<double>(tp);
    return us(2 * tokens * static_cast<double>(model.n_experts_per_token) * expert,
              2 * activated * expert);
  }

  std::vector<std::string> dense_layers() const {
    std::vector<std::string> layers = {"embedding",  "layernorm", "qkv_proj",
                                       "rotary_emb", "o_proj",    "final_layernorm"};
    if (model.n_moe_layers() == 0) {
      for (const char* layer : {"gate_up_proj", "act_fn", "down_proj"}) layers.push_back(layer);
    }
    return layers;
  }
};

inline std::vector<double> powers(double first, double last) {
  std::vector<double> values;
  for (double value = first; value <= last; value *= 2) values.push_back(value);
  return values;
}

// Files by name, to be written whole or with something wrong.
class SyntheticProfile {
 public:
  SyntheticTimes times;
  std::map<std::string, std::string> files;

  explicit SyntheticProfile(const std::string& model = "llama-3.1-8b", std::int64_t tp = 1) {
    times.model = find_model(model, {});
    times.tp = tp;
    files["meta.yaml"] =
        "vllm_version: 0.19.0\nhardware: RTX4090\nmodel: meta-llama/" + model +
        "\nattention_grid: {chunk_factor: 2.0, kv_factor: 2.0, n_decode: \"0, 1-256 x2\"}\n";
    write_dense();
    write_attention();
    if (times.model.n_moe_layers() > 0) write_experts();
  }

  std::string file(const std::string& name) const {
    return "tp" + std::to_string(times.tp) + "/" + name;
  }
  std::string write(const ScratchFolder& folder) const {
    for (const auto& [name, text] : files) folder.write(name, text);
    return folder.path();
  }

 private:
  void write_dense() {
    std::ostringstream dense;
    dense.precision(12);
    dense << "layer,tokens,time_us\n";
    for (const std::string& layer : times.dense_layers()) {
      for (const double tokens : powers(1, 2048)) {
        dense << layer << ',' << tokens << ',' << times.dense(layer, tokens) << '\n';
      }
    }
    files[file("dense.csv")] = dense.str();
    std::ostringstream heads;
    heads.precision(12);
    heads << "layer,sequences,time_us\n";
    for (const char* layer : {"lm_head", "sampler"}) {
      for (const double sequences : powers(1, 256)) {
        heads << layer << ',' << sequences << ',' << times.per_sequence(layer, sequences) << '\n';
      }
    }
    files[file("per_sequence.csv")] = heads.str();
  }

  void write_attention() {
    std::ostringstream out;
    out.precision(12);
    out << "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n";
    const auto row = [&](double chunk, double history, double decodes, double context) {
      out << chunk << ',' << history << ',' << decodes << ',' << context << ','
          << times.attention(chunk, history, decodes, context) << '\n';
    };
    for (const double decodes : powers(1, 256)) {
      for (const double context : powers(16, 8192)) row(0, 0, decodes, context);
    }
    std::vector<double> histories = powers(16, 8192);
    histories.insert(histories.begin(), 0);
    for (const double chunk : powers(16, 2048)) {
      for (const double history : histories) {
        row(chunk, history, 0, 0);
        for (const double decodes : powers(1, 128)) {
          for (const double context : powers(16, 8192)) row(chunk, history, decodes, context);
        }
      }
    }
    files[file("attention.csv")] = out.str();
  }

  void write_experts() {
    std::ostringstream out;
    out.precision(12);
    out << "tokens,activated_experts,time_us\n";
    for (const double tokens : powers(1, 2048)) {
      const auto most = std::min(tokens * static_cast<double>(times.model.n_experts_per_token),
                                 static_cast<double>(times.model.n_experts));
      for (const double activated : powers(1, most)) {
        out << tokens << ',' << activated << ',' << times.experts(tokens, activated) << '\n';
      }
    }
    files[file("moe.csv")] = out.str();
  }
};

// How attention fills the device that the profile was measured on.
inline const BlockFilling kFilling{128, {10, 3, 8, 0.3, 0}, {4, 4, 4, 1, 0.3}};

inline Profile profile_of(const SyntheticProfile& synthetic) {
  const ScratchFolder folder;
  const std::string path = synthetic.write(folder);
  Profile profile;
  profile.tables = read_profile_tables(path, read_profile_meta(path), synthetic.times.tp,
                                       synthetic.times.model, synthetic.times.hardware);
  return profile;
}

}  // namespace metronome::testing
