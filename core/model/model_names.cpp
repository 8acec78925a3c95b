// SPDX-License-Identifier: Apache-2.0
#include "core/model/model_names.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "core/base/names.h"
#include "core/config/catalogue.h"
#include "core/config/config_node.h"

namespace metronome {

extern const std::string_view kModelsYaml;             // core/model/models.yaml
extern const std::string_view kModelRepositoriesYaml;  // core/model/model_repositories.yaml
extern const std::string_view kModelNamesYaml;         // core/model/model_names.yaml

namespace {

const ConfigNode& repositories() {
  static const ConfigNode root =
      parse_config_text(kModelRepositoriesYaml, "model_repositories.yaml");
  return root;
}

// In lower case, with one sign between words.
std::string spelt(std::string_view name) {
  std::string result = lower_ascii(name);
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c == '_' || c == ':' || c == ' '; }, '-');
  return result;
}

// Without signs between words, but for the point of a version.
std::string joined(std::string_view spelt_name) {
  std::string result(spelt_name);
  std::erase(result, '-');
  return result;
}

// "Qwen/Qwen3-8B" without a leading "./" has an organisation.
struct NameParts {
  std::string organisation;  // empty: none
  std::string name;          // empty: it is no name but a path
};

NameParts parts_of(std::string_view name) {
  const std::size_t slash = name.find('/');
  if (slash == name.npos) return {"", spelt(name)};
  const std::string_view first = name.substr(0, slash);
  const bool is_path = first.empty() || first.front() == '.' || first.front() == '~' ||
                       name.find('/', slash + 1) != name.npos;
  if (is_path) return {};
  return {lower_ascii(first), spelt(name.substr(slash + 1))};
}

WeightFormat format_of(std::string_view word) {
  if (word == "none") return WeightFormat::Plain;
  const auto found = std::find(kChosenFormatNames.begin(), kChosenFormatNames.end(), word);
  return static_cast<WeightFormat>(found - kChosenFormatNames.begin());
}

struct KnownNames {
  std::map<std::string, std::string> repositories;  // whole, in lower case; the model of each
  std::map<std::string, std::string> names;         // joined; the model of each
  std::map<std::string, std::string> makers;        // of a model
  std::set<std::string> organisations;
  std::set<std::string> block_organisations;
  std::map<std::string, WeightFormat> formats;  // by the end of a name
  std::set<std::string> same_shape;

  KnownNames() {
    for (const std::string_view model : entry_names(kModelsYaml)) {
      names.emplace(joined(model), model);
    }
    for (const ConfigNode::Entry& entry : metronome::repositories().entries) {
      for (const ConfigNode& repository : entry.value.items) add(repository.scalar, entry.key);
    }
    const ConfigNode root = parse_config_text(kModelNamesYaml, "model_names.yaml");
    const auto add_words = [&root](const char* key, std::set<std::string>& words) {
      for (const ConfigNode& word : root.find(key)->items) words.insert(word.scalar);
    };
    add_words("organisations", organisations);
    add_words("fp8_in_blocks", block_organisations);
    add_words("same_shape", same_shape);
    for (const ConfigNode::Entry& entry : root.find("formats")->entries) {
      formats.emplace(entry.key, format_of(entry.value.scalar));
    }
  }

  void add(const std::string& repository, const std::string& model) {
    repositories.emplace(lower_ascii(repository), model);
    const NameParts parts = parts_of(repository);
    names.emplace(joined(parts.name), model);
    if (parts.organisation.empty()) return;
    organisations.insert(parts.organisation);
    makers.emplace(model, parts.organisation);
  }
};

const KnownNames& known_names() {
  static const KnownNames known;
  return known;
}

// The format that the end of a name says.
struct SaidFormat {
  std::string end;  // empty: nothing
  WeightFormat format = WeightFormat::Plain;
  bool is_gguf = false;  // a repository of GGUF files
  std::string context;   // "128k"; empty: the model's own
};

// Cuts one end off a name: the longest that says a format, else a word that changes no shape. The
// last format of a name counts. Returns false where there is none.
bool cut_end(std::string& name, SaidFormat& said) {
  const KnownNames& known = known_names();
  // A longer end has an earlier sign before it.
  for (std::size_t i = 1; i + 1 < name.size(); ++i) {
    if (name[i] != '-' && name[i] != '.') continue;
    const auto found = known.formats.find(name.substr(i + 1));
    if (found == known.formats.end()) continue;
    if (said.end.empty()) {
      said.end = found->first;
      said.format = found->second;
    }
    name.resize(i);
    return true;
  }
  const std::size_t last = name.rfind('-');
  if (last == name.npos || last == 0) return false;
  const std::string word = name.substr(last + 1);
  const bool is_date =
      word.size() == 4 && word.find_first_not_of("0123456789") == std::string::npos;
  const bool says_context = said.context.empty() && context_of_word(word) > 0;
  if (!is_date && !says_context && known.same_shape.count(word) == 0) return false;
  if (says_context) said.context = word;
  said.is_gguf = said.is_gguf || word == "gguf";
  name.resize(last);
  return true;
}

FoundModel named_by(NameParts parts) {
  const KnownNames& known = known_names();
  SaidFormat said;
  FoundModel named;
  while (!parts.name.empty()) {
    const auto found = known.names.find(joined(parts.name));
    if (found != known.names.end()) {
      named.model = found->second;
      break;
    }
    if (!cut_end(parts.name, said)) return {};
  }
  const bool is_known =
      parts.organisation.empty() || known.organisations.count(parts.organisation) > 0;
  if (said.end.empty() && said.is_gguf) {
    said.end = "gguf";
    said.format = WeightFormat::Int4;
    named.is_gguf = true;
  }
  if (named.model.empty() || (!is_known && said.end.empty())) return {};
  const std::string model = named.model;
  if (!said.context.empty()) named.model += "-" + said.context;
  if (said.end.empty()) return named;
  named.format = said.format;
  if (said.end == "fp8") {
    const auto maker = known.makers.find(model);
    const std::string by = !parts.organisation.empty()   ? parts.organisation
                           : maker == known.makers.end() ? std::string()
                                                         : maker->second;
    if (known.block_organisations.count(by) > 0) named.format = WeightFormat::Fp8Block;
  }
  return named;
}

}  // namespace

std::int64_t context_of_word(std::string_view word) {
  constexpr std::size_t kMostDigits = 5;
  if (!word.ends_with('k')) return 0;
  word.remove_suffix(1);
  const bool is_number = !word.empty() && word.size() <= kMostDigits && word.front() != '0' &&
                         word.find_first_not_of("0123456789") == word.npos;
  if (!is_number) return 0;
  std::int64_t thousands = 0;
  for (const char digit : word) thousands = 10 * thousands + (digit - '0');
  const std::int64_t tokens = thousands * 1024;
  return tokens <= kMostContextOfName ? tokens : 0;
}

FoundModel named_model(std::string_view name) {
  const KnownNames& known = known_names();
  const auto repository = known.repositories.find(lower_ascii(name));
  if (repository != known.repositories.end()) return {repository->second, {}};
  NameParts parts = parts_of(name);
  const FoundModel named = named_by(parts);
  if (!named.model.empty()) return named;
  // "Qwen_Qwen3-32B" has its maker in front.
  for (std::size_t dash = parts.name.find('-'); dash != std::string::npos;
       dash = parts.name.find('-', dash + 1)) {
    if (known.organisations.count(parts.name.substr(0, dash)) == 0) continue;
    parts.name.erase(0, dash + 1);
    return named_by(std::move(parts));
  }
  return {};
}

std::string nearest_model(std::string_view name) {
  const KnownNames& known = known_names();
  // A scenario's folder may precede the repository.
  std::string word = spelt(name.substr(name.rfind('/') + 1));
  SaidFormat said;
  while (cut_end(word, said)) continue;
  std::vector<std::string_view> names;
  for (const std::string_view model : entry_names(kModelsYaml)) names.push_back(model);
  for (const auto& [other, model] : known.names) names.push_back(other);
  const std::string_view nearest = nearest_numbered_name(word, names);
  return nearest.empty() ? "" : known.names.at(joined(nearest));
}

std::vector<std::string> repositories_of(std::string_view model) {
  std::vector<std::string> names;
  const ConfigNode* found = repositories().find(model);
  if (found == nullptr) return names;
  for (const ConfigNode& repository : found->items) names.push_back(repository.scalar);
  return names;
}

}  // namespace metronome
