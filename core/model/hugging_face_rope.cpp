// SPDX-License-Identifier: Apache-2.0
#include "core/model/hugging_face_rope.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/math.h"

namespace metronome {
namespace {

using RopeKind = RopeScaling::Kind;

std::vector<double> read_factors(const JsonSection& rope, const char* key) {
  const Json* const values = rope.find(key);
  if (values == nullptr) rope.fail_absent(key, "a list of numbers");
  std::vector<double> factors;
  const auto refuse = [&] {
    rope.fail(key, "must be a list of numbers, got " + JsonSection::excerpt(*values) +
                       "; allowed: a divisor for each rotated pair");
  };
  if (!values->is_array()) refuse();
  for (const Json& value : *values) {
    if (!value.is_number()) refuse();
    factors.push_back(value.get<double>());
  }
  return factors;
}

// Magnitudes of cosines and sines: YaRN's rule (arXiv 2309.00071, section 3.4).
double yarn_magnitude(double factor, double multiplier) {
  return factor <= 1 ? 1 : 0.1 * multiplier * log_of(factor) + 1;
}

double yarn_attention_factor(const JsonSection& rope, double factor) {
  const double multiplier = rope.number_or("mscale", 0);
  const double of_all = rope.number_or("mscale_all_dim", 0);
  if (multiplier != 0 && of_all != 0) {
    return yarn_magnitude(factor, multiplier) / yarn_magnitude(factor, of_all);
  }
  return yarn_magnitude(factor, 1);
}

// LongRoPE's rule (arXiv 2402.13753).
double long_attention_factor(double factor, std::int64_t original_positions) {
  if (factor <= 1 || original_positions <= 1) return 1;
  return std::sqrt(1 + log_of(factor) / log_of(static_cast<double>(original_positions)));
}

// Phi MoE's files say the magnitudes of both sets of factors.
void read_magnitudes(const JsonSection& rope, RopeScaling& scaling, ModelConfig& model) {
  if (rope.find("short_mscale") == nullptr) return;
  scaling.attention_factor = rope.required_number("short_mscale");
  if (rope.number_or("long_mscale", scaling.attention_factor) == scaling.attention_factor) return;
  model.refuse(rope.dotted("long_mscale"), "is not short_mscale; allowed: the same number");
}

constexpr const char* kOriginalPositions = "original_max_position_embeddings";

// Hunyuan's "dynamic" scaling: a factor of the base, whatever the length of the text.
void stretch_base(const JsonSection& rope, ModelConfig& model) {
  const double alpha = rope.required_number("alpha");
  const auto dim = static_cast<double>(model.num_rotated());
  if (!(alpha > 0) || dim <= 2) rope.fail("alpha", "must be above 0; allowed: a number above 0");
  model.rope_theta *= pow_of(alpha, dim / (dim - 2));
}

// Queries that grow with their position, as in Llama 4.
void read_query_scale(const JsonSection& rope, ModelConfig& model) {
  model.query_scale_beta = rope.number_or("llama_4_scaling_beta", 0);
  if (model.query_scale_beta == 0) return;
  model.query_scale_positions = rope.integer_or(kOriginalPositions, model.max_position_embeddings);
}

// The RoPE scaling of some layers, from `rope_scaling` or an entry of `rope_parameters`. The object
// may hold the base too.
RopeScaling read_scaling(const JsonSection& rope, const ModelFamily& family,
                         std::int64_t original_positions, ModelConfig& model) {
  const char* const key = rope.find("rope_type") != nullptr ? "rope_type" : "type";
  std::string type = rope.text_or(key, "default");
  // Older files of Phi 3 say "su" or "yarn".
  const bool is_phi = family.tensors == TensorNames::Phi3;
  if (type == "su" || (is_phi && type == "yarn")) type = "longrope";
  RopeScaling scaling;
  if (type == "default") return scaling;
  scaling.original_max_positions = original_positions;
  const double stretch =
      static_cast<double>(model.max_position_embeddings) /
      static_cast<double>(std::max<std::int64_t>(scaling.original_max_positions, 1));
  if (type == "linear") {
    scaling.kind = RopeKind::Linear;
    scaling.factor = rope.required_number("factor");
    scaling.original_max_positions = RopeScaling{}.original_max_positions;
  } else if (type == "llama3") {
    scaling.kind = RopeKind::Llama3;
    scaling.factor = rope.required_number("factor");
    scaling.low_freq_factor = rope.required_number("low_freq_factor");
    scaling.high_freq_factor = rope.required_number("high_freq_factor");
  } else if (type == "yarn") {
    scaling.kind = RopeKind::Yarn;
    scaling.factor = rope.number_or("factor", stretch);
    scaling.beta_fast = rope.number_or("beta_fast", 32);
    scaling.beta_slow = rope.number_or("beta_slow", 1);
    scaling.truncates = rope.boolean_or("truncate", !rope.has("truncate"));
    scaling.attention_factor =
        rope.number_or("attention_factor", yarn_attention_factor(rope, scaling.factor));
  } else if (type == "longrope") {
    scaling.kind = RopeKind::LongRope;
    scaling.short_factors = read_factors(rope, "short_factor");
    scaling.long_factors = read_factors(rope, "long_factor");
    scaling.attention_factor = rope.number_or(
        "attention_factor",
        long_attention_factor(rope.number_or("factor", stretch), scaling.original_max_positions));
    read_magnitudes(rope, scaling, model);
  } else if (type == "dynamic" && rope.find("alpha") != nullptr) {
    stretch_base(rope, model);
    return {};
  } else {
    model.refuse(rope.dotted(key),
                 JsonSection::excerpt(Json(type)) +
                     " is not supported; allowed: default, linear, llama3, yarn, longrope");
    return {};
  }
  return scaling;
}

// The part of each head that RoPE rotates. `otherwise`: where the section does not say it.
void read_partial_rotation(const JsonSection& section, const ModelFamily& family,
                           ModelConfig& model, double otherwise) {
  const double share = section.number_or("partial_rotary_factor", otherwise);
  if (share == 1) return;
  if (!family.has_partial_rotation || !(share > 0 && share < 1)) {
    model.refuse(section.dotted("partial_rotary_factor"),
                 "rotation of a part of each head is not supported; allowed: 1");
    return;
  }
  // As Python's int() of the product.
  model.rotary_dim = static_cast<std::int64_t>(static_cast<double>(model.head_dim) * share);
  if (model.rotary_dim == 0 || model.rotary_dim % 2 != 0) {
    model.refuse(
        section.dotted("partial_rotary_factor"),
        fmt::format(
            "rotates {} of {} elements of a head, but RoPE rotates pairs; allowed: an even number",
            model.rotary_dim, model.head_dim));
  }
}

// Window layers with their own RoPE frequencies, which are never scaled.
void read_rope_by_layer(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  model.rope_theta = text.number_or("rope_theta", family.defaults.rope_theta);
  model.rope_local_theta = text.number_or("rope_local_base_freq", family.local_rope_theta);
  const std::int64_t max_positions = model.max_position_embeddings;
  if (const std::optional<JsonSection> by_layer = text.section("rope_parameters")) {
    if (by_layer->find("rope_theta") != nullptr || by_layer->find("rope_type") != nullptr) {
      model.refuse(text.dotted("rope_parameters"),
                   "are not given per layer type; allowed: full_attention, sliding_attention");
    }
    if (const std::optional<JsonSection> full = by_layer->section("full_attention")) {
      model.rope_theta = full->number_or("rope_theta", model.rope_theta);
      model.rope_scaling =
          read_scaling(*full, family, full->integer_or(kOriginalPositions, max_positions), model);
      read_partial_rotation(*full, family, model, 1);
    }
    if (const std::optional<JsonSection> local = by_layer->section("sliding_attention")) {
      model.rope_local_theta = local->number_or("rope_theta", model.rope_local_theta);
      if (read_scaling(*local, family, local->integer_or(kOriginalPositions, max_positions), model)
              .kind != RopeKind::None) {
        model.refuse(local->dotted("rope_type"),
                     "scaling in window layers is not supported; allowed: default");
      }
    }
  }
  if (const std::optional<JsonSection> scaling = text.section("rope_scaling")) {
    model.rope_scaling = read_scaling(
        *scaling, family, scaling->integer_or(kOriginalPositions, max_positions), model);
  }
}

}  // namespace

void read_rope(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  if (family.local_rope_theta > 0) {
    read_partial_rotation(text, family, model, 1);
    return read_rope_by_layer(text, family, model);
  }
  // GPT-NeoX's old files have other words.
  model.rope_theta =
      text.number_or("rope_theta", text.number_or("rotary_emb_base", family.defaults.rope_theta));
  // If a file has both forms, the transformers 4 form wins, as in transformers 5.
  const Json* const old = text.find("rope_scaling");
  const bool is_old = old != nullptr && !old->empty();
  const std::optional<JsonSection> rope = text.section(is_old ? "rope_scaling" : "rope_parameters");
  const bool says_share = rope && rope->find("partial_rotary_factor") != nullptr;
  double share = text.number_or("rotary_pct", family.defaults.partial_rotary_factor);
  // MiniMax says the elements.
  if (family.has_partial_rotation && text.find("rotary_dim") != nullptr) {
    share = static_cast<double>(text.required_integer("rotary_dim")) /
            static_cast<double>(std::max<std::int64_t>(model.head_dim, 1));
  }
  read_partial_rotation(says_share ? *rope : text, family, model, share);
  if (!rope) return;
  for (const char* key : {"full_attention", "sliding_attention"}) {
    if (rope->find(key) != nullptr) {
      model.refuse(rope->dotted(key),
                   "parameters per layer type are not supported; allowed: one set for all");
    }
  }
  model.rope_theta = rope->number_or("rope_theta", model.rope_theta);
  // As in transformers 5, the key beside the section wins.
  const std::int64_t original = text.integer_or(
      kOriginalPositions, rope->integer_or(kOriginalPositions, model.max_position_embeddings));
  model.rope_scaling = read_scaling(*rope, family, original, model);
  read_query_scale(*rope, model);
}

}  // namespace metronome
