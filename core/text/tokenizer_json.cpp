#include "core/text/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "core/base/names.h"
#include "core/error.h"

namespace metronome {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxDepth = 32;
constexpr const char* kMergesAllowed = "; allowed: \"left right\", or [\"left\", \"right\"]";

// Builds the tree, but for vocabulary and merges.
class Reader : public nlohmann::json_sax<Json> {
 public:
  Reader(const std::string& name, TokenizerJson& result) : name_(name), result_(result) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override {
    return part_ == Part::Vocab ? add_id(value) : add(value);
  }
  bool number_unsigned(std::uint64_t value) override {
    if (part_ != Part::Vocab) return add(value);
    return add_id(value < kMaxVocabSize ? static_cast<std::int64_t>(value) : kMaxVocabSize);
  }
  bool number_float(double value, const std::string& /*text*/) override { return add(value); }
  bool binary(Json::binary_t& /*value*/) override { return false; }

  bool string(std::string& value) override {
    if (part_ == Part::Merges) return add_merge(value);
    if (part_ == Part::Pair) {
      pair_.push_back(std::move(value));
      return true;
    }
    return add(std::move(value));
  }

  bool start_object(std::size_t /*size*/) override {
    if (part_ == Part::None && is_in_model() && key_ == "vocab") {
      if (result_.has_vocab) fail("model: vocab: is there twice; allowed: every key once");
      part_ = Part::Vocab;
      result_.has_vocab = true;
      return true;
    }
    return open(Json::object());
  }

  bool key(std::string& value) override {
    key_ = std::move(value);
    if (part_ == Part::None && open_.back()->contains(key_)) {
      fail(shown(key_) + ": is there twice; allowed: every key once");
    }
    return true;
  }

  bool end_object() override {
    if (part_ == Part::Vocab) {
      part_ = Part::None;
    } else {
      open_.pop_back();
    }
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (part_ == Part::Merges) {
      part_ = Part::Pair;
      pair_.clear();
      return true;
    }
    if (part_ == Part::None && is_in_model() && key_ == "merges") {
      if (result_.has_merges) fail("model: merges: is there twice; allowed: every key once");
      part_ = Part::Merges;
      result_.has_merges = true;
      return true;
    }
    return open(Json::array());
  }

  bool end_array() override {
    if (part_ == Part::Pair) {
      if (pair_.size() != 2) fail_merge("is no pair");
      result_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      part_ = Part::Merges;
    } else if (part_ == Part::Merges) {
      part_ = Part::None;
    } else {
      open_.pop_back();
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    fail("is not JSON at byte " + std::to_string(position) + "; allowed: a tokenizer.json");
  }

 private:
  enum class Part { None, Vocab, Merges, Pair };

  [[noreturn]] void fail(const std::string& message) const {
    throw ConfigError(name_ + ": " + message);
  }

  [[noreturn]] void fail_merge(const std::string& message) const {
    fail("model: merges[" + std::to_string(result_.merges.size()) + "]: " + message +
         kMergesAllowed);
  }

  bool is_in_model() const { return open_.size() == 2 && is_model_; }

  // Puts a value where the file has it; returns where it is.
  Json& put(Json value) {
    if (open_.empty()) {
      *result_.rest = std::move(value);
      return *result_.rest;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return parent.back();
    }
    return parent[key_] = std::move(value);
  }

  bool add(Json value) {
    if (part_ == Part::Vocab) {
      fail("model: vocab: " + shown(key_) + ": is no id; allowed: whole numbers from 0 to " +
           std::to_string(kMaxVocabSize - 1));
    }
    if (part_ != Part::None) fail_merge("is no text");
    put(std::move(value));
    return true;
  }

  bool open(Json value) {
    if (part_ != Part::None) add(nullptr);  // refuses
    if (open_.size() == kMaxDepth) {
      fail("is nested too deeply; allowed: " + std::to_string(kMaxDepth) + " levels");
    }
    if (open_.size() == 1) is_model_ = key_ == "model";
    open_.push_back(&put(std::move(value)));
    return true;
  }

  bool add_id(std::int64_t id) {
    if (id < 0 || id >= kMaxVocabSize) return add(nullptr);  // refuses
    result_.vocab.emplace_back(key_, static_cast<std::int32_t>(id));
    return true;
  }

  bool add_merge(const std::string& merge) {
    // Files of GPT-2's time begin with the version of their format.
    if (merge.starts_with("#version")) return true;
    const std::size_t space = merge.find(' ');
    if (space == merge.npos || merge.find(' ', space + 1) != merge.npos) {
      fail_merge(shown(merge) + " is no pair");
    }
    result_.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
    return true;
  }

  const std::string& name_;
  TokenizerJson& result_;
  // Containers that are open. A container grows only while it is the last, so none of them moves.
  std::vector<Json*> open_;
  std::string key_;
  bool is_model_ = false;  // the open container below the outermost is `model`
  Part part_ = Part::None;
  std::vector<std::string> pair_;
};

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& name) {
  // The parser takes a NUL byte for the end of its input.
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    throw ConfigError(name + ": is not JSON, byte " + std::to_string(nul) +
                      " is NUL; allowed: a tokenizer.json");
  }
  TokenizerJson result;
  result.rest = std::make_shared<Json>();
  Reader reader(name, result);
  Json::sax_parse(text.begin(), text.end(), &reader);
  if (!result.rest->is_object()) {
    throw ConfigError(name + ": is no object; allowed: a tokenizer.json");
  }
  return result;
}

std::string shown(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;
  const std::string quoted = "'" + printable(text.substr(0, kMaxShown));
  return quoted + (text.size() > kMaxShown ? "...'" : "'");
}

}  // namespace metronome
