// Columns of an Arrow table that grow row by row, and the way out of here: the Arrow C data
// interface (arrow.apache.org/docs/format/CDataInterface.html), whose two structs are given below.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "wire.h"

extern "C" {

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};
}

namespace toolverdict {

// A column with 32-bit offsets is full.
struct ColumnFull {};

// memcpy, without a call for what is short: most texts are.
inline void copy(char* to, const Text& text) {
  const char* const from = text.data;
  const size_t size = text.size;
  if (size > 32) {
    std::memcpy(to, from, size);
  } else if (size >= 16) {
    std::memcpy(to, from, 16);
    std::memcpy(to + size - 16, from + size - 16, 16);
  } else if (size >= 8) {
    std::memcpy(to, from, 8);
    std::memcpy(to + size - 8, from + size - 8, 8);
  } else if (size >= 4) {
    std::memcpy(to, from, 4);
    std::memcpy(to + size - 4, from + size - 4, 4);
  } else {
    for (size_t i = 0; i < size; ++i) to[i] = from[i];
  }
}

// Bytes that grow. Writers reserve first and then write at end(), as appending byte by byte costs.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() { std::free(data_); }

  const char* data() const { return data_; }
  char* data() { return data_; }
  size_t size() const { return size_; }
  char* end() { return data_ + size_; }
  void truncate(size_t size) { size_ = size; }
  void wrote(size_t size) { size_ += size; }

  char* reserve(size_t more) {
    if (capacity_ - size_ < more) grow(more);
    return data_ + size_;
  }
  void append(const Text& text) {
    copy(reserve(text.size), text);
    size_ += text.size;
  }
  template <typename T>
  void append_value(T value) {
    std::memcpy(reserve(sizeof value), &value, sizeof value);
    size_ += sizeof value;
  }
  template <typename T>
  void append_repeated(T value, size_t count) {
    char* const to = reserve(count * sizeof value);
    for (size_t i = 0; i < count; ++i) std::memcpy(to + i * sizeof value, &value, sizeof value);
    size_ += count * sizeof value;
  }

 private:
  void swap(Buffer& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  void grow(size_t more) {
    const size_t capacity = std::max(size_ + more, 2 * capacity_ + 64);
    void* const data = std::realloc(data_, capacity);
    if (data == nullptr) throw std::bad_alloc();
    data_ = static_cast<char*>(data);
    capacity_ = capacity;
  }

  char* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// A hash that nobody outside can make collide: multiply and fold, with a seed of this process.
class Hasher {
 public:
  explicit Hasher(uint64_t seed) : seed_(seed | 1) {}

  uint64_t operator()(const Text& text) const {
    uint64_t state = seed_ ^ text.size;
    const char* at = text.data;
    size_t left = text.size;
    for (; left > 16; at += 16, left -= 16) {
      state = fold(load<uint64_t>(at) ^ seed_, load<uint64_t>(at + 8) ^ state);
    }
    uint64_t low = 0, high = 0;
    if (left >= 8) {
      low = load<uint64_t>(at);
      high = load<uint64_t>(at + left - 8);
    } else if (left >= 4) {
      low = load<uint32_t>(at);
      high = load<uint32_t>(at + left - 4);
    } else if (left > 0) {
      low = static_cast<unsigned char>(at[0]);
      high = static_cast<uint64_t>(static_cast<unsigned char>(at[left / 2])) << 8 |
             static_cast<unsigned char>(at[left - 1]);
    }
    return fold(fold(low ^ kPrime, high ^ state), seed_);
  }

 private:
  static constexpr uint64_t kPrime = 0x9E3779B97F4A7C15;
  __extension__ typedef unsigned __int128 Wide;

  static uint64_t fold(uint64_t a, uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  uint64_t seed_;
};

// The distinct values of a column, in the order in which they came first.
class Dictionary {
 public:
  explicit Dictionary(Hasher hasher) : hasher_(hasher) { offsets.append_value<int32_t>(0); }

  int32_t index_of(const Text& text) {
    // Values repeat: the last one is often the next one.
    if (size() > 0 && at(last_) == text) return last_;
    if ((size() + 1) * 2 > slots_.size()) rehash(std::max<size_t>(64, slots_.size() * 2));
    const uint64_t hash = hasher_(text);
    size_t slot = hash & (slots_.size() - 1);
    for (; slots_[slot].index >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].hash == static_cast<uint32_t>(hash) && at(slots_[slot].index) == text) {
        return last_ = slots_[slot].index;
      }
    }
    if (text.size > INT32_MAX - bytes.size()) throw ColumnFull{};
    bytes.append(text);
    offsets.append_value(static_cast<int32_t>(bytes.size()));
    last_ = static_cast<int32_t>(size() - 1);
    slots_[slot] = {static_cast<uint32_t>(hash), last_};
    return last_;
  }

  size_t size() const { return offsets.size() / sizeof(int32_t) - 1; }

  Buffer offsets, bytes;

 private:
  struct Slot {
    uint32_t hash;
    int32_t index;
  };

  int32_t offset(size_t index) const {
    return load<int32_t>(offsets.data() + index * sizeof(int32_t));
  }
  Text at(int32_t index) const {
    const int32_t start = offset(static_cast<size_t>(index));
    const int32_t end = offset(static_cast<size_t>(index) + 1);
    return {bytes.data() + start, static_cast<size_t>(end - start)};
  }
  void rehash(size_t slots) {
    slots_.resize(slots);
    fill_slots();
  }
  void fill_slots() {
    std::fill(slots_.begin(), slots_.end(), Slot{0, -1});
    for (size_t index = 0; index < size(); ++index) {
      const uint64_t hash = hasher_(at(static_cast<int32_t>(index)));
      size_t slot = hash & (slots_.size() - 1);
      while (slots_[slot].index >= 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = {static_cast<uint32_t>(hash), static_cast<int32_t>(index)};
    }
  }

  Hasher hasher_;
  std::vector<Slot> slots_;
  int32_t last_ = 0;
};

enum class Type { kUint32, kInt32, kInt64, kTime, kText, kLongText, kWord };

// One column. It may be behind the table: rows that gave it nothing are null, and are put in when
// the next value or the end comes.
class Column {
 public:
  Column(Type type, Hasher hasher) : type_(type), hasher_(hasher) { clear(); }

  Type type() const { return type_; }

  template <typename T>
  void append_number(size_t row, T number) {
    begin_row(row);
    values_.append_value(number);
    finish_row();
  }
  void append_text(size_t row, const Text& text) {
    if (type_ == Type::kWord) {
      append_number(row, index_of(text));
    } else {
      open_text(row).append(text);
      close_text();
    }
  }
  // The place to write a text to; close_text() ends it.
  Buffer& open_text(size_t row) {
    begin_row(row);
    return bytes_;
  }
  void close_text() {
    if (type_ == Type::kLongText) {
      values_.append_value(static_cast<int64_t>(bytes_.size()));
    } else {
      if (bytes_.size() > INT32_MAX) throw ColumnFull{};
      values_.append_value(static_cast<int32_t>(bytes_.size()));
    }
    finish_row();
  }
  int32_t index_of(const Text& word) { return dictionary_->index_of(word); }
  void pad(size_t rows) {
    if (length_ < rows) append_nulls(rows - length_);
  }

  // Make room for `rows` rows like those there are: growing step by step would copy them again and
  // again.
  void expect(size_t rows) {
    if (length_ == 0 || rows <= length_) return;
    const auto all_like = [&](Buffer& buffer) {
      const size_t size = buffer.size() / length_ * (rows - length_);
      buffer.reserve(size + size / 16);
    };
    all_like(values_);
    all_like(bytes_);
  }

  // Everything that was appended, which the column no longer has then.
  void move_to(ArrowArray* array);

 private:
  void clear() {
    length_ = nulls_ = 0;
    validity_ = Buffer();
    values_ = Buffer();
    bytes_ = Buffer();
    if (type_ == Type::kText) values_.append_value<int32_t>(0);
    if (type_ == Type::kLongText) values_.append_value<int64_t>(0);
    if (type_ == Type::kWord) dictionary_ = std::make_unique<Dictionary>(hasher_);
  }
  void begin_row(size_t row) { pad(row); }
  void finish_row() {
    if (nulls_ > 0) set_validity(length_, 1, true);
    ++length_;
  }
  void append_nulls(size_t count) {
    // A bitmap is there from the first null on.
    if (nulls_ == 0) {
      validity_.truncate(0);
      set_validity(0, length_, true);
    }
    set_validity(length_, count, false);
    switch (type_) {
      case Type::kText:
        values_.append_repeated(static_cast<int32_t>(bytes_.size()), count);
        break;
      case Type::kLongText:
        values_.append_repeated(static_cast<int64_t>(bytes_.size()), count);
        break;
      case Type::kInt64:
      case Type::kTime:
        values_.append_repeated<int64_t>(0, count);
        break;
      default:
        values_.append_repeated<int32_t>(0, count);
    }
    length_ += count;
    nulls_ += count;
  }
  // Appends bits to the bitmap, which has `from` of them.
  void set_validity(size_t from, size_t count, bool valid) {
    const size_t bytes = (from + count + 7) / 8;
    if (bytes > validity_.size()) validity_.append_repeated<char>(0, bytes - validity_.size());
    if (!valid) return;
    for (size_t bit = from; bit < from + count; ++bit) {
      validity_.data()[bit / 8] |= static_cast<char>(1 << bit % 8);
    }
  }

  Type type_;
  Hasher hasher_;
  size_t length_ = 0;
  size_t nulls_ = 0;
  Buffer validity_;  // bits, only while there are nulls
  Buffer values_;    // numbers, indices or offsets
  Buffer bytes_;     // of texts
  std::unique_ptr<Dictionary> dictionary_;
};

// What an ArrowArray of ours owns.
struct Owned {
  std::vector<Buffer> buffers;
  std::vector<const void*> addresses;
  std::vector<std::unique_ptr<ArrowArray>> children;
  std::vector<ArrowArray*> child_addresses;
  std::unique_ptr<ArrowArray> dictionary;

  // Hands itself over: the array frees all of it on release.
  static void give(std::unique_ptr<Owned> owned, ArrowArray* array, size_t length, size_t nulls) {
    for (Buffer& buffer : owned->buffers) {
      owned->addresses.push_back(buffer.data());
    }
    if (nulls == 0) owned->addresses.at(0) = nullptr;
    for (const auto& child : owned->children) owned->child_addresses.push_back(child.get());
    *array = ArrowArray{
        static_cast<int64_t>(length),
        static_cast<int64_t>(nulls),
        0,
        static_cast<int64_t>(owned->addresses.size()),
        static_cast<int64_t>(owned->child_addresses.size()),
        owned->addresses.data(),
        owned->child_addresses.data(),
        owned->dictionary.get(),
        &Owned::release,
        nullptr,
    };
    array->private_data = owned.release();
  }

 private:
  static void release(ArrowArray* array) {
    const std::unique_ptr<Owned> owned(static_cast<Owned*>(array->private_data));
    for (const auto& child : owned->children) {
      if (child->release != nullptr) child->release(child.get());
    }
    if (owned->dictionary != nullptr && owned->dictionary->release != nullptr) {
      owned->dictionary->release(owned->dictionary.get());
    }
    array->release = nullptr;
  }
};

inline void Column::move_to(ArrowArray* array) {
  auto owned = std::make_unique<Owned>();
  owned->buffers.push_back(std::move(validity_));
  owned->buffers.push_back(std::move(values_));
  if (type_ == Type::kText || type_ == Type::kLongText) {
    owned->buffers.push_back(std::move(bytes_));
  }
  // No buffer but the bitmap may be missing, however empty.
  for (Buffer& buffer : owned->buffers) buffer.reserve(1);
  if (type_ == Type::kWord) {
    auto words = std::make_unique<Owned>();
    const size_t size = dictionary_->size();
    words->buffers.emplace_back();
    words->buffers.push_back(std::move(dictionary_->offsets));
    words->buffers.push_back(std::move(dictionary_->bytes));
    words->buffers.back().reserve(1);
    owned->dictionary = std::make_unique<ArrowArray>();
    Owned::give(std::move(words), owned->dictionary.get(), size, 0);
  }
  Owned::give(std::move(owned), array, length_, nulls_);
  clear();
}

}  // namespace toolverdict
