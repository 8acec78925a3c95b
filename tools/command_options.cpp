#include "tools/command_options.h"

#include <boost/program_options.hpp>
#include <iostream>
#include <vector>

#include "core/config_reader.h"

namespace metronome {

namespace po = boost::program_options;

namespace {

std::string hint(const CommandText& text) {
  return " (see `metronome " + std::string(text.name) + " --help`)";
}

std::optional<std::vector<std::string>> parse_files(const CommandText& text,
                                                    const po::options_description& options,
                                                    const Arguments& arguments,
                                                    po::variables_map& values) {
  const std::string name(text.name);
  po::options_description all;
  all.add(options).add_options()("file", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("file", -1);

  try {
    const int style = po::command_line_style::unix_style ^ po::command_line_style::allow_guessing;
    po::store(
        po::command_line_parser(arguments).options(all).positional(positional).style(style).run(),
        values);
    po::notify(values);
  } catch (const po::error& error) {
    throw UsageError(name + ": " + error.what() + hint(text));
  }
  if (values.count("help") != 0) {
    std::cout << "usage: metronome " << name << ' ' << text.arguments << "\n\n"
              << text.summary << '\n'
              << options << '\n'
              << text.examples;
    return std::nullopt;
  }
  const auto files = values.count("file") == 0 ? std::vector<std::string>()
                                               : values["file"].as<std::vector<std::string>>();
  for (const std::string& file : files) {
    if (!file.empty()) continue;
    throw UsageError(name + ": " + std::string(text.file_name) +
                     " is empty; allowed: the path of a " + std::string(text.file_kind));
  }
  return files;
}

}  // namespace

std::optional<std::vector<std::string>> parse_command_with_files(
    const CommandText& text, const po::options_description& options, const Arguments& arguments,
    po::variables_map& values) {
  auto files = parse_files(text, options, arguments, values);
  if (files && files->empty()) {
    throw UsageError(std::string(text.name) + ": give at least one " + std::string(text.file_kind) +
                     hint(text));
  }
  return files;
}

std::optional<std::string> parse_command(const CommandText& text,
                                         const po::options_description& options,
                                         const Arguments& arguments, po::variables_map& values) {
  const auto files = parse_files(text, options, arguments, values);
  if (!files) return std::nullopt;
  if (files->size() != 1) {
    throw UsageError(std::string(text.name) + ": give one " + std::string(text.file_kind) +
                     ", not " + std::to_string(files->size()) + hint(text));
  }
  return files->front();
}

}  // namespace metronome
