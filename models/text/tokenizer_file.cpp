// SPDX-License-Identifier: Apache-2.0
#include "models/text/tokenizer_file.h"

#include <fmt/core.h>
#include <functional>
#include <optional>
#include <stdexcept>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "models/text/tokenizer_json.h"
#include "models/text/utf8.h"

namespace metronome {
namespace {

// GPT-2's pattern, ByteLevel's default.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void refuse(const JsonPlace& place, const std::string& message,
                         const std::string& allowed) {
  place.fail(message + "; allowed: " + allowed);
}

std::string text_of(const JsonPlace& place) {
  if (!place.json().is_string()) refuse(place, "is not a string", "a string");
  return place.text();
}

bool truth_of(const JsonPlace& place) {
  if (!place.json().is_boolean()) refuse(place, "is not a boolean", "true, false");
  return place.truth();
}

std::int64_t number_of(const JsonPlace& place, std::int64_t max) {
  const std::string allowed = fmt::format("a whole number from 0 to {}", max);
  if (!place.json().is_number_integer()) refuse(place, "is not a whole number", allowed);
  const auto number = place.json().get<std::int64_t>();
  if (number < 0 || number > max) refuse(place, "is out of range", allowed);
  return number;
}

void for_each_of(const JsonPlace& place, const std::function<void(const JsonPlace&)>& visit) {
  if (!place.json().is_array()) refuse(place, "is not a list", "a list");
  place.for_each(visit);
}

bool truth_or(const JsonPlace& parent, const std::string& key, bool otherwise) {
  return parent.has(key) ? truth_of(parent.at(key)) : otherwise;
}

bool is_missing(const JsonPlace& parent, const std::string& key) {
  return !parent.has(key) || parent.at(key).is_null();
}

std::string text_or_empty(const JsonPlace& parent, const std::string& key) {
  return is_missing(parent, key) ? std::string() : text_of(parent.at(key));
}

[[noreturn]] void refuse_type(const JsonPlace& place, const std::string& allowed) {
  refuse(place.at("type"), shown(text_of(place.at("type"))) + " is not supported", allowed);
}

std::string type_of(const JsonPlace& place) {
  if (!place.json().is_object()) refuse(place, "is not an object", "an object with a type");
  return text_of(place.at("type"));
}

// {"String": ...} or {"Regex": ...}
SplitPattern read_pattern(const JsonPlace& place) {
  if (place.has("String")) {
    const std::string text = text_of(place.at("String"));
    if (text.empty()) refuse(place.at("String"), "is empty", "a string to search for");
    return SplitPattern::literal(text);
  }
  if (!place.has("Regex")) refuse(place, "is not a pattern", "String, Regex");
  const std::string pattern = text_of(place.at("Regex"));
  try {
    return SplitPattern::regex(pattern);
  } catch (const std::invalid_argument& error) {
    refuse(place.at("Regex"), error.what(), "a regular expression of PCRE2");
  }
}

void read_normalizer(const JsonPlace& place, std::vector<NormalizerStep>& steps) {
  if (place.is_null()) return;
  const std::string type = type_of(place);
  if (type == "Sequence") {
    for_each_of(place.at("normalizers"),
                [&](const JsonPlace& part) { read_normalizer(part, steps); });
    return;
  }
  NormalizerStep step;
  if (type == "NFC") {
    step.kind = NormalizerKind::Nfc;
  } else if (type == "Replace") {
    step.kind = NormalizerKind::Replace;
    step.pattern = read_pattern(place.at("pattern"));
    step.content = text_of(place.at("content"));
    if (place.at("pattern").has("Regex") && step.content.find('$') != step.content.npos) {
      refuse(place.at("content"), "refers to groups of the pattern", "text without $");
    }
  } else if (type == "Prepend") {
    step.kind = NormalizerKind::Prepend;
    step.content = text_of(place.at("prepend"));
  } else {
    refuse_type(place, "null, NFC, Replace, Prepend, Sequence");
  }
  steps.push_back(std::move(step));
}

SplitBehavior read_behavior(const JsonPlace& place) {
  const std::string text = text_of(place);
  if (text == "Isolated") return SplitBehavior::Isolated;
  if (text == "Removed") return SplitBehavior::Removed;
  if (text == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (text == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (text == "Contiguous") return SplitBehavior::Contiguous;
  refuse(place, shown(text) + " is not known",
         "Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
}

// Punctuation of `tokenizers`: Unicode's as of version 7, and the symbols of ASCII. The list at the
// front is what later versions added.
constexpr const char* kPunctuation =
    R"((?![\x{61d}\x{9fd}\x{a76}\x{c77}\x{c84}\x{1b7d}\x{1b7e}\x{2e43}-\x{2e4f})"
    R"(\x{2e52}-\x{2e5d}\x{10ead}\x{10f55}-\x{10f59}\x{10f86}-\x{10f89}\x{1144b}-\x{1144f})"
    R"(\x{1145a}\x{1145b}\x{1145d}\x{11660}-\x{1166c}\x{116b9}\x{1183b}\x{11944}-\x{11946})"
    R"(\x{119e2}\x{11a3f}-\x{11a46}\x{11a9a}-\x{11a9c}\x{11a9e}-\x{11aa2}\x{11c41}-\x{11c45})"
    R"(\x{11c70}\x{11c71}\x{11ef7}\x{11ef8}\x{11fff}\x{12ff1}\x{12ff2}\x{16e97}-\x{16e9a})"
    R"(\x{16fe2}\x{1e95e}\x{1e95f}])[\p{P}$+<=>^`|~\x{166d}\x{111c9}])";

// Words and what else stands between spaces: \w+|[^\w\s]+ with the word characters of Unicode's
// regular expressions (UTS #18, annex C).
std::string words_pattern() {
  const std::string word = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9})"
                           R"(\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
  return "[" + word + "]+|[^" + word + R"(\s]+)";
}

PreTokenizerStep split_at_spaces() {
  PreTokenizerStep step;
  step.pattern = SplitPattern::regex(R"(\s)");
  step.behavior = SplitBehavior::Removed;
  return step;
}

// The character and the scheme of a Metaspace, which is a pre-tokenizer or a decoder.
MetaspaceStep read_metaspace(const JsonPlace& place) {
  MetaspaceStep step;
  step.replacement = text_of(place.at("replacement"));
  if (step.replacement.empty() ||
      read_utf8(step.replacement).num_bytes != step.replacement.size()) {
    refuse(place.at("replacement"), shown(step.replacement) + " is not a character",
           "one character");
  }
  const std::string scheme =
      is_missing(place, "prepend_scheme") ? "always" : text_of(place.at("prepend_scheme"));
  if (scheme == "never") {
    step.scheme = PrependScheme::Never;
  } else if (scheme == "first") {
    step.scheme = PrependScheme::First;
  } else if (scheme != "always") {
    refuse(place.at("prepend_scheme"), shown(scheme) + " is not known", "never, first, always");
  }
  const bool adds_none =
      !is_missing(place, "add_prefix_space") && !truth_of(place.at("add_prefix_space"));
  if (adds_none && step.scheme != PrependScheme::Never) {
    refuse(place.at("add_prefix_space"), "contradicts prepend_scheme", "true");
  }
  return step;
}

void read_pre_tokenizer(const JsonPlace& place, TokenizerFile& file) {
  if (place.is_null()) return;
  const std::string type = type_of(place);
  if (type == "Sequence") {
    for_each_of(place.at("pretokenizers"),
                [&](const JsonPlace& part) { read_pre_tokenizer(part, file); });
    return;
  }
  if (file.is_byte_level) {
    refuse(place, "comes after ByteLevel", "ByteLevel as the last pre-tokenizer");
  }
  PreTokenizerStep step;
  if (type == "Split") {
    step.pattern = read_pattern(place.at("pattern"));
    step.behavior = read_behavior(place.at("behavior"));
    step.is_inverted = truth_or(place, "invert", false);
  } else if (type == "Digits") {
    step.pattern = SplitPattern::regex(R"(\p{N})");
    step.behavior = truth_or(place, "individual_digits", false) ? SplitBehavior::Isolated
                                                                : SplitBehavior::Contiguous;
  } else if (type == "Punctuation") {
    step.pattern = SplitPattern::regex(kPunctuation);
    if (place.has("behavior")) step.behavior = read_behavior(place.at("behavior"));
  } else if (type == "Whitespace") {
    step.pattern = SplitPattern::regex(words_pattern());
    step.behavior = SplitBehavior::Removed;
    step.is_inverted = true;
  } else if (type == "WhitespaceSplit") {
    step = split_at_spaces();
  } else if (type == "BertPreTokenizer") {
    file.pre_tokenizer.push_back(split_at_spaces());
    step.pattern = SplitPattern::regex(kPunctuation);
  } else if (type == "Metaspace") {
    step.metaspace = read_metaspace(place);
    if (truth_or(place, "split", true)) {
      step.pattern = SplitPattern::literal(step.metaspace->replacement);
      step.behavior = SplitBehavior::MergedWithNext;
    }
  } else if (type == "ByteLevel") {
    file.is_byte_level = true;
    step.adds_prefix_space = truth_of(place.at("add_prefix_space"));
    if (truth_or(place, "use_regex", true)) step.pattern = SplitPattern::regex(kByteLevelPattern);
  } else {
    refuse_type(place,
                "null, Split, ByteLevel, Digits, Metaspace, Punctuation, Whitespace, "
                "WhitespaceSplit, BertPreTokenizer, Sequence");
  }
  file.pre_tokenizer.push_back(std::move(step));
}

// Appends the ids of a template's special token.
void read_template_token(const JsonPlace& processor, const JsonPlace& token,
                         std::vector<TokenId>& ids) {
  const std::string name = text_of(token.at("id"));
  const JsonPlace tokens = processor.at("special_tokens");
  if (!tokens.has(name)) {
    refuse(token.at("id"), shown(name) + " is not in special_tokens", "one of them");
  }
  const Json* list = tokens.json().at(name).find("ids");
  if (list == nullptr) refuse(tokens, shown(name) + " has no ids", "an object with ids");
  if (!list->is_array()) refuse(tokens, shown(name) + ": ids: is not a list", "a list");
  for (const Json& id : *list) {
    if (!id.is_number_integer() || id.get<std::uint64_t>() >= std::uint64_t{kMaxVocabSize}) {
      refuse(tokens, shown(name) + ": ids: contains a value that is not an id",
             fmt::format("whole numbers from 0 to {}", kMaxVocabSize - 1));
    }
    ids.push_back(TokenId{id.get<std::int32_t>()});
  }
}

void read_template(const JsonPlace& place, TokenizerFile& file) {
  constexpr const char* kAllowed = "SpecialToken, and once the Sequence A";
  std::vector<TokenId> before, behind;
  bool has_text = false;
  for_each_of(place.at("single"), [&](const JsonPlace& part) {
    if (part.has("SpecialToken")) {
      read_template_token(place, part.at("SpecialToken"), has_text ? behind : before);
    } else if (part.has("Sequence") && text_of(part.at("Sequence").at("id")) == "A" && !has_text) {
      has_text = true;
    } else {
      refuse(part, "is not supported", kAllowed);
    }
  });
  if (!has_text) refuse(place.at("single"), "omits the text", kAllowed);
  file.prefix.insert(file.prefix.begin(), before.begin(), before.end());
  file.suffix.insert(file.suffix.end(), behind.begin(), behind.end());
}

void read_post_processor(const JsonPlace& place, TokenizerFile& file) {
  if (place.is_null()) return;
  const std::string type = type_of(place);
  if (type == "Sequence") {
    for_each_of(place.at("processors"),
                [&](const JsonPlace& part) { read_post_processor(part, file); });
  } else if (type == "TemplateProcessing") {
    read_template(place, file);
  } else if (type != "ByteLevel") {  // ByteLevel changes offsets only
    refuse_type(place, "null, ByteLevel, TemplateProcessing, Sequence");
  }
}

// Reads decoders in order: first steps on each token, then byte fallback, then steps on the whole
// text.
class DecoderReader {
 public:
  explicit DecoderReader(TokenizerFile& file) : file_(file) {}

  void read(const JsonPlace& place) {
    const std::string type = type_of(place);
    if (type == "Sequence") {
      for_each_of(place.at("decoders"), [&](const JsonPlace& part) { read(part); });
    } else if (type == "ByteLevel") {
      if (stage_ != Stage::Begin) refuse(place, "is not the only decoder", "ByteLevel alone");
      stage_ = Stage::End;
      file_.decodes_byte_level = true;
    } else if (type == "Metaspace") {
      if (stage_ != Stage::Begin) refuse(place, "is not the only decoder", "Metaspace alone");
      stage_ = Stage::End;
      const MetaspaceStep step = read_metaspace(place);
      file_.token_decoder.push_back({step.replacement, " ", 0, 0});
      file_.decode_rule.has_first_token = step.scheme != PrependScheme::Never;
      file_.first_token_decoder.push_back({step.replacement, "", 0, 0});
    } else if (type == "Replace" && stage_ <= Stage::Tokens) {
      stage_ = Stage::Tokens;
      const JsonPlace pattern = place.at("pattern");
      if (!pattern.has("String")) refuse(pattern, "is not supported", "String");
      const std::string text = text_of(pattern.at("String"));
      if (text.empty()) refuse(pattern.at("String"), "is empty", "a string to search for");
      file_.token_decoder.push_back({text, text_of(place.at("content")), 0, 0});
    } else if (type == "ByteFallback" && stage_ <= Stage::Tokens) {
      stage_ = Stage::Bytes;
      file_.decode_rule.has_byte_runs = true;
    } else if (type == "Fuse" && stage_ <= Stage::Text) {
      stage_ = Stage::Text;
    } else if (type == "Strip" && (stage_ <= Stage::Tokens || stage_ == Stage::Text)) {
      read_strip(place);
    } else if (type == "Replace" || type == "ByteFallback" || type == "Fuse" || type == "Strip") {
      refuse(place, type + " is not supported here",
             "Replace and Strip, ByteFallback, Fuse, Strip in this order");
    } else {
      refuse_type(place, "ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip, Sequence");
    }
  }

 private:
  enum class Stage { Begin, Tokens, Bytes, Text, End };

  void read_strip(const JsonPlace& place) {
    constexpr std::int64_t kMaxStripped = 1000;
    const std::string content = text_of(place.at("content"));
    if (content.empty()) refuse(place.at("content"), "is empty", "one character");
    const std::int64_t num_first = number_of(place.at("start"), kMaxStripped);
    const std::int64_t num_last = number_of(place.at("stop"), kMaxStripped);
    if (stage_ != Stage::Text) {
      stage_ = Stage::Tokens;
      file_.token_decoder.push_back({"", content, num_first, num_last});
      return;
    }
    if (num_last != 0) refuse(place.at("stop"), "cannot be applied before the text ends", "0");
    file_.decode_rule.stripped = content;
    file_.decode_rule.num_stripped = num_first;
    stage_ = Stage::End;
  }

  TokenizerFile& file_;
  Stage stage_ = Stage::Begin;
};

void read_model(const JsonPlace& model, TokenizerFile& file) {
  if (!model.json().is_object()) refuse(model, "is not an object", "a BPE model");
  if (model.has("type") && text_of(model.at("type")) != "BPE") refuse_type(model, "BPE");
  if (!is_missing(model, "dropout") &&
      !(model.at("dropout").json().is_number() && model.at("dropout").json() == 0)) {
    refuse(model.at("dropout"), "makes encodings random", "null, 0");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_or_empty(model, key).empty()) refuse(model.at(key), "is not supported", "null, \"\"");
  }
  file.unknown = text_or_empty(model, "unk_token");
  file.fuse_unknown = truth_or(model, "fuse_unk", false);
  file.byte_fallback = truth_or(model, "byte_fallback", false);
  file.ignore_merges = truth_or(model, "ignore_merges", false);
}

AddedToken read_added_token(const JsonPlace& place) {
  AddedToken token;
  token.id = TokenId{static_cast<std::int32_t>(number_of(place.at("id"), kMaxVocabSize - 1))};
  token.content = text_of(place.at("content"));
  token.is_special = truth_of(place.at("special"));
  token.is_normalized = truth_or(place, "normalized", !token.is_special);
  token.is_single_word = truth_or(place, "single_word", false);
  token.strips_left = truth_or(place, "lstrip", false);
  token.strips_right = truth_or(place, "rstrip", false);
  return token;
}

}  // namespace

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& name) {
  TokenizerJson json = parse_tokenizer_json(text, name);
  const JsonPlace root(name, json.rest);
  TokenizerFile file;
  if (!root.has("model")) refuse(root, "model: is missing", "a BPE model");
  read_model(root.at("model"), file);
  if (!json.has_vocab) refuse(root.at("model"), "vocab: is missing", "an object of ids");
  if (!json.has_merges) refuse(root.at("model"), "merges: is missing", "a list of pairs");
  if (root.has("added_tokens")) {
    for_each_of(root.at("added_tokens"), [&](const JsonPlace& place) {
      AddedToken token = read_added_token(place);
      if (!token.content.empty()) file.added_tokens.push_back(std::move(token));
    });
  }
  if (root.has("normalizer")) read_normalizer(root.at("normalizer"), file.normalizer);
  if (root.has("pre_tokenizer")) read_pre_tokenizer(root.at("pre_tokenizer"), file);
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), file);
  if (is_missing(root, "decoder")) {
    refuse(root, "decoder: is missing", "ByteLevel, Metaspace, or a Sequence with Fuse");
  }
  DecoderReader(file).read(root.at("decoder"));
  file.vocab.reserve(json.vocab.size());
  for (auto& [token, id] : json.vocab) file.vocab.emplace_back(std::move(token), TokenId{id});
  file.merges = std::move(json.merges);
  if (file.is_byte_level && file.byte_fallback) {
    refuse(root.at("model"), "byte_fallback: cannot be true with ByteLevel", "false");
  }
  return file;
}

}  // namespace metronome
