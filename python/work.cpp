// SPDX-License-Identifier: Apache-2.0
#include "python/work.h"

#include <nanobind/nanobind.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "python/policy_view.h"
#include "system/host_signals.h"

namespace metronome::python {

namespace nb = nanobind;

namespace {

constexpr auto kSignalInterval = std::chrono::milliseconds(50);

// An exception class of the package, with the message as its only argument.
void raise(const char* name, const char* message) {
  const nb::object type = nb::module_::import_("metronome._errors").attr(name);
  PyErr_SetString(type.ptr(), message);
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const ConfigError& error) {
    raise("ScenarioError", error.what());
  } catch (const UsageError& error) {
    raise("ArgumentError", error.what());
  } catch (const Interrupted&) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string& path = error.path1().native();
    const std::string text = (path.empty() ? "" : path + ": ") + error.code().message();
    PyErr_SetString(PyExc_OSError, text.c_str());
  } catch (const PolicyError& error) {
    raise("PolicyError", error.what());
  } catch (const InvariantError& error) {
    raise("InternalError", error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const nb::builtin_exception&) {
    throw;  // nanobind's own
  } catch (const std::runtime_error& error) {
    raise("RunError", error.what());
  }
}

}  // namespace

void call_without_lock(const std::function<void()>& work) {
  std::exception_ptr error;
  std::optional<nb::python_error> raised;  // by a handler of a signal
  {
    const nb::gil_scoped_release released;
    std::mutex mutex;  // guards is_done
    std::condition_variable ended;
    bool is_done = false;
    std::thread thread([&] {
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      is_done = true;
      ended.notify_one();
    });
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, kSignalInterval, [&] { return is_done; })) {
      if (raised) continue;
      lock.unlock();
      {
        const nb::gil_scoped_acquire acquired;
        if (PyErr_CheckSignals() != 0) raised.emplace();
      }
      lock.lock();
      if (raised) set_interrupting_signal(SIGINT);
    }
    lock.unlock();
    thread.join();
  }
  if (raised) {
    set_interrupting_signal(0);
    throw nb::python_error(std::move(*raised));
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void translate_errors() { nb::register_exception_translator(translate); }

}  // namespace metronome::python
