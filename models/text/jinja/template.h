// SPDX-License-Identifier: Apache-2.0
// Templates in the part of Jinja that published chat templates use, rendered as transformers'
// apply_chat_template does: jinja2's ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks,
// loop controls, the tag generation, and transformers' tojson and functions.
#pragma once

#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "models/text/jinja/limits.h"

namespace metronome {

// A template cannot render these variables. what() is one sentence for who sent them.
class JinjaError : public std::runtime_error {
 public:
  JinjaError(const std::string& message, bool is_raised)
      : std::runtime_error(message), is_raised_(is_raised) {}
  // By the template itself, with raise_exception; what() is its message.
  bool is_raised() const { return is_raised_; }

 private:
  bool is_raised_;
};

// Immutable: several threads may render at once.
class JinjaTemplate {
 public:
  // Throws ConfigError, one line with `name`, the template's line, what is wrong, and what is
  // allowed: for a template that jinja2 refuses, one that uses what is not supported here, and one
  // that is not UTF-8 or larger than kMaxTemplateBytes.
  static JinjaTemplate parse(std::string_view source, const std::string& name);

  JinjaTemplate(JinjaTemplate&&) noexcept;
  JinjaTemplate& operator=(JinjaTemplate&&) noexcept;
  ~JinjaTemplate();

  // Whether a loop or a filter for loops goes over the attribute, the item or the variable `name`.
  // This is how a template shows that it takes a message's content as a list of parts.
  bool loops_over(std::string_view name) const;
  // Whether the template's text contains a word, at any place.
  bool mentions(std::string_view word) const;

  // `variables` is an object. `now` is the local time of strftime_now. Throws JinjaError when the
  // template raises an exception, when a value has another type than the template needs, and when a
  // limit is passed.
  std::string render(const Json& variables, const std::tm& now,
                     const JinjaLimits& limits = {}) const;

 private:
  struct Parsed;
  explicit JinjaTemplate(std::unique_ptr<Parsed> parsed);

  std::unique_ptr<Parsed> parsed_;
};

}  // namespace metronome
