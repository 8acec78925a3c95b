// SPDX-License-Identifier: Apache-2.0
// The tree of a template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/text/jinja/operators.h"
#include "models/text/jinja/value.h"
#include "models/text/jinja/value_tests.h"

namespace metronome::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind : std::uint8_t {
  Constant,
  Name,
  Body,  // the text of the block that a filter is applied to
  Tuple,
  List,
  Dict,       // parts: key, value, key, value, ...
  Attribute,  // parts[0].name
  Item,       // parts[0][parts[1]]
  Slice,      // parts[0][parts[1]:parts[2]:parts[3]]; a bound may be nullptr
  Call,       // parts[0](the other parts, named)
  Filter,     // parts[0] | filter(the other parts, named)
  Test,       // parts[0] is test(the other parts, named)
  Not,
  Negative,
  Positive,
  And,
  Or,
  Conditional,  // parts[0] if parts[1] else parts[2]; parts[2] may be nullptr
  Compare,      // parts[0] operators[0] parts[1] operators[1] ...
  Concat,
  Arithmetic  // parts[0] operators[0] parts[1]
};

struct Expression {
  ExpressionKind kind = ExpressionKind::Constant;
  int line = 1;
  int depth = 1;  // of the tree below
  Value constant;
  std::string name;  // of Name, Attribute, Filter, Test
  std::vector<Operator> operators;
  std::vector<ExpressionPtr> parts;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr starred, double_starred;  // *x and **x of a call
  Callable filter = nullptr;
  ValueTest test = nullptr;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

// The target of an assignment: a name, an attribute of a namespace, or several targets.
struct Target {
  int line = 1;
  std::string name;       // "": several
  std::string attribute;  // "": the name itself
  std::vector<Target> targets;
};

// The parameters of a macro, or of what a call block gives.
struct Signature {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
};

enum class StatementKind : std::uint8_t {
  Data,
  Output,
  If,        // branches, otherwise
  For,       // target, value, condition, body, otherwise
  Set,       // target = value
  SetBlock,  // target = value, a filter of Body or nullptr, of body
  With,      // targets of `targets` = values
  Macro,
  CallBlock,    // value is the call; body is its caller
  FilterBlock,  // value, of body
  Scope,        // body, with variables of its own
  Break,
  Continue
};

struct Statement {
  StatementKind kind = StatementKind::Data;
  int line = 1;
  int depth = 1;
  std::string text;  // Data
  Target target;
  ExpressionPtr value, condition;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;  // With
  std::vector<std::pair<ExpressionPtr, Body>> branches;       // If
  Signature signature;                                        // Macro, CallBlock
  Body body, otherwise;
};

}  // namespace metronome::jinja
