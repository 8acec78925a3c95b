// SPDX-License-Identifier: Apache-2.0
#include "models/text/tokenizer_json.h"

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/names.h"

namespace metronome {
namespace {

constexpr std::size_t kMaxDepth = 32;
constexpr const char* kMergesAllowed = "; allowed: \"left right\", or [\"left\", \"right\"]";

// Builds the JSON tree without vocabulary and merges.
class TokenizerReader final : public JsonEvents {
 public:
  TokenizerReader(const std::string& name, TokenizerJson& result) : name_(name), result_(result) {}

  void null() override { add(nullptr); }
  void boolean(bool value) override { add(value); }
  void integer(std::int64_t value) override { part_ == Part::Vocab ? add_id(value) : add(value); }
  void unsigned_integer(std::uint64_t value) override {
    if (part_ != Part::Vocab) return add(value);
    add_id(value < kMaxVocabSize ? static_cast<std::int64_t>(value) : kMaxVocabSize);
  }
  void number(double value) override { add(value); }

  void string(std::string_view value) override {
    if (part_ == Part::Merges) return add_merge(value);
    if (part_ != Part::Pair) return add(value);
    pair_.emplace_back(value);
  }

  void begin_object() override {
    if (part_ == Part::None && is_in_model() && key_ == "vocab") {
      if (result_.has_vocab) fail("model: vocab: appears twice; allowed: every key once");
      part_ = Part::Vocab;
      result_.has_vocab = true;
      return;
    }
    open(Json::object());
  }

  void key(std::string_view name) override {
    key_ = name;
    if (part_ == Part::None && open_.back()->contains(key_)) {
      fail(shown(key_) + ": appears twice; allowed: every key once");
    }
  }

  void end_object() override {
    if (part_ == Part::Vocab) {
      part_ = Part::None;
    } else {
      open_.pop_back();
    }
  }

  void begin_array() override {
    if (part_ == Part::Merges) {
      part_ = Part::Pair;
      pair_.clear();
      return;
    }
    if (part_ == Part::None && is_in_model() && key_ == "merges") {
      if (result_.has_merges) fail("model: merges: appears twice; allowed: every key once");
      part_ = Part::Merges;
      result_.has_merges = true;
      return;
    }
    open(Json::array());
  }

  void end_array() override {
    if (part_ == Part::Pair) {
      if (pair_.size() != 2) fail_merge("is not a pair");
      result_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      part_ = Part::Merges;
    } else if (part_ == Part::Merges) {
      part_ = Part::None;
    } else {
      open_.pop_back();
    }
  }

 private:
  enum class Part { None, Vocab, Merges, Pair };

  [[noreturn]] void fail(const std::string& message) const {
    throw ConfigError(name_ + ": " + message);
  }

  [[noreturn]] void fail_merge(const std::string& message) const {
    fail(fmt::format("model: merges[{}]: {}{}", result_.merges.size(), message, kMergesAllowed));
  }

  bool is_in_model() const { return open_.size() == 2 && is_model_; }

  // Adds a value at the current position of the tree and returns the stored value.
  Json& put(Json value) {
    if (open_.empty()) {
      result_.rest = std::move(value);
      return result_.rest;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return parent.back();
    }
    return parent[key_] = std::move(value);
  }

  void add(Json value) {
    if (part_ == Part::Vocab) {
      fail(fmt::format("model: vocab: {}: is not an id; allowed: whole numbers from 0 to {}",
                       shown(key_), kMaxVocabSize - 1));
    }
    if (part_ != Part::None) fail_merge("is not a string");
    put(std::move(value));
  }

  void open(Json value) {
    if (part_ != Part::None) add(nullptr);  // throws
    if (open_.size() == kMaxDepth) {
      fail(fmt::format("is nested too deeply; allowed: {} levels", kMaxDepth));
    }
    if (open_.size() == 1) is_model_ = key_ == "model";
    open_.push_back(&put(std::move(value)));
  }

  void add_id(std::int64_t id) {
    if (id < 0 || id >= kMaxVocabSize) return add(nullptr);  // throws
    result_.vocab.emplace_back(key_, static_cast<std::int32_t>(id));
  }

  void add_merge(std::string_view merge) {
    // Files from the time of GPT-2 begin with a format version.
    if (merge.starts_with("#version")) return;
    const std::size_t space = merge.find(' ');
    if (space == merge.npos || merge.find(' ', space + 1) != merge.npos) {
      fail_merge(shown(merge) + " is not a pair");
    }
    result_.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }

  const std::string& name_;
  TokenizerJson& result_;
  // Open containers. Only the last one grows, so none of them moves.
  std::vector<Json*> open_;
  std::string key_;
  bool is_model_ = false;  // the open container below the outermost is `model`
  Part part_ = Part::None;
  std::vector<std::string> pair_;
};

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& name) {
  // The parser treats a NUL byte as the end of its input.
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    throw ConfigError(
        fmt::format("{}: is not JSON, byte {} is NUL; allowed: a tokenizer.json", name, nul));
  }
  TokenizerJson result;
  TokenizerReader reader(name, result);
  try {
    parse_json(text, reader);
  } catch (const JsonError& error) {
    throw ConfigError(
        fmt::format("{}: is not JSON at byte {}; allowed: a tokenizer.json", name, error.byte()));
  }
  if (!result.rest.is_object()) {
    throw ConfigError(name + ": is not an object; allowed: a tokenizer.json");
  }
  return result;
}

std::string shown(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;
  const std::string quoted = "'" + printable(text.substr(0, kMaxShown));
  return quoted + (text.size() > kMaxShown ? "...'" : "'");
}

}  // namespace metronome
