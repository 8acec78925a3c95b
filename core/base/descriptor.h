// SPDX-License-Identifier: Apache-2.0
// A file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <cerrno>

namespace metronome {

class Descriptor {
 public:
  // Negative: none, as open() reports an error.
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {  // errno stays
    const int error = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    errno = error;
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace metronome
