// SPDX-License-Identifier: Apache-2.0
#include "core/model/any_towers.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/model/any_encoders.h"
#include "core/model/any_keys.h"

namespace metronome {
namespace {

// Entries of a list, up to a bound; 0 where the key has none.
std::int64_t list_size(const JsonSection& section, const char* name) {
  const Json* const value = section.find(name);
  if (value == nullptr || !(value->is_array() || value->is_object())) return 0;
  return static_cast<std::int64_t>(std::min<std::size_t>(value->size(), 64));
}

// The parts from an encoder to the width of the language model. Read from the keys of the file,
// the encoder's section and the language model's; the first rule whose keys are there counts.
class Projector {
 public:
  Projector(const JsonSection& root, const JsonSection& section, const JsonSection& text,
            std::int64_t width, std::int64_t hidden_dim)
      : root_(root),
        section_(section),
        text_(text),
        of_root_(root),
        of_section_(section),
        width_(width),
        hidden_dim_(hidden_dim),
        out_dim_(std::min(of_section_.number("out_hidden_size", hidden_dim), kMaxEncoderWidth)) {}

  std::int64_t params() {
    if (const auto perceiver = root_.section("perceiver_config")) return of_perceiver(*perceiver);
    if (const auto queries = root_.section("qformer_config")) return of_queries(*queries);
    if (const auto adapter = root_.section("adapter_config")) return of_adapter(*adapter);
    if (root_.text_or("model_type", "").starts_with("phi4")) {
      // Two layers; sounds have two pairs, one of them for sounds beside images.
      const bool has_sounds = section_.find("ext_pw_out_channel") != nullptr;
      return (has_sounds ? 2 : 1) * (width_ + hidden_dim_) * hidden_dim_;
    }
    if (section_.text_or("model_type", "").starts_with("glm")) return of_glm();
    if (section_.find("use_fine_route") != nullptr) return of_routes();
    if (section_.find("window_kernel_size") != nullptr) return of_windows();
    if (root_.find("alignment_intermediate_size") != nullptr ||
        root_.find("adapter_layer_norm_eps") != nullptr) {
      // Cohere: half of the vector is a gate of the other half.
      const std::int64_t inner = of_root_.number("alignment_intermediate_size", hidden_dim_);
      return joined(side_of_root()) * inner + inner / 2 * hidden_dim_;
    }
    constexpr const char* kInner[] = {"projector_hidden_size", "projector_intermediate_size"};
    if (of_root_.has(kInner)) {
      const std::int64_t inner = of_root_.number(kInner);
      return joined(std::max({side(), side_of_root(), std::int64_t{1}})) * inner +
             inner * hidden_dim_;
    }
    return of_mergers();
  }

 private:
  // Patches of a square of so many on a side, as one vector.
  std::int64_t joined(std::int64_t side) const { return side * side * width_; }

  std::int64_t side() {
    constexpr const char* kSide[] = {"spatial_merge_size", "adapter_merge_size",
                                     "merge_kernel_size"};
    return std::min<std::int64_t>(of_section_.number(kSide), 16);
  }

  std::int64_t side_of_root() {
    constexpr const char* kSide[] = {"spatial_merge_size", "downsample_factor"};
    if (of_root_.has(kSide)) return std::min<std::int64_t>(of_root_.number(kSide), 16);
    const double ratio = std::clamp(root_.number_or("downsample_ratio", 0), 0.0, 1.0);
    return ratio > 1.0 / 16 ? static_cast<std::int64_t>(1 / ratio + 0.5) : 0;
  }

  // Two layers behind joined patches, and the same for each of the features that the first text
  // layers add; or one layer, or two.
  std::int64_t of_mergers() {
    if (const std::int64_t size = side(); size > 0) {
      const std::int64_t num_mergers = 1 + list_size(section_, "deepstack_visual_indexes");
      return num_mergers * joined(size) * (joined(size) + out_dim_);
    }
    const std::int64_t size = side_of_root();
    // Idefics 3: joined patches, and one layer. InternVL: and two.
    if (root_.find("scale_factor") != nullptr) {
      return joined(std::min<std::int64_t>(of_root_.number("scale_factor"), 16)) * hidden_dim_;
    }
    if (root_.find("downsample_ratio") != nullptr) {
      return (joined(size) + hidden_dim_) * hidden_dim_;
    }
    // MiniCPM-V: queries attend to the patches.
    if (root_.find("query_num") != nullptr) return (width_ + 5 * hidden_dim_) * hidden_dim_;
    const std::int64_t merged =
        root_.find("spatial_merge_size") == nullptr ? 0 : joined(size) * width_;
    const bool has_two = root_.find("projector_hidden_act") != nullptr;
    return merged + of_section_.number("vision_output_dim", width_) * hidden_dim_ +
           (has_two ? hidden_dim_ * hidden_dim_ : 0);
  }

  // GLM-4.1V: a convolution that joins patches, a square layer, and an MLP with a gate.
  std::int64_t of_glm() {
    const bool is_ocr = section_.text_or("model_type", "").starts_with("glm_ocr");
    const std::int64_t inner =
        is_ocr ? 3 * out_dim_ : of_section_.number("intermediate_size", 4 * out_dim_);
    return joined(side()) * out_dim_ + out_dim_ * out_dim_ + 3 * out_dim_ * inner;
  }

  // Idefics2: an MLP as wide as those of the language model, and layers of queries behind it.
  std::int64_t of_perceiver(const JsonSection& section) {
    AnyKeys keys(section);
    AnyKeys of_text(text_);
    const std::int64_t hidden = std::min(keys.number("hidden_size", hidden_dim_), kMaxEncoderWidth);
    const std::int64_t head_dim = std::min<std::int64_t>(keys.number("resampler_head_dim"), 4096);
    const std::int64_t heads = std::min<std::int64_t>(keys.number("resampler_n_heads"), 4096) +
                               std::min<std::int64_t>(keys.number("num_key_value_heads"), 4096);
    const std::int64_t depth = std::min<std::int64_t>(keys.number("resampler_depth"), 64);
    return (2 * width_ + hidden) * of_text.number("intermediate_size") +
           depth * hidden * (2 * heads * head_dim + 12 * hidden);
  }

  // Granite 4 Vision: layers of queries for each text layer that features are added to, and for
  // each of four corners.
  std::int64_t of_queries(const JsonSection& section) {
    AnyKeys keys(section);
    const std::int64_t hidden = std::min(keys.number("hidden_size", width_), kMaxEncoderWidth);
    const std::int64_t layers = std::min<std::int64_t>(keys.number("num_hidden_layers", 1), 64);
    const std::int64_t layer = 8 * hidden * hidden + 2 * hidden * keys.number("intermediate_size");
    const bool has_corners = root_.find("spatial_vision_layer") != nullptr;
    const std::int64_t count =
        std::max<std::int64_t>(list_size(root_, "deepstack_layer_map"), 1) + (has_corners ? 4 : 0);
    return count * (layers * layer + hidden * hidden_dim_);
  }

  // Molmo 2: attention to the features of several layers, and an MLP with a gate.
  std::int64_t of_adapter(const JsonSection& section) {
    AnyKeys keys(section);
    const std::int64_t hidden = std::min(keys.number("hidden_size", width_), kMaxEncoderWidth);
    const std::int64_t inner = keys.number("intermediate_size");
    const std::int64_t num_layers =
        std::max<std::int64_t>(list_size(section, "vision_feature_layer"), 1);
    return 3 * hidden * num_layers * width_ + hidden * hidden + 2 * hidden * inner +
           inner * hidden_dim_;
  }

  // Granite Docling: large squares of patches and smaller ones, each with mergers.
  std::int64_t of_routes() {
    const std::int64_t size = std::min<std::int64_t>(of_section_.number("scale_factor", 4), 16);
    const std::int64_t num_mergers = list_size(section_, "deepstack_visual_indexes");
    std::int64_t params = out_dim_ * out_dim_;
    for (const std::int64_t one : {size, size / 2}) {
      params += joined(one) * out_dim_ + num_mergers * (joined(one) + out_dim_) * out_dim_;
    }
    return params;
  }

  // MiniCPM-V 4.6: four patches become one after some layers, and again behind the last.
  std::int64_t of_windows() {
    const std::int64_t four = joined(2);
    return four * 4 * four + 4 * four * width_ + 4 * width_ * width_ + four * (four + hidden_dim_);
  }

  const JsonSection& root_;
  const JsonSection& section_;
  const JsonSection& text_;
  AnyKeys of_root_;
  AnyKeys of_section_;
  std::int64_t width_;
  std::int64_t hidden_dim_;
  std::int64_t out_dim_;
};

std::int64_t tower_of(const JsonSection& root, const JsonSection& section, const JsonSection& text,
                      std::int64_t hidden_dim) {
  if (const std::int64_t codes = codebook_params(section); codes > 0) return codes;
  const EncoderSize encoder = encoder_size(section);
  if (encoder.params == 0) return 0;
  // Video-LLaVA: videos have an encoder like that of images.
  const bool has_videos = root.text_or("model_type", "") == "video_llava";
  return (has_videos ? 2 : 1) * encoder.params +
         Projector(root, section, text, encoder.width, hidden_dim).params();
}

// Codes of images that the model writes, too: two layers and a head.
std::int64_t head_of_codes(const JsonSection& section) {
  AnyKeys keys(section);
  const std::int64_t width = std::min(keys.number("projection_dim"), kMaxEncoderWidth);
  return 2 * width * width + keys.number("num_embeddings") *
                                 (width > 0 ? keys.number("image_token_embed_dim", width) : 0);
}

}  // namespace

std::int64_t tower_params(const JsonSection& root, const JsonSection& text,
                          std::int64_t hidden_dim) {
  std::int64_t params = 0;
  for (const char* name :
       {"vision_config", "audio_config", "vision_tower_config", "audio_encoder_config",
        "speech_config", "vit_config", "high_res_vision_config", "vision_encoder_config"}) {
    if (const auto section = root.section(name))
      params += tower_of(root, *section, text, hidden_dim);
  }
  // Phi-4-multimodal's own file names what it processes images with, and does not describe it: a
  // SigLIP of 27 layers.
  if (const auto sounds = root.section("audio_processor")) {
    if (const auto section = sounds->section("config")) {
      params += tower_of(root, *section, text, hidden_dim);
    }
    constexpr std::int64_t kSiglip = 412'948'224;
    params += kSiglip + (1152 + hidden_dim) * hidden_dim;
  }
  if (const auto codes = root.section("vq_config")) {
    params += codebook_params(*codes) + head_of_codes(*codes);
  }
  const auto thinker = root.section("thinker_config");
  return thinker ? params + tower_params(*thinker, text, hidden_dim) : params;
}

}  // namespace metronome
