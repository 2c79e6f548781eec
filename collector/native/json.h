// OTLP values as JSON text, byte for byte what typed_json.py and orjson make of them.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "columns.h"
#include "otlp.h"

namespace toolverdict {

constexpr char kHexDigits[] = "0123456789abcdef";

inline void append_hex(Buffer& out, const Text& bytes) {
  char* to = out.reserve(2 * bytes.size);
  for (size_t i = 0; i < bytes.size; ++i) {
    const auto byte = static_cast<unsigned char>(bytes.data[i]);
    *to++ = kHexDigits[byte >> 4];
    *to++ = kHexDigits[byte & 15];
  }
  out.wrote(2 * bytes.size);
}

template <size_t N>
inline void append_literal(Buffer& out, const char (&literal)[N]) {
  out.append({literal, N - 1});
}

template <typename T>
inline void append_integer(Buffer& out, T number) {
  char* const to = out.reserve(24);
  out.wrote(static_cast<size_t>(std::to_chars(to, to + 24, number).ptr - to));
}

// The shortest digits that give the same double, laid out as orjson does: plain from 1e-5 to below
// 1e16, otherwise with an exponent; always with a fraction or an exponent.
inline void append_double(Buffer& out, double number) {
  if (std::isnan(number)) return append_literal(out, R"({"$double":"NaN"})");
  if (std::isinf(number)) {
    append_literal(out, R"({"$double":")");
    if (number < 0) append_literal(out, "-");
    return append_literal(out, R"(Infinity"})");
  }
  if (std::signbit(number)) append_literal(out, "-");
  if (number == 0) return append_literal(out, "0.0");
  // d[.ddd]e+-xx, 24 characters at most
  char shortest[32];
  const char* const end = std::to_chars(shortest, shortest + sizeof shortest, std::fabs(number),
                                        std::chars_format::scientific)
                              .ptr;
  const char* const mark = std::find(static_cast<const char*>(shortest), end, 'e');
  int exponent = 0;
  std::from_chars(mark + (mark[1] == '+' ? 2 : 1), end, exponent);
  char digits[24];
  int count = 0;
  for (const char* at = shortest; at != mark; ++at) {
    if (*at != '.') digits[count++] = *at;
  }
  const auto put = [&](int from, int to) {
    out.append({digits + from, static_cast<size_t>(to - from)});
  };
  const int point = exponent + 1;  // digits before the point
  if (point > 16 || point < -4) {
    put(0, 1);
    if (count > 1) {
      append_literal(out, ".");
      put(1, count);
    }
    append_literal(out, "e");
    if (exponent > 0) append_literal(out, "+");
    append_integer(out, exponent);
  } else if (point <= 0) {
    append_literal(out, "0.");
    out.append_repeated('0', static_cast<size_t>(-point));
    put(0, count);
  } else if (count <= point) {
    put(0, count);
    out.append_repeated('0', static_cast<size_t>(point - count));
    append_literal(out, ".0");
  } else {
    put(0, point);
    append_literal(out, ".");
    put(point, count);
  }
}

// A string in quotes. Eight bytes at a time are copied and searched for what must be escaped.
inline void append_string(Buffer& out, const Text& text) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  constexpr uint64_t kHigh = kOnes * 0x80;
  const auto has_zero = [](uint64_t word) { return (word - kOnes) & ~word & kHigh; };
  const char* at = text.data;
  const char* const end = at + text.size;
  char* to = out.reserve(text.size + 16);
  const auto save = [&] { out.wrote(static_cast<size_t>(to - out.end())); };
  *to++ = '"';
  while (true) {
    bool found = false;
    while (end - at >= 8) {
      const uint64_t word = load<uint64_t>(at);
      std::memcpy(to, &word, 8);
      const uint64_t control = (word - kOnes * 0x20) & ~word & kHigh;
      const uint64_t special =
          control | has_zero(word ^ kOnes * '"') | has_zero(word ^ kOnes * '\\');
      if (special != 0) {
        // A byte that is marked without need comes after one that is marked rightly.
        const int clean = __builtin_ctzll(special) / 8;
        at += clean;
        to += clean;
        found = true;
        break;
      }
      at += 8;
      to += 8;
    }
    while (!found && at != end) {
      const auto byte = static_cast<unsigned char>(*at);
      found = byte < 0x20 || byte == '"' || byte == '\\';
      if (!found) {
        *to++ = *at++;
      }
    }
    if (at == end) break;
    const auto byte = static_cast<unsigned char>(*at++);
    save();
    to = out.reserve(static_cast<size_t>(end - at) + 16);
    *to++ = '\\';
    switch (byte) {
      case '"':
      case '\\':
        *to++ = static_cast<char>(byte);
        break;
      case '\b':
        *to++ = 'b';
        break;
      case '\t':
        *to++ = 't';
        break;
      case '\n':
        *to++ = 'n';
        break;
      case '\f':
        *to++ = 'f';
        break;
      case '\r':
        *to++ = 'r';
        break;
      default:
        std::memcpy(to, "u00", 3);
        to[3] = kHexDigits[byte >> 4];
        to[4] = kHexDigits[byte & 15];
        to += 5;
    }
  }
  *to++ = '"';
  save();
}

inline void append_base64(Buffer& out, const Text& bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t size = (bytes.size + 2) / 3 * 4;
  char* to = out.reserve(size);
  for (size_t i = 0; i < bytes.size; i += 3) {
    const size_t left = bytes.size - i;
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < left ? static_cast<unsigned char>(bytes.data[i + k]) : 0);
    }
    *to++ = kDigits[group >> 18];
    *to++ = kDigits[group >> 12 & 63];
    *to++ = left > 1 ? kDigits[group >> 6 & 63] : '=';
    *to++ = left > 2 ? kDigits[group & 63] : '=';
  }
  out.wrote(size);
}

// What is known of an attribute key that was seen before.
struct Key {
  std::string text;
  std::string json;          // "text":
  Column* column = nullptr;  // of a promoted attribute
  uint64_t seen_in = 0;      // the last list that had it, to find repeated keys
  Key* next = nullptr;       // the key that came after it the last time
};

// The keys that were seen, up to a limit: whoever sends many different ones must not fill memory.
class Keys {
 public:
  explicit Keys(Hasher hasher) : hasher_(hasher), slots_(2 * kMaxKeys) {}

  void promote(const Text& text, Column* column) {
    find(text)->column = column;
    promoted_ = keys_.size();
  }

  // The key, or null when it is unknown and there is no room to get to know it.
  Key* find(const Text& text) {
    // Instrumentations send their keys in one order: the guess is right nine times out of ten.
    if (last_ != nullptr && last_->next != nullptr && text == view(*last_->next)) {
      return last_ = last_->next;
    }
    size_t slot = hasher_(text) & (slots_.size() - 1);
    for (; slots_[slot] != nullptr; slot = (slot + 1) & (slots_.size() - 1)) {
      if (text == view(*slots_[slot])) break;
    }
    if (slots_[slot] == nullptr) {
      if (is_full() || text.size > kMaxKeyBytes) return nullptr;
      slots_[slot] = &learn(text);
    }
    if (last_ != nullptr) last_->next = slots_[slot];
    return last_ = slots_[slot];
  }

  bool is_full() const { return keys_.size() == kMaxKeys; }

  // Forget all keys but the promoted ones. No tree that was resolved before may be used any more.
  void forget() {
    keys_.resize(promoted_);
    std::fill(slots_.begin(), slots_.end(), nullptr);
    last_ = nullptr;
    for (Key& key : keys_) {
      key.next = nullptr;
      size_t slot = hasher_(view(key)) & (slots_.size() - 1);
      while (slots_[slot] != nullptr) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = &key;
    }
  }

  static Text view(const Key& key) { return {key.text.data(), key.text.size()}; }

 private:
  static constexpr size_t kMaxKeys = 4096;
  static constexpr size_t kMaxKeyBytes = 256;

  Key& learn(const Text& text) {
    Buffer json;
    append_string(json, text);
    append_literal(json, ":");
    Key& key = keys_.emplace_back();
    key.text.assign(text.data, text.size);
    key.json.assign(json.data(), json.size());
    return key;
  }

  Hasher hasher_;
  std::deque<Key> keys_;  // never moves what it holds
  std::vector<Key*> slots_;
  Key* last_ = nullptr;
  size_t promoted_ = 0;
};

// Writes trees of otlp.h as typed_json.py says.
class JsonWriter {
 public:
  explicit JsonWriter(Keys& keys) : keys_(keys) {}

  static bool all(const KeyValue&) { return true; }

  // Looks the keys of a list up; returns whether one comes twice. Goes before pairs().
  bool resolve(const List<KeyValue>& list) {
    const uint64_t stamp = ++stamp_;
    bool repeats = false;
    strangers_.clear();
    for (KeyValue* pair = list.first; pair != nullptr; pair = pair->next) {
      pair->known = keys_.find(pair->key);
      if (pair->known == nullptr) {
        strangers_.push_back(pair->key);
      } else {
        repeats |= pair->known->seen_in == stamp;
        pair->known->seen_in = stamp;
      }
    }
    return repeats || has_repeats(strangers_);
  }

  // A resolved list as an object, or as pairs when an object would be ambiguous.
  // `wanted` says which pairs to write. Returns whether it became pairs.
  template <typename Wanted>
  bool pairs(Buffer& out, const List<KeyValue>& list, bool repeats, Wanted wanted) {
    bool as_pairs = repeats;
    for (const KeyValue* pair = list.first; pair != nullptr && !as_pairs; pair = pair->next) {
      as_pairs = pair->key.size > 0 && pair->key.data[0] == '$' && wanted(*pair);
    }
    if (as_pairs) {
      append_literal(out, R"({"$pairs":[)");
    } else {
      append_literal(out, "{");
    }
    bool first = true;
    for (const KeyValue* pair = list.first; pair != nullptr; pair = pair->next) {
      if (!wanted(*pair)) continue;
      if (!first) append_literal(out, ",");
      first = false;
      if (as_pairs) {
        append_literal(out, "[");
        append_string(out, pair->key);
        append_literal(out, ",");
      } else if (pair->known != nullptr) {
        out.append({pair->known->json.data(), pair->known->json.size()});
      } else {
        append_string(out, pair->key);
        append_literal(out, ":");
      }
      value(out, pair->value);
      if (as_pairs) append_literal(out, "]");
    }
    if (as_pairs) append_literal(out, "]");
    append_literal(out, "}");
    return as_pairs;
  }

  void attributes(Buffer& out, const List<KeyValue>& list) {
    const bool repeats = resolve(list);
    pairs(out, list, repeats, all);
  }

  void value(Buffer& out, const Value& value) {
    switch (value.kind) {
      case Value::kNothing:
        return append_literal(out, "null");
      case Value::kString:
        return append_string(out, value.text);
      case Value::kBool:
        return value.integer != 0 ? append_literal(out, "true") : append_literal(out, "false");
      case Value::kInt:
        return append_integer(out, value.integer);
      case Value::kDouble:
        return append_double(out, value.number);
      case Value::kArray:
        return array(out, value.items, [&](const KeyValue& item) { this->value(out, item.value); });
      case Value::kPairs:
        return attributes(out, value.items);
      case Value::kBytes:
        append_literal(out, R"({"$bytes":")");
        append_base64(out, value.text);
        return append_literal(out, R"("})");
    }
  }

  void events(Buffer& out, const List<Event>& list) {
    array(out, list, [&](const Event& event) {
      append_literal(out, R"({"time_unix_nano":)");
      append_integer(out, event.time_unix_nano);
      append_literal(out, R"(,"name":)");
      append_string(out, event.name);
      append_literal(out, R"(,"attributes":)");
      attributes(out, event.attributes);
      append_literal(out, R"(,"dropped_attributes_count":)");
      append_integer(out, event.dropped_attributes_count);
      append_literal(out, "}");
    });
  }

  void links(Buffer& out, const List<Link>& list) {
    array(out, list, [&](const Link& link) {
      append_literal(out, R"({"trace_id":")");
      append_hex(out, link.trace_id);
      append_literal(out, R"(","span_id":")");
      append_hex(out, link.span_id);
      append_literal(out, R"(","trace_state":)");
      append_string(out, link.trace_state);
      append_literal(out, R"(,"attributes":)");
      attributes(out, link.attributes);
      append_literal(out, R"(,"dropped_attributes_count":)");
      append_integer(out, link.dropped_attributes_count);
      append_literal(out, R"(,"flags":)");
      append_integer(out, link.flags);
      append_literal(out, "}");
    });
  }

  void entity_refs(Buffer& out, const List<EntityRef>& list) {
    const auto strings = [&](const List<TextItem>& items) {
      array(out, items, [&](const TextItem& item) { append_string(out, item.text); });
    };
    array(out, list, [&](const EntityRef& entity) {
      append_literal(out, R"({"schema_url":)");
      append_string(out, entity.schema_url);
      append_literal(out, R"(,"type":)");
      append_string(out, entity.type);
      append_literal(out, R"(,"id_keys":)");
      strings(entity.id_keys);
      append_literal(out, R"(,"description_keys":)");
      strings(entity.description_keys);
      append_literal(out, "}");
    });
  }

 private:
  template <typename T, typename Write>
  static void array(Buffer& out, const List<T>& list, Write write) {
    append_literal(out, "[");
    for (const T* item = list.first; item != nullptr; item = item->next) {
      if (item != list.first) append_literal(out, ",");
      write(*item);
    }
    append_literal(out, "]");
  }

  static bool has_repeats(std::vector<Text>& texts) {
    if (texts.size() < 2) return false;
    std::sort(texts.begin(), texts.end(), [](const Text& a, const Text& b) {
      if (a.size != b.size) return a.size < b.size;
      return a.size > 0 && std::memcmp(a.data, b.data, a.size) < 0;
    });
    return std::adjacent_find(texts.begin(), texts.end()) != texts.end();
  }

  Keys& keys_;
  uint64_t stamp_ = 0;
  std::vector<Text> strangers_;
};

}  // namespace toolverdict
