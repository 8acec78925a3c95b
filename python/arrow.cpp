// SPDX-License-Identifier: Apache-2.0
#include "python/arrow.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace metronome::python {

namespace nb = nanobind;

namespace {

// The three structures of the interface, as its specification lays them out.
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema*);
  int (*get_next)(ArrowArrayStream*, ArrowArray*);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};

using AnyColumn = nb::ndarray<nb::ro, nb::ndim<1>, nb::device::cpu, nb::c_contig>;

struct Format {
  nb::dlpack::dtype type;
  const char* name;
};

const char* format_of(nb::dlpack::dtype type) {
  static const Format formats[] = {
      {nb::dtype<std::int64_t>(), "l"},  {nb::dtype<std::int32_t>(), "i"},
      {nb::dtype<std::uint64_t>(), "L"}, {nb::dtype<std::int16_t>(), "s"},
      {nb::dtype<double>(), "g"},        {nb::dtype<float>(), "f"},
      {nb::dtype<std::uint8_t>(), "C"},  {nb::dtype<std::int8_t>(), "c"},
      {nb::dtype<std::uint16_t>(), "S"}, {nb::dtype<std::uint32_t>(), "I"},
  };
  for (const Format& format : formats) {
    if (format.type == type) return format.name;
  }
  METRONOME_CHECK(false, "tables have columns of these types");
  return "";
}

// The words of a column, as Arrow keeps texts.
struct Words {
  std::vector<std::int32_t> ends = {0};
  std::string texts;
};

struct Column {
  std::string name;
  std::string format;
  AnyColumn array;                 // not of booleans
  std::vector<std::uint8_t> bits;  // of booleans
  std::unique_ptr<Words> words;
  const void* data() const { return bits.empty() ? array.data() : bits.data(); }
};

// Memory that a stream and all that came of it share. Any thread may be the last one to let it go.
struct Batch {
  std::vector<Column> columns;
  std::int64_t num_rows = 0;

  Batch() = default;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    if (Py_IsInitialized() == 0) {  // nobody can take the lock any more: the arrays stay
      new std::vector<Column>(std::move(columns));
      return;
    }
    const nb::gil_scoped_acquire lock;
    columns.clear();
  }
};

using SharedBatch = std::shared_ptr<const Batch>;

// Owned by a schema or an array besides the batch. A consumer may move each child out and release
// it on its own.
template <class Node>
struct Owned {
  SharedBatch batch;
  std::vector<std::unique_ptr<Node>> children;
  std::vector<Node*> child_places;
  std::unique_ptr<Node> dictionary;
  std::vector<const void*> buffers;
};

template <class Node>
void release(Node* node) {
  auto* const owned = static_cast<Owned<Node>*>(node->private_data);
  for (const std::unique_ptr<Node>& child : owned->children) {
    if (child->release != nullptr) child->release(child.get());
  }
  if (owned->dictionary != nullptr && owned->dictionary->release != nullptr) {
    owned->dictionary->release(owned->dictionary.get());
  }
  delete owned;
  node->release = nullptr;
}

template <class Node>
Owned<Node>& own(const SharedBatch& batch, Node& node) {
  node = {};
  auto* const owned = new Owned<Node>;
  owned->batch = batch;
  node.private_data = owned;
  node.release = release<Node>;
  return *owned;
}

template <class Node, class Make>
void make_children(Node& node, Owned<Node>& owned, std::size_t count, const Make& make) {
  for (std::size_t i = 0; i < count; ++i) {
    owned.children.push_back(std::make_unique<Node>());
    make(*owned.children.back(), i);
    owned.child_places.push_back(owned.children.back().get());
  }
  node.n_children = static_cast<std::int64_t>(count);
  node.children = owned.child_places.data();
}

void make_schema(const SharedBatch& batch, const char* format, const char* name,
                 ArrowSchema& schema) {
  own(batch, schema);
  schema.format = format;
  schema.name = name;
}

void make_schema_of(const SharedBatch& batch, const Column& column, ArrowSchema& schema) {
  make_schema(batch, column.format.c_str(), column.name.c_str(), schema);
  if (column.words == nullptr) return;
  auto& owned = *static_cast<Owned<ArrowSchema>*>(schema.private_data);
  owned.dictionary = std::make_unique<ArrowSchema>();
  make_schema(batch, "u", "", *owned.dictionary);
  schema.dictionary = owned.dictionary.get();
}

void make_array(const SharedBatch& batch, std::int64_t length, std::vector<const void*> buffers,
                ArrowArray& array) {
  Owned<ArrowArray>& owned = own(batch, array);
  owned.buffers = std::move(buffers);
  array.length = length;
  array.n_buffers = static_cast<std::int64_t>(owned.buffers.size());
  array.buffers = owned.buffers.data();
}

void make_array_of(const SharedBatch& batch, const Column& column, ArrowArray& array) {
  make_array(batch, batch->num_rows, {nullptr, column.data()}, array);
  if (column.words == nullptr) return;
  auto& owned = *static_cast<Owned<ArrowArray>*>(array.private_data);
  owned.dictionary = std::make_unique<ArrowArray>();
  make_array(batch, std::ssize(column.words->ends) - 1,
             {nullptr, column.words->ends.data(), column.words->texts.data()}, *owned.dictionary);
  array.dictionary = owned.dictionary.get();
}

struct Stream {
  SharedBatch batch;
  bool is_done = false;
};

int get_schema(ArrowArrayStream* stream, ArrowSchema* schema) {
  const SharedBatch& batch = static_cast<Stream*>(stream->private_data)->batch;
  Owned<ArrowSchema>& owned = own(batch, *schema);
  schema->format = "+s";
  schema->name = "";
  make_children(*schema, owned, batch->columns.size(), [&](ArrowSchema& child, std::size_t i) {
    make_schema_of(batch, batch->columns[i], child);
  });
  return 0;
}

int get_next(ArrowArrayStream* stream, ArrowArray* array) {
  auto& state = *static_cast<Stream*>(stream->private_data);
  *array = {};  // without a release function: the end of the stream
  if (state.is_done) return 0;
  state.is_done = true;
  make_array(state.batch, state.batch->num_rows, {nullptr}, *array);
  auto& owned = *static_cast<Owned<ArrowArray>*>(array->private_data);
  make_children(*array, owned, state.batch->columns.size(), [&](ArrowArray& child, std::size_t i) {
    make_array_of(state.batch, state.batch->columns[i], child);
  });
  return 0;
}

void release_stream(ArrowArrayStream* stream) {
  delete static_cast<Stream*>(stream->private_data);
  stream->release = nullptr;
}

std::vector<std::uint8_t> packed_bits(const AnyColumn& bytes) {
  const auto* const values = static_cast<const std::uint8_t*>(bytes.data());
  std::vector<std::uint8_t> bits(bytes.shape(0) / 8 + 1, 0);
  for (std::size_t i = 0; i < bytes.shape(0); ++i) {
    if (values[i] != 0) bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | 1U << i % 8);
  }
  return bits;
}

std::unique_ptr<Words> words_of(const nb::list& list) {
  auto words = std::make_unique<Words>();
  for (const nb::handle word : list) {
    words->texts += nb::cast<std::string>(word);
    words->ends.push_back(static_cast<std::int32_t>(words->texts.size()));
  }
  return words;
}

Column column_of(std::string name, nb::handle values) {
  Column column;
  column.name = std::move(name);
  if (nb::isinstance<nb::tuple>(values)) {
    column.array = nb::cast<AnyColumn>(values[0]);
    column.words = words_of(nb::cast<nb::list>(values[1]));
    column.format = format_of(column.array.dtype());
    return column;
  }
  column.array = nb::cast<AnyColumn>(values);
  column.format = format_of(column.array.dtype());
  if (column.array.dtype() == nb::dtype<std::uint8_t>()) {
    column.format = "b";
    column.bits = packed_bits(column.array);
  }
  return column;
}

void release_capsule(void* pointer) noexcept {
  auto* const stream = static_cast<ArrowArrayStream*>(pointer);
  if (stream->release != nullptr) stream->release(stream);  // nobody has taken it
  delete stream;
}

}  // namespace

nb::capsule arrow_stream(const nb::dict& table) {
  auto batch = std::make_shared<Batch>();
  for (const auto& [name, values] : table) {
    batch->columns.push_back(column_of(nb::cast<std::string>(name), values));
  }
  if (!batch->columns.empty()) {
    batch->num_rows = static_cast<std::int64_t>(batch->columns.front().array.shape(0));
  }
  auto* const stream = new ArrowArrayStream{
      .get_schema = get_schema,
      .get_next = get_next,
      .get_last_error = [](ArrowArrayStream*) -> const char* { return nullptr; },
      .release = release_stream,
      .private_data = new Stream{std::move(batch)}};
  return nb::capsule(stream, "arrow_array_stream", release_capsule);
}

}  // namespace metronome::python
