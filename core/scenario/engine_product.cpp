// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/engine_product.h"

#include <algorithm>

#include "core/config/config_node.h"
#include "core/config/config_reader.h"

namespace metronome {
namespace {

std::vector<EngineProduct>& products() {
  static std::vector<EngineProduct> all;
  return all;
}

}  // namespace

void register_engine(const EngineProduct& product) {
  for (const PolicyInfo& policy : product.policies) register_policy(policy);
  products().push_back(product);
}

std::span<const EngineProduct> all_engines() { return products(); }

const EngineProduct& product_of(std::string_view policy) {
  for (const EngineProduct& product : products()) {
    const auto has_name = [policy](const PolicyInfo& info) { return info.name == policy; };
    if (std::any_of(product.policies.begin(), product.policies.end(), has_name)) return product;
  }
  static constexpr EngineProduct kOurs = {};
  return kOurs;
}

void fail_setting(const ConfigNode& source, const std::string& key, const std::string& message) {
  const ConfigNode* node = source.find_path(key);
  if (node == nullptr) node = source.find(std::string_view(key).substr(0, key.find('.')));
  fail_config(node == nullptr ? source.where : node->where, key, message);
}

}  // namespace metronome
