// SPDX-License-Identifier: Apache-2.0
#include "core/model/any_encoders.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/any_keys.h"

namespace metronome {
namespace {

// Parameters of encoders of timm 1.0 that files name and do not describe.
struct NamedEncoder {
  std::string_view name;
  EncoderSize size;
};
constexpr NamedEncoder kNamedEncoders[] = {
    {"fastvit_mci3", {122'714'208, 3072}},
    {"mobilenetv5_300m_enc", {294'126'912, 2048}},
    {"vit_pe_core_large_patch14_336", {316'102'656, 1024}},
};

// Of a convolution over an area of kernel x kernel.
std::int64_t convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel) {
  return inputs * outputs * kernel * kernel;
}

// Reads one section.
class Encoder {
 public:
  explicit Encoder(const JsonSection& section) : section_(section), keys_(section) {
    constexpr const char* kHidden[] = {"embed_dim", "hidden_size",    "width",
                                       "d_model",   "vt_hidden_size", "attention_dim"};
    constexpr const char* kLayers[] = {
        "num_hidden_layers",     "depth",    "num_layers", "encoder_layers",
        "vt_num_hidden_layers",  "n_layers", "layers",     "num_blocks",
        "conf_num_hidden_layers"};
    constexpr const char* kHeads[] = {"num_attention_heads", "num_heads", "encoder_attention_heads",
                                      "attention_heads", "conf_num_attention_heads"};
    hidden_ = std::min(keys_.number(kHidden), kMaxEncoderWidth);
    layers_ = std::min<std::int64_t>(keys_.number(kLayers), 1024);
    const std::int64_t heads = std::max<std::int64_t>(keys_.number(kHeads, 1), 1);
    const std::int64_t kv_heads = keys_.number("num_key_value_heads", heads);
    const std::int64_t head_dim = keys_.number("head_dim", hidden_ / heads);
    const std::int64_t queries = std::min(heads * head_dim, kMaxEncoderWidth);
    attention_ = 2 * hidden_ * (queries + std::min(kv_heads * head_dim, kMaxEncoderWidth));
    width_ = mlp_width();
    // Pixtral's MLPs have gates with any activation.
    is_gated_ = section.text_or("hidden_act", "") == "silu" ||
                section.text_or("model_type", "") == "pixtral";
    mlp_ = (is_gated_ ? 3 : 2) * hidden_ * width_;
  }

  EncoderSize size() {
    if (hidden_ == 0 || layers_ == 0) return {};
    const std::int64_t positions = num_positions();
    std::int64_t params = inputs() + positions * hidden_ + layer_params() + tile_params(positions);
    // A layer that joins all vectors to one.
    if (keys_.is_true("vision_use_head")) params += 4 * hidden_ * hidden_ + mlp_;
    if (section_.find("global_attn_indexes") == nullptr) return {params, hidden_};
    return add_neck(params);
  }

 private:
  std::int64_t mlp_width() {
    // GLM-4.1V and its successors: MLPs are as wide as the language model, and the width that the
    // file has is that of the merger.
    const std::string type = section_.text_or("model_type", "");
    if (type.starts_with("glm") && !type.starts_with("glm_ocr") &&
        section_.find("out_hidden_size") != nullptr) {
      return keys_.number("out_hidden_size");
    }
    constexpr const char* kWidth[] = {"intermediate_size", "encoder_ffn_dim",
                                      "vt_intermediate_size", "mlp_dim", "linear_units"};
    const Json* const given = section_.find("mlp_ratio");
    const double ratio = given != nullptr && given->is_number() ? given->get<double>() : 4;
    return keys_.number(kWidth, static_cast<std::int64_t>((ratio > 0 && ratio < 64 ? ratio : 4) *
                                                          static_cast<double>(hidden_)));
  }

  // The first projection: of patches, or of the bands of a spectrum.
  std::int64_t inputs() {
    if (const std::int64_t bands = keys_.number("num_mel_bins"); bands > 0) {
      return 3 * hidden_ * (std::min(bands, kMaxEncoderWidth) + hidden_);
    }
    constexpr const char* kChannels[] = {"num_channels", "in_channels", "in_chans"};
    const std::int64_t patch = std::min<std::int64_t>(keys_.number("patch_size", 14), 256);
    const std::int64_t frames = std::min<std::int64_t>(keys_.number("temporal_patch_size", 1), 16);
    return std::min<std::int64_t>(keys_.number(kChannels, 3), 16) * patch * patch * frames *
           hidden_;
  }

  // Rows of the table of positions. Encoders with RoPE have none, unless the file says so.
  std::int64_t num_positions() {
    constexpr const char* kRows[] = {"num_position_embeddings", "num_patches",
                                     "max_source_positions"};
    if (keys_.has(kRows)) return keys_.number(kRows);
    if (section_.find("rope_parameters") != nullptr || section_.find("rope_theta") != nullptr) {
      return 0;
    }
    constexpr const char* kPixels[] = {"max_img_size", "image_size"};
    const std::int64_t patch = std::max<std::int64_t>(keys_.number("patch_size", 14), 1);
    const std::int64_t side = std::min<std::int64_t>(keys_.number(kPixels), 1 << 14) / patch;
    return side * side;
  }

  std::int64_t layer_params() {
    // Mllama: further layers with gates.
    const std::int64_t plain =
        layers_ + std::min<std::int64_t>(keys_.number("num_global_layers"), 1024);
    if (const std::int64_t convolutions = conformer_params(); convolutions > 0) {
      return plain * (attention_ + 2 * mlp_ + convolutions);
    }
    return plain * (attention_ + mlp_) + of_other_layers();
  }

  // A conformer has two MLPs, and between them convolutions with a gate; those over time are
  // small.
  std::int64_t conformer_params() {
    const std::int64_t square = hidden_ * hidden_;
    if (section_.find("conf_conv_kernel_size") != nullptr) return 4 * square;  // a position, too
    if (section_.find("ext_pw_out_channel") == nullptr) return 0;
    // Phi-4: MLPs have gates, and the last projection of the convolutions is one more.
    return 4 * square + 2 * hidden_ * width_;
  }

  // Mixers and experts of layers, in place of attention and a dense MLP.
  std::int64_t of_other_layers() {
    std::int64_t more = 0;
    const std::vector<std::string> mixers = keys_.words("layer_types");
    if (const auto convolutions = std::count(mixers.begin(), mixers.end(), "conv");
        convolutions > 0) {
      // LFM3: projections to three vectors and back; MLPs have gates.
      more += convolutions * (4 * hidden_ * hidden_ - attention_);
      more += is_gated_ ? 0 : layers_ * hidden_ * width_;
    }
    const std::vector<std::string> mlps = keys_.words("mlp_layer_types");
    const std::int64_t expert =
        3 * hidden_ * std::min(keys_.number("moe_intermediate_size", width_), kMaxEncoderWidth);
    const std::optional<JsonSection> layers = section_.section("per_layer_config");
    for (std::size_t i = 0; i < std::min<std::size_t>(mlps.size(), 1024); ++i) {
      if (mlps[i] != "sparse") continue;
      std::int64_t experts = keys_.number("num_local_experts");
      if (const auto own = layers ? layers->section(std::to_string(i).c_str()) : std::nullopt) {
        experts = own->integer_or("num_local_experts", experts);
      }
      more += std::min<std::int64_t>(experts, 4096) * expert - mlp_;
    }
    return more;
  }

  // Mllama: an image has tiles in one of several forms, each with embeddings of its own.
  std::int64_t tile_params(std::int64_t positions) {
    const Json* const forms = section_.find("supported_aspect_ratios");
    if (forms == nullptr || !forms->is_array()) return 0;
    const auto num_forms =
        static_cast<std::int64_t>(std::min<std::size_t>(forms->size(), 1024)) + 1;
    const std::int64_t tiles = std::min<std::int64_t>(keys_.number("max_num_tiles", 1), 1024);
    return num_forms * tiles * (positions + 3) * hidden_;
  }

  // SAM: convolutions behind the layers, which make an image smaller.
  EncoderSize add_neck(std::int64_t params) {
    constexpr std::int64_t kNeck = 256;
    std::vector<std::int64_t> channels = keys_.per_layer("downsample_channels", 2);
    if (channels.empty()) channels = {2 * kNeck, 4 * kNeck};
    params += hidden_ * kNeck + convolution(kNeck, kNeck, 3);
    std::int64_t width = kNeck;
    for (const std::int64_t next : channels) {
      params += convolution(width, std::min(next, kMaxEncoderWidth), 3);
      width = std::min(next, kMaxEncoderWidth);
    }
    return {params, width};
  }

  const JsonSection& section_;
  AnyKeys keys_;
  std::int64_t hidden_ = 0;
  std::int64_t layers_ = 0;
  std::int64_t width_ = 0;  // of an MLP
  std::int64_t attention_ = 0;
  std::int64_t mlp_ = 0;
  bool is_gated_ = false;
};

// Two convolutions, and a way around them where the number of channels changes.
std::int64_t residual_block(std::int64_t inputs, std::int64_t outputs) {
  return convolution(inputs, outputs, 3) + convolution(outputs, outputs, 3) +
         (inputs == outputs ? 0 : inputs * outputs);
}

// The blocks of stages of so many channels, and convolutions that halve or double the area
// between two stages.
std::int64_t stage_params(const std::vector<std::int64_t>& channels, std::int64_t blocks,
                          std::int64_t inputs) {
  std::int64_t params = 0;
  for (std::size_t stage = 0; stage < channels.size(); ++stage) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      params += residual_block(inputs, channels[stage]);
      inputs = channels[stage];
    }
    if (stage + 1 < channels.size()) params += convolution(inputs, inputs, 3);
  }
  return params;
}

}  // namespace

EncoderSize encoder_size(const JsonSection& section) {
  const std::string name = section.text_or("architecture", "");
  for (const NamedEncoder& encoder : kNamedEncoders) {
    if (encoder.name == name) return encoder.size;
  }
  // DeepSeek-OCR: SAM in front of another encoder.
  if (const auto inner = section.section("encoder_config")) {
    EncoderSize size = encoder_size(*inner);
    if (const auto first = section.section("sam_config")) {
      size.params += encoder_size(*first).params;
    }
    return size;
  }
  return Encoder(section).size();
}

// Chameleon's VQGAN and its successors.
std::int64_t codebook_params(const JsonSection& section) {
  AnyKeys keys(section);
  constexpr std::size_t kMaxStages = 16;
  const std::int64_t base = std::min<std::int64_t>(keys.number("base_channels"), 4096);
  const Json* const factors = section.find("channel_multiplier");
  if (base == 0 || factors == nullptr || !factors->is_array() || factors->empty() ||
      factors->size() > kMaxStages) {
    return 0;
  }
  const auto multiples =
      keys.per_layer("channel_multiplier", static_cast<std::int64_t>(factors->size()));
  std::vector<std::int64_t> channels;
  for (const std::int64_t factor : multiples)
    channels.push_back(base * std::min<std::int64_t>(factor, 64));
  if (channels.empty()) return 0;
  const std::int64_t blocks = std::min<std::int64_t>(keys.number("num_res_blocks", 2), 64);
  const std::int64_t widest = channels.back();
  const std::int64_t attention = 4 * widest * widest;
  const bool attends = section.find("attn_resolutions") != nullptr;  // in the last stage
  const std::int64_t middle = 2 * residual_block(widest, widest) + attention;
  const std::int64_t latent = keys.number("latent_channels", 256);
  const std::int64_t embedding = keys.number("embed_dim", latent);
  const std::int64_t codes =
      section.integer_or("codebook_size", section.integer_or("num_embeddings", 0));
  const bool is_double = keys.is_true("double_latent");
  std::int64_t params = convolution(keys.number("in_channels", 3), base, 3) +
                        stage_params(channels, blocks, base) + middle +
                        convolution(widest, is_double ? 2 * latent : latent, 3) +
                        (attends ? blocks * attention : 0) +
                        std::min<std::int64_t>(codes, 1 << 24) * embedding + 2 * latent * embedding;
  if (section.find("out_channels") != nullptr) {
    std::reverse(channels.begin(), channels.end());
    params += convolution(latent, widest, 3) + middle + stage_params(channels, blocks + 1, widest) +
              (attends ? (blocks + 1) * attention : 0);
  }
  return params;
}

}  // namespace metronome
