// SPDX-License-Identifier: Apache-2.0
// Answers tools/chat_parity: one JSON object a line on standard input, one line each on standard
// output.
//   {"template": its text, "variables": {...}, "now": [year, month, day, hour, minute, second]}
//     ->  {"text": ...}, {"error": ..., "raised": whether by the template} or {"refused": ...}
#include <ctime>
#include <iostream>
#include <string>

#include "core/base/error.h"
#include "core/base/json.h"
#include "models/text/jinja/template.h"

namespace {

using namespace metronome;

std::tm time_of(const Json& now) {
  std::tm time{};
  time.tm_year = now.at(0).get<int>() - 1900;
  time.tm_mon = now.at(1).get<int>() - 1;
  time.tm_mday = now.at(2).get<int>();
  time.tm_hour = now.at(3).get<int>();
  time.tm_min = now.at(4).get<int>();
  time.tm_sec = now.at(5).get<int>();
  time.tm_isdst = 0;
  ::timegm(&time);  // finds the days of the week and of the year
  return time;
}

Json answer(const Json& question) {
  try {
    const auto parsed = JinjaTemplate::parse(question.at("template").string(), "template");
    return Json{{"text", parsed.render(question.at("variables"), time_of(question.at("now")))}};
  } catch (const ConfigError& error) {
    return Json{{"refused", error.what()}};
  } catch (const JinjaError& error) {
    return Json{{"error", error.what()}, {"raised", error.is_raised()}};
  }
}

}  // namespace

int main() {
  try {
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << answer(Json::parse(line)).dump() << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
