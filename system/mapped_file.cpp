// SPDX-License-Identifier: Apache-2.0
#include "system/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/descriptor.h"
#include "core/base/error.h"
#include "core/base/names.h"

namespace metronome {

void MappedFile::Unmap::operator()(const std::byte* begin) const {
  ::munmap(const_cast<std::byte*>(begin), size);
}

MappedFile::MappedFile(const std::string& path, const std::string& allowed) {
  const auto fail = [&](const std::string& message) {
    throw ConfigError(printable(path + ": " + message + "; allowed: " + allowed));
  };
  // Opening a pipe must not block until a writer opens it.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    fail(std::string("cannot be read: ") + std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(S_ISDIR(status.st_mode) ? "is a folder" : "is not a file");
  }
  if (status.st_size == 0) fail("is empty");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) fail(std::string("cannot be mapped: ") + std::strerror(errno));
  mapping_ = {static_cast<const std::byte*>(address), Unmap{size}};
}

}  // namespace metronome
