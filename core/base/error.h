// SPDX-License-Identifier: Apache-2.0
// The three kinds of failure. An expected shortage (pool exhausted, queue full) is a return value.
// Bad input is a ConfigError. A broken invariant fails METRONOME_CHECK, which is on in every build;
// no input can cause it.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace metronome {

// Bad input. what() is one complete line, "file:line: key: what is wrong; what is allowed".
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A key that no code reads. It is a typing error, whatever the values around it.
class UnknownKeyError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

// Bad input, thrown where only the key is known. A caller that knows the file adds the location.
class UnplacedConfigError : public ConfigError {
 public:
  UnplacedConfigError(const std::string& key, const std::string& message)
      : ConfigError(key + ": " + message), key_(key), message_(message) {}
  const std::string& key() const { return key_; }
  const std::string& message() const { return message_; }

 private:
  std::string key_;
  std::string message_;
};

// A bug in Metronome itself.
class InvariantError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void throw_invariant_error(const char* condition, const char* file, int line,
                                        std::string_view message);

}  // namespace metronome

// Throws InvariantError when `condition` is false. `message` is evaluated only then.
#define METRONOME_CHECK(condition, message)                                          \
  do {                                                                               \
    if (!(condition)) [[unlikely]] {                                                 \
      ::metronome::throw_invariant_error(#condition, __FILE__, __LINE__, (message)); \
    }                                                                                \
  } while (false)
