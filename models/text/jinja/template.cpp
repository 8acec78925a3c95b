// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/template.h"

#include <algorithm>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/names.h"
#include "models/text/jinja/evaluator.h"
#include "models/text/jinja/lexer.h"
#include "models/text/jinja/parser.h"
#include "models/text/utf8.h"

namespace metronome {

struct JinjaTemplate::Parsed {
  std::string source;
  jinja::Body body;
};

namespace {

using jinja::Expression;
using jinja::ExpressionKind;
using jinja::ExpressionPtr;

bool is_named(const Expression& expression, std::string_view name) {
  switch (expression.kind) {
    case ExpressionKind::Name:
    case ExpressionKind::Attribute: return expression.name == name;
    case ExpressionKind::Item:
      return expression.parts[1]->kind == ExpressionKind::Constant &&
             expression.parts[1]->constant.is_string() &&
             expression.parts[1]->constant.text() == name;
    case ExpressionKind::Filter:
    case ExpressionKind::Slice: return is_named(*expression.parts[0], name);
    default: return false;
  }
}

// Whether a filter for lists is applied to `name` somewhere in an expression.
bool filters_entries_of(const Expression& expression, std::string_view name) {
  const auto is_found = [name](const ExpressionPtr& part) {
    return part != nullptr && filters_entries_of(*part, name);
  };
  const bool is_for_lists = expression.name == "map" || expression.name == "selectattr" ||
                            expression.name == "rejectattr";
  if (expression.kind == ExpressionKind::Filter && is_for_lists &&
      is_named(*expression.parts[0], name)) {
    return true;
  }
  return std::any_of(expression.parts.begin(), expression.parts.end(), is_found) ||
         std::any_of(expression.named.begin(), expression.named.end(),
                     [&](const auto& entry) { return is_found(entry.second); });
}

bool loops_in(const jinja::Body& body, std::string_view name) {
  return std::any_of(body.begin(), body.end(), [name](const auto& statement) {
    const bool is_loop = statement->kind == jinja::StatementKind::For;
    if (is_loop && is_named(*statement->value, name)) return true;
    if (statement->value && filters_entries_of(*statement->value, name)) return true;
    for (const auto& [condition, inner] : statement->branches) {
      if (loops_in(inner, name)) return true;
    }
    return loops_in(statement->body, name) || loops_in(statement->otherwise, name);
  });
}

}  // namespace

bool JinjaTemplate::loops_over(std::string_view name) const {
  return loops_in(parsed_->body, name);
}

bool JinjaTemplate::mentions(std::string_view word) const {
  return parsed_->source.find(word) != std::string::npos;
}

JinjaTemplate::JinjaTemplate(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;
JinjaTemplate::~JinjaTemplate() = default;

JinjaTemplate JinjaTemplate::parse(std::string_view source, const std::string& name) {
  if (source.size() > kMaxTemplateBytes) {
    throw ConfigError(
        fmt::format("{}: has {} bytes; allowed: up to {}", name, source.size(), kMaxTemplateBytes));
  }
  if (!is_utf8(source)) throw ConfigError(name + ": is not UTF-8; allowed: a Jinja template");
  auto parsed = std::make_unique<Parsed>();
  parsed->source = source;
  try {
    parsed->body = jinja::parse_template(source);
  } catch (const jinja::SyntaxError& error) {
    std::string message = printable(error.what());
    if (message.find("; allowed: ") == message.npos) message += "; allowed: what jinja2 takes";
    throw ConfigError(fmt::format("{}: line {}: {}", name, error.line(), message));
  }
  return JinjaTemplate(std::move(parsed));
}

std::string JinjaTemplate::render(const Json& variables, const std::tm& now,
                                  const JinjaLimits& limits) const {
  jinja::Runtime runtime(limits);
  jinja::Evaluator evaluator(runtime, now);
  try {
    for (const Json::Member& member : variables.items()) {
      evaluator.define(member.key, runtime.from_json(member.value));
    }
    return evaluator.render(parsed_->body);
  } catch (const jinja::RenderError& error) {
    if (error.is_raised()) throw JinjaError(error.what(), true);
    std::string message = fmt::format("the chat template, line {}: ", evaluator.line());
    append_replaced(error.what(), message);  // it may quote a part of a character
    throw JinjaError(message, false);
  }
}

}  // namespace metronome
