// SPDX-License-Identifier: Apache-2.0
// The linear modules of a model by the names that its published files give them, and the lists by
// which such files name them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model_config.h"

namespace metronome {

struct ModelModule {
  std::vector<std::string> names;  // any of them; in lower case
  ModuleKind kind = ModuleKind::AttentionIn;
  std::int64_t num_params = 0;  // of an expert's module: those of all experts of the layer
  std::int64_t num_matrices = 1;
};

// Projections, MLPs, experts (the first stands for all of its layer), embeddings and the head of a
// model without a shape_error(). Routers are left out: no method quantises them.
std::vector<ModelModule> model_modules(const ModelConfig& model);

// A list of modules in a published file. An entry "re:REGEX" matches from a name's beginning, as
// Python's re.match. Others are names, upper and lower case alike.
class ModuleList {
 public:
  // How an entry without "re:" matches.
  enum class Names : std::uint8_t {
    Whole,  // that name alone
    Parts,  // the name, or any part of it between dots; * and ? stand for characters
  };

  explicit ModuleList(Names names) : names_(names) {}

  // Entries are numbered from 0. False: the regular expression is not of the ECMAScript grammar
  // (with (?i) in front, if at all); such an entry matches nothing.
  bool add(const std::string& entry);

  // The entry that one of the module's names matches: names before patterns, longer names before
  // shorter ones, earlier patterns before later ones.
  std::optional<std::size_t> find(const ModelModule& module) const;
  // The entry with just this text.
  std::optional<std::size_t> find_text(std::string_view text) const;

 private:
  struct CompiledRegex;  // <regex> takes long to compile
  struct Pattern {
    std::size_t entry = 0;
    std::shared_ptr<const CompiledRegex> regex;
    std::vector<std::string> globs;  // any of them
  };

  static bool matches(const Pattern& pattern, std::string_view name);
  std::optional<std::size_t> find_named(std::string_view name) const;

  Names names_;
  std::size_t num_entries_ = 0;
  std::map<std::string, std::size_t, std::less<>> named_;
  std::vector<Pattern> patterns_;
};

}  // namespace metronome
