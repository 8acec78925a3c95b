// SPDX-License-Identifier: Apache-2.0
// The renderer of chat templates against jinja2 (tests/fixtures/templates/golden.json, written by
// tools/chat_parity: null where jinja2 fails), and its limits.
#include <ctime>
#include <string>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/names.h"
#include "models/text/jinja/template.h"
#include "models/text/utf8.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/places.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

Json read_golden() {
  return read_json_file(std::string(source_dir()) + "/tests/fixtures/templates/golden.json",
                        "the golden file");
}

// Of a time as [year, month, day, hour, minute, second].
std::tm time_of(const Json& fields) {
  std::tm time{};
  time.tm_year = fields.at(0).get<int>() - 1900;
  time.tm_mon = fields.at(1).get<int>() - 1;
  time.tm_mday = fields.at(2).get<int>();
  time.tm_hour = fields.at(3).get<int>();
  time.tm_min = fields.at(4).get<int>();
  time.tm_sec = fields.at(5).get<int>();
  timegm(&time);
  return time;
}

std::string render(const std::string& source, const Json& variables = Json::object(),
                   const JinjaLimits& limits = {}) {
  return JinjaTemplate::parse(source, "t").render(variables, std::tm{}, limits);
}

std::string failure(const std::string& source, const Json& variables = Json::object(),
                    const JinjaLimits& limits = {}) {
  return error_of<JinjaError>([&] { render(source, variables, limits); });
}

std::string refusal(const std::string& source) {
  const std::string message = error_of<ConfigError>([&] { JinjaTemplate::parse(source, "t"); });
  CHECK(message == printable(message));
  return message;
}

std::string repeated(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

}  // namespace

TEST_CASE("templates render as jinja2 renders them", "[jinja]") {
  const Json golden = read_golden();
  const std::tm now = time_of(golden.at("now"));
  REQUIRE(golden.at("cases").size() >= 300);
  int num_texts = 0;
  for (const Json& entry : golden.at("cases")) {
    const Json& variables =
        entry.at("variables").is_null() ? golden.at("variables") : entry.at("variables");
    CAPTURE(entry.at("template").string(), variables.dump());
    const auto rendered = [&] {
      return JinjaTemplate::parse(entry.at("template").string(), "t").render(variables, now);
    };
    if (entry.at("text").is_null()) {
      CHECK_THROWS_AS(rendered(), std::runtime_error);
    } else {
      CHECK(rendered() == entry.at("text").string());
      ++num_texts;
    }
  }
  CHECK(num_texts >= 200);
}

TEST_CASE("a template's exception has the template's words", "[jinja]") {
  bool is_raised = false;
  try {
    render("{{ raise_exception('Roles must alternate') }}");
  } catch (const JinjaError& error) {
    is_raised = error.is_raised();
    CHECK(std::string(error.what()) == "Roles must alternate");
  }
  CHECK(is_raised);
  CHECK(failure("a\n{{ x.y }}") == "the chat template, line 2: 'x' is undefined");
  CHECK(failure("{{ [].append(1) }}") ==
        "the chat template, line 1: access to attribute 'append' of 'list' object is unsafe.");
}

TEST_CASE("a message is UTF-8 although it quotes a part of a character", "[jinja]") {
  CHECK(is_utf8(failure("{{ '%\ue71d' % 1 }}")));
}

TEST_CASE("what cannot be rendered is refused by name when a template is parsed", "[jinja]") {
  CHECK(contains(refusal("a\n\n{{ x | urlize }}"),
                 "t: line 3: the filter urlize is not supported; "
                 "allowed: abs, "));
  CHECK(contains(refusal("{{ x is pretty }}"),
                 "t: line 1: the test pretty is not supported; "
                 "allowed: boolean, "));
  CHECK(contains(refusal("{% include 'x' %}"), "the tag include is not supported; allowed: if, "));
  CHECK(contains(refusal("{{ x.encode('utf-8') }}"), "the method encode() is not supported"));
  CHECK(contains(refusal("{{ cycler(1) }}"), "the function cycler() is not supported"));
  CHECK(contains(refusal("{% for x in y recursive %}{% endfor %}"), "a recursive for"));
  CHECK(contains(refusal("{{ '\\N{DASH}' }}"), "an escape \\N"));
  CHECK(contains(refusal("{% if x %}"), "a block has no end; allowed: {% endif %}"));
  CHECK(contains(refusal("{{ \xff }}"), "is not UTF-8"));
  CHECK(contains(refusal(std::string(kMaxTemplateBytes + 1, 'a')), "allowed: up to"));
}

TEST_CASE("an unknown name in a branch is an error when it runs", "[jinja]") {
  const auto renders = [](const char* source) {
    return JinjaTemplate::parse(source, "t").render(Json{{"x", "[1]"}}, std::tm{});
  };
  const auto breaks = [&](const char* source) {
    return error_of<JinjaError>([&] { renders(source); });
  };
  CHECK(renders("{% if not x %}{{ x | pretty }}{{ x is pretty }}{% endif %}a") == "a");
  CHECK(renders("{% if x %}a{% else %}{{ x | pretty }}{% endif %}") == "a");
  CHECK(renders("{% if x %}a{% elif x is pretty %}{% endif %}") == "a");
  CHECK(renders("{{ 'a' if x else x | pretty | my.own }}") == "a");
  CHECK(renders("{% if not x %}{% for y in x %}{{ y | urlize }}{{ y.encode() }}{{ lipsum() }}"
                "{% endfor %}{% endif %}a") == "a");
  CHECK(contains(breaks("{% if x %}\n{{ x | pretty }}{% endif %}"),
                 "line 2: No filter named 'pretty' found; allowed: abs, "));
  CHECK(contains(breaks("{% if x is pretty %}{% endif %}"),
                 "line 1: No test named 'pretty' found; allowed: boolean, "));
  // jinja2 looks for names in loops, macros and blocks when it compiles, also inside an `if`.
  for (const char* source :
       {"{% if x %}{% for y in x %}{{ y | pretty }}{% endfor %}{% endif %}",
        "{% if x %}{% macro m() %}{{ x is pretty }}{% endmacro %}{% endif %}",
        "{% if x %}{% set y | pretty %}{% endset %}{% endif %}",
        "{% if x %}{% filter pretty %}{% endfilter %}{% endif %}",
        "{% for y in x if y is pretty %}{% endfor %}", "{{ x and x | pretty }}"}) {
    INFO(source);
    CHECK(contains(refusal(source), "pretty is not supported; allowed: "));
  }
}

TEST_CASE("filters of other renderers", "[jinja]") {
  const auto renders = [](const std::string& expression) {
    return JinjaTemplate::parse("{{ " + expression + " }}", "t")
        .render(Json{{"x", R"({"a": [1, null], "b": "c"})"}, {"d", Json{{"k", 5}}}}, std::tm{});
  };
  CHECK(renders("(x | from_json).a[0]") == "1");
  CHECK(renders("x | from_json | tojson") == R"({"a": [1, null], "b": "c"})");
  CHECK(renders("'a,b' | split(',') | join('-')") == "a-b");
  CHECK(renders("'  a ' | lstrip ~ '|'") == "a |");
  CHECK(renders("'abc' | startswith('a')") == "True");
  CHECK(renders("d | keys | list ~ d | get('k')") == "['k']5");
  CHECK(contains(error_of<JinjaError>([&] { renders("'{' | from_json"); }),
                 "from_json: the text is not JSON: "));
  CHECK(contains(error_of<JinjaError>([&] { renders("d | from_json"); }),
                 "from_json: must be a text, not dict"));
  CHECK(contains(error_of<JinjaError>([&] { renders("d | split(',')"); }),
                 "the filter split needs a value with this method, not dict"));
}

TEST_CASE("nesting has a limit, in a template and in its values", "[jinja]") {
  const int deep = 5000;
  for (const std::string& source :
       {"{{ " + repeated("(", deep) + "1" + repeated(")", deep) + " }}",
        "{{ " + repeated("[", deep) + repeated("]", deep) + " }}",
        "{{ " + repeated("{1:", deep) + "1" + repeated("}", deep) + " }}",
        "{{ " + repeated("not ", deep) + "x }}", "{{ " + repeated("-", deep) + "1 }}",
        "{{ x" + repeated(".y", deep) + " }}", "{{ x" + repeated("|abs", deep) + " }}",
        "{{ 1" + repeated(" + 1", deep) + " }}", "{{ 1" + repeated(" if 1 else 1", deep) + " }}",
        repeated("{% if 1 %}", deep) + repeated("{% endif %}", deep),
        "{% set " + repeated("(", deep) + "x" + repeated(")", deep) + " = 1 %}"}) {
    CHECK(contains(refusal(source), "nested too deeply; allowed: 100 levels"));
  }
  CHECK(contains(failure("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "calls itself too"));
  CHECK(contains(failure("{% set n = namespace(x=1) %}{% for i in range(500) %}"
                         "{% set n.x = [n.x] %}{% endfor %}{{ n.x }}"),
                 "nested too deeply"));
  CHECK(contains(failure("{{ 'a'|map(" + repeated("'map',", 20000) + "'list')|list }}"),
                 "calls itself too"));
  // A chain of loops, each kept by the next.
  CHECK(contains(failure("{% set n = namespace(l=0) %}{% for i in range(100000) %}"
                         "{% for x in [n.l] %}{% set n.l = loop %}{% endfor %}{% endfor %}"),
                 "a loop in a list or dictionary; allowed: a loop in a variable"));
  CHECK(contains(failure("{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}"), "a loop in"));
  CHECK(contains(failure("{% for i in [1] %}{{ [loop.cycle] }}{% endfor %}"), "a loop in"));
  Json json = 1;
  for (int i = 0; i < 200; ++i) json = Json::array({json});
  CHECK(contains(failure("{{ x }}", Json{{"x", json}}), "nested too deeply"));
}

TEST_CASE("many variables are found like few", "[jinja]") {
  std::string source = "{% set v0 = 0 %}";
  for (int i = 1; i < 3000; ++i) {
    const std::string name = "v" + std::to_string(i);
    source += "{% set " + name + " = v" + std::to_string(i - 1) + " + 1 %}{% if " + name +
              " != " + std::to_string(i) + " %}!{% endif %}";
  }
  CHECK(render(source + "{% set v7 = 'seven' %}{{ v2999 }} {{ v7 }} {{ v }}") == "2999 seven ");
  CHECK(render("{% set a = 1 %}{% for i in range(40) %}{% set a = i %}{% endfor %}{{ a }}") == "1");
}

TEST_CASE("powers are Python's", "[jinja]") {  // as jinja2 3.1.6 writes them
  CHECK(render("{{ (-3) ** -2 }} {{ (-2) ** -3 }} {{ -3 ** -2 }} {{ 2 ** -1 }} {{ (-2) ** 3 }}") ==
        "0.1111111111111111 -0.125 0.1111111111111111 0.5 -8");
  CHECK(render("{{ (-2.0) ** 3 }} {{ (-8.0) ** -1 }} {{ (-2.0) ** (1e308 * 10) }}") ==
        "-8.0 -0.125 inf");
  CHECK(contains(failure("{{ 0 ** -1 }}"), "cannot be raised to a negative power"));
  CHECK(contains(failure("{{ (-2) ** -0.5 }}"), "complex number"));
}

TEST_CASE("steps, outputs and values have limits", "[jinja]") {
  CHECK(contains(failure("{{ 'a' * 10 ** 9 }}"), "too much memory"));
  CHECK(contains(failure("{{ [1] * 10 ** 18 }}"), "too much memory"));
  CHECK(contains(failure("{{ range(10 ** 9) }}"), "Range too big"));
  CHECK(contains(failure("{{ 2 ** 64 }}"), "does not fit into 64 bits"));
  CHECK(JinjaLimits{}.max_steps == 20'000'000);
  CHECK(contains(failure("{% for i in range(100000) %}{% for j in range(100000) %}"
                         "{% endfor %}{% endfor %}",
                         {}, {.max_steps = 300'000}),
                 "too many steps; allowed: 300000"));
  const JinjaLimits small{.max_output_bytes = 1000};
  CHECK(contains(failure("{% for i in range(200) %}abcdef{% endfor %}", {}, small),
                 "output is too long; allowed: 1000 bytes"));
  CHECK(contains(failure("{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}"
                         "{% set n.x = n.x + n.x %}{% endfor %}"),
                 "too much memory"));
  CHECK(contains(failure("{% set n = namespace(x=[1]) %}{% for i in range(60) %}"
                         "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}"),
                 "too "));
}

TEST_CASE("a namespace that contains itself does not stay in memory", "[jinja]") {
  CHECK(render("{% set n = namespace(x=1) %}{% set n.x = n %}{% set n.y = [n] %}a") == "a");
}

}  // namespace TEST_FILE
