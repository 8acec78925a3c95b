// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/base/json_place.h"
#include "core/base/python_json.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

TEST_CASE("Python's words for numbers are read and written", "[json]") {
  const Json json = parse_python_json(R"({"a": [1, NaN, Infinity, -Infinity], "b": "NaN \" NaN"})");
  CHECK(std::isnan(json["a"][1].get<double>()));
  CHECK(json["a"][2].get<double>() == INFINITY);
  CHECK(json["a"][3].get<double>() == -INFINITY);
  CHECK(json["b"].string() == "NaN \" NaN");
  CHECK(python_json_line(json) == R"({"a":[1,NaN,Infinity,-Infinity],"b":"NaN \" NaN"})");
  CHECK(json.dump() == R"({"a":[1,null,null,null],"b":"NaN \" NaN"})");
  CHECK(parse_python_json("Infinity").get<double>() == INFINITY);
  for (const char* bad : {"NaNs", "xNaN", "{NaN: 1}", "[Infinity1]", "-NaN", "--Infinity", "nan",
                          "[\"\x7f\", NaN]", "Infinit"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_python_json(bad), JsonError);
  }
}

TEST_CASE("a file has each key of an object once", "[json]") {
  const auto error = [](const std::string& text) {
    return error_of([&] { static_cast<void>(parse_json(text, "f.json")); });
  };
  CHECK(error(R"({"a": {"b": [{"c": 1, "c": 1}]}})") ==
        "f.json: a.b[0].c: appears twice; allowed: every key once");
  CHECK(error(R"({"a": NaN, "a": 1})") == "f.json: a: appears twice; allowed: every key once");
  CHECK(parse_python_json(R"({"a": 1, "a": NaN})", {}).size() == 1);
}

TEST_CASE("the place of an error behind such words stays right", "[json]") {
  try {
    parse_python_json("[NaN, oops]");
    FAIL("no error");
  } catch (const JsonError& error) {
    CHECK(error.byte() == 7);
  }
}

TEST_CASE("files of Python clients may have such numbers where none is asked for", "[json]") {
  const Json json = parse_json(R"({"mean": NaN, "count": 3})", "f.json");
  const JsonPlace place("f.json", json);
  CHECK(place.at("count").count() == 3);
  CHECK(error_of([&] { static_cast<void>(place.at("mean").number()); }) ==
        "f.json: mean: is NaN; allowed: a finite number");
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
