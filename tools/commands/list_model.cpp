// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/list_model.h"

#include <cstdint>
#include <fmt/core.h>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/base/real.h"
#include "core/base/wrapped_text.h"
#include "core/model/layer_kind.h"
#include "core/model/model_catalogue.h"
#include "reports/terminal/text.h"

namespace metronome {
namespace {

using Row = std::vector<std::string>;

// Weights of a layer behind its mixer, with experts and their router.
std::int64_t all_mlp_params(const ModelConfig& model, const LayerKind& kind) {
  const std::int64_t of_experts = model.n_experts * (model.n_expert_params() + model.hidden_dim);
  return mlp_params(model, kind) + (kind.has_experts ? of_experts : 0);
}

Row row_of(const ModelConfig& model, const LayerKind& kind) {
  const AttentionPart& attention = kind.attention;
  const std::string heads =
      attention.is_empty()
          ? ""
          : fmt::format("{}/{} x {}", attention.n_heads, attention.n_kv_heads, attention.head_dim);
  return {std::to_string(kind.count()),
          kind.name(),
          heads,
          fixed_text(real(kind.mixer_params()) / 1e6, 1),
          fixed_text(real(all_mlp_params(model, kind)) / 1e6, 1),
          fixed_text(kv_bytes(model, attention), 0),
          grouped_text(kind.state.bytes())};
}

void print_formats(const ModelConfig& model) {
  struct Part {
    const char* name;
    std::vector<FormatShare> shares;
  };
  std::vector<Part> parts = {{"attention and states", model.formats_of(kAttentionModules)},
                             {"MLPs", model.formats_of(kMlpModules)}};
  if (model.n_experts > 0) parts.push_back({"experts", model.formats_of(kExpertModules)});
  for (const Part& part : parts) {
    std::cout << "  " << part.name << ": ";
    for (std::size_t i = 0; i < part.shares.size(); ++i) {
      const FormatShare& share = part.shares[i];
      if (i > 0) std::cout << ", ";
      if (part.shares.size() > 1) std::cout << percent_text(share.share, 1) << " in ";
      std::cout << to_string(share.format) << ", " << fixed_text(share.bytes_per_weight, 3)
                << " bytes";
    }
    std::cout << '\n';
  }
}

// The bytes of a folder's safetensors files, as their index says; nothing without one.
std::optional<std::int64_t> indexed_bytes(const std::string& name_or_path) {
  const std::string folder = find_model_folder(name_or_path);
  if (folder.empty()) return std::nullopt;
  const std::string path = folder + "/model.safetensors.index.json";
  const std::optional<std::string> text = read_file(path);
  if (!text) return std::nullopt;
  try {
    const Json index = Json::parse(*text);
    const Json* const metadata = index.is_object() ? index.find("metadata") : nullptr;
    const Json* const size =
        metadata == nullptr || !metadata->is_object() ? nullptr : metadata->find("total_size");
    if (size == nullptr || !size->is_number() || size->get<double>() < 1) return std::nullopt;
    return static_cast<std::int64_t>(size->get<double>());
  } catch (const JsonError&) {
    throw ConfigError(path + ": is not JSON; allowed: an index of safetensors files");
  }
}

}  // namespace

void list_model(const std::string& name_or_path) {
  const ModelConfig model = find_model(name_or_path, {});
  const std::int64_t towers = model.vision.n_params() + model.tower_params;
  std::cout << model.name << " (" << model.architecture << ")\n"
            << "  parameters: " << grouped_text(model.n_params()) << ", of a token's step "
            << grouped_text(model.n_active_params()) << '\n'
            << "  tables: " << grouped_text(model.vocab_size) << " x "
            << grouped_text(model.hidden_dim)
            << (model.has_tied_embeddings ? ", one for embeddings and head" : ", two") << '\n';
  if (towers > 0) std::cout << "  towers of images and sounds: " << grouped_text(towers) << '\n';
  if (model.n_experts > 0) {
    std::cout << "  experts: " << model.n_experts_per_token << " of " << model.n_experts
              << " a token, " << grouped_text(model.n_expert_params()) << " parameters each";
    if (model.shared_expert_ffn_dim > 0) {
      std::cout << "; a shared one of width " << grouped_text(model.shared_expert_ffn_dim);
    }
    std::cout << '\n';
  }
  std::cout << "  weights: " << grouped_text(model.weight_bytes()) << " bytes\n";
  if (const auto bytes = indexed_bytes(name_or_path)) {
    const double share = real(model.weight_bytes()) / real(*bytes) - 1;
    std::cout << "  its safetensors files: " << grouped_text(*bytes) << " bytes; counted here "
              << (share < 0 ? "" : "+") << percent_text(share, 2) << '\n';
  }
  print_formats(model);
  std::cout << "  KV: " << grouped_text(model.kv_bytes_per_token()) << " bytes a token\n"
            << "  states: " << grouped_text(model.state_bytes()) << " bytes a request\n"
            << "  context: " << grouped_text(model.max_context()) << " tokens\n\n";
  std::vector<Row> rows = {
      {"layers", "kind", "heads/kv x dim", "mixer M", "MLP M", "KV B/token", "state B"}};
  for (const LayerKind& kind : layer_kinds(model)) rows.push_back(row_of(model, kind));
  std::cout << aligned_rows(rows);
  if (!model.approximation.empty()) std::cout << '\n' << wrapped(model.approximation, 0);
  if (!model.keys_read.empty()) {
    std::cout << wrapped("Keys: " + model.keys_read + ".", 0);
  }
  if (!model.unsupported.empty()) {
    std::cout << wrapped("Not computed: " + model.unsupported + ".", 0);
  }
}

}  // namespace metronome
