// The wire format of protobuf, read as upb reads it: what it takes is taken, what it refuses is
// Malformed. (protobuf.dev/programming-guides/encoding; the limits are upb's.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire format is read in place, which takes a little-endian machine"
#endif

namespace toolverdict {

// The bytes are not the message they should be.
struct Malformed {};

// Bytes of somebody else: of the body, of an interned key, of a constant.
struct Text {
  const char* data = nullptr;
  size_t size = 0;

  bool operator==(const Text& other) const {
    return size == other.size && (size == 0 || std::memcmp(data, other.data, size) == 0);
  }
};

template <typename T>
inline T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Whether bytes are ASCII. The last, partial word overlaps the one before it.
inline bool is_ascii(const unsigned char* at, size_t size) {
  constexpr uint64_t kHigh = 0x8080808080808080;
  if (size < 8) {
    uint64_t bits = 0;
    for (size_t i = 0; i < size; ++i) bits |= at[i];
    return bits < 0x80;
  }
  const unsigned char* const last = at + size - 8;
  uint64_t bits = load<uint64_t>(last);
  for (; last - at >= 32; at += 32) {
    bits |= load<uint64_t>(at) | load<uint64_t>(at + 8) | load<uint64_t>(at + 16) |
            load<uint64_t>(at + 24);
    if (bits & kHigh) return false;
  }
  for (; at < last; at += 8) bits |= load<uint64_t>(at);
  return (bits & kHigh) == 0;
}

// Whether bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF (RFC 3629).
inline bool is_utf8(const Text& text) {
  const unsigned char* at = reinterpret_cast<const unsigned char*>(text.data);
  if (is_ascii(at, text.size)) return true;
  const unsigned char* const end = at + text.size;
  const auto continues = [&](int offset) { return (at[offset] & 0xC0) == 0x80; };
  while (at != end) {
    const unsigned char lead = *at;
    if (lead < 0x80) {
      ++at;
    } else if (lead < 0xE0) {
      if (lead < 0xC2 || end - at < 2 || !continues(1)) return false;
      at += 2;
    } else if (lead < 0xF0) {
      if (end - at < 3 || !continues(1) || !continues(2)) return false;
      if ((lead == 0xE0 && at[1] < 0xA0) || (lead == 0xED && at[1] > 0x9F)) return false;
      at += 3;
    } else {
      if (lead > 0xF4 || end - at < 4 || !continues(1) || !continues(2) || !continues(3)) {
        return false;
      }
      if ((lead == 0xF0 && at[1] < 0x90) || (lead == 0xF4 && at[1] > 0x8F)) return false;
      at += 4;
    }
  }
  return true;
}

enum WireType : uint32_t { kVarint, kFixed64, kBytes, kStartGroup, kEndGroup, kFixed32 };

constexpr uint32_t tag_of(uint32_t number, WireType type) { return number << 3 | type; }

// How deep messages and groups may nest below the request.
constexpr int kMaxDepth = 100;

// Reads one message from its first to its last byte. Every read is checked against the end.
class Reader {
 public:
  Reader(const void* data, size_t size)
      : at_(static_cast<const unsigned char*>(data)), end_(at_ + size) {}

  bool done() const { return at_ == end_; }

  // What is left to read.
  Text rest() const {
    return {reinterpret_cast<const char*>(at_), static_cast<size_t>(end_ - at_)};
  }

  // The next field of a message: its number and wire type, as tag_of() makes it.
  uint32_t tag() {
    if (at_ != end_ && *at_ >= 8 && *at_ < 0x80) return *at_++;  // nearly all of them
    return unusual_tag();
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const unsigned char byte = next();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;  // bits above the 64th fall away
      if (byte < 0x80) return value;
    }
    throw Malformed{};
  }

  uint64_t fixed64() { return load<uint64_t>(take(8)); }
  double float64() { return load<double>(take(8)); }
  uint32_t fixed32() { return load<uint32_t>(take(4)); }

  [[gnu::always_inline]] Text bytes() {
    const size_t size = length();
    return {reinterpret_cast<const char*>(take(size)), size};
  }

  // A field of type string: protobuf parsers refuse what is not UTF-8.
  Text string() {
    const Text text = bytes();
    if (!is_utf8(text)) throw Malformed{};
    return text;
  }

  // A field that nobody knows, or one of another wire type than the schema has: that is the same.
  void skip(uint32_t tag, int depth) {
    switch (tag & 7) {
      case kVarint:
        varint();
        return;
      case kFixed64:
        take(8);
        return;
      case kBytes:
        bytes();
        return;
      case kFixed32:
        take(4);
        return;
      case kStartGroup:
        skip_group(tag, depth);
        return;
      default:  // the end of a group that never began, or no wire type at all
        throw Malformed{};
    }
  }

 private:
  void skip_group(uint32_t start, int depth) {
    if (depth == 0) throw Malformed{};
    while (true) {
      const uint32_t tag = any_tag();  // inside a group upb does not look at the number
      if ((tag & 7) == kEndGroup) {
        if (tag >> 3 != start >> 3) throw Malformed{};
        return;
      }
      skip(tag, depth - 1);
    }
  }

  // Of up to 16 KiB without a call.
  [[gnu::always_inline]] size_t length() {
    if (end_ - at_ >= 2) {
      if (at_[0] < 0x80) return *at_++;
      if (at_[1] < 0x80) {
        at_ += 2;
        return (at_[-2] & 0x7Fu) | static_cast<size_t>(at_[-1]) << 7;
      }
    }
    return short_varint(INT32_MAX);
  }

  [[gnu::noinline]] uint32_t unusual_tag() {
    const uint32_t tag = any_tag();
    if (tag < 8) throw Malformed{};  // field number 0
    return tag;
  }

  uint32_t any_tag() { return static_cast<uint32_t>(short_varint(UINT32_MAX)); }

  // Tags and lengths: five bytes at most.
  [[gnu::noinline]] uint64_t short_varint(uint64_t max) {
    uint64_t value = next();
    if (value < 0x80) return value;
    value &= 0x7F;
    for (int shift = 7; shift < 35; shift += 7) {
      const unsigned char byte = next();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) {
        if (value > max) throw Malformed{};
        return value;
      }
    }
    throw Malformed{};
  }

  unsigned char next() {
    if (at_ == end_) throw Malformed{};
    return *at_++;
  }

  const unsigned char* take(size_t size) {
    if (size > static_cast<size_t>(end_ - at_)) throw Malformed{};
    const unsigned char* const start = at_;
    at_ += size;
    return start;
  }

  const unsigned char* at_;
  const unsigned char* end_;
};

}  // namespace toolverdict
