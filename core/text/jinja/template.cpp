#include "core/text/jinja/template.h"

#include "core/base/error.h"
#include "core/base/names.h"
#include "core/text/jinja/evaluator.h"
#include "core/text/jinja/lexer.h"
#include "core/text/jinja/parser.h"
#include "core/text/utf8.h"

namespace metronome {

struct JinjaTemplate::Parsed {
  jinja::Body body;
};

JinjaTemplate::JinjaTemplate(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;
JinjaTemplate::~JinjaTemplate() = default;

JinjaTemplate JinjaTemplate::parse(std::string_view source, const std::string& name) {
  if (source.size() > kMaxTemplateBytes) {
    throw ConfigError(name + ": has " + std::to_string(source.size()) + " bytes; allowed: up to " +
                      std::to_string(kMaxTemplateBytes));
  }
  if (!is_utf8(source)) throw ConfigError(name + ": is not UTF-8; allowed: a Jinja template");
  auto parsed = std::make_unique<Parsed>();
  try {
    parsed->body = jinja::parse_template(source);
  } catch (const jinja::SyntaxError& error) {
    throw ConfigError(name + ": line " + std::to_string(error.line()) + ": " +
                      printable(error.what()));
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
    throw JinjaError(
        "the chat template, line " + std::to_string(evaluator.line()) + ": " + error.what(), false);
  }
}

}  // namespace metronome
