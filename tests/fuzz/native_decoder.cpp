// The native decoder without Python, for libFuzzer: coverage.py builds and runs it.
//
// An input is a byte that says the signal and which limit is low (coverage.py reads it, too), and a
// body. What the decoder says of the body must agree with itself; that the referee says the same,
// coverage.py asks afterwards of every input that reached new code.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <numeric>

#include "rows.h"

namespace toolverdict {
namespace {

void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "it does not hold that %s\n", what);
  std::abort();
}

// The schema of a signal in the Arrow C data interface, for spans with two promoted attributes.
class Schema {
 public:
  explicit Schema(Signal signal) {
    words_.format = "u";
    for (const ColumnSpec& spec : kColumns) {
      if ((spec.signals & signal) != 0) add(spec.name.data(), spec.type);
    }
    if (signal == kTraces) {
      add("tool.name", Type::kWord);
      add("input.value", Type::kLongText);
    }
    for (ArrowSchema& field : fields_) children_.push_back(&field);
    schema_.n_children = static_cast<int64_t>(children_.size());
    schema_.children = children_.data();
  }
  const ArrowSchema& get() const { return schema_; }
  Type type(int64_t column) const { return type_of(*schema_.children[column]); }

 private:
  void add(const char* name, Type type) {
    ArrowSchema& field = fields_.emplace_back();
    field.name = name;
    switch (type) {
      case Type::kText: field.format = "u"; break;
      case Type::kLongText: field.format = "U"; break;
      case Type::kUint32: field.format = "I"; break;
      case Type::kInt32: field.format = "i"; break;
      case Type::kInt64: field.format = "l"; break;
      case Type::kTime: field.format = "tsu:UTC"; break;
      case Type::kWord:
        field.format = "i";
        field.dictionary = &words_;
    }
  }

  ArrowSchema schema_{}, words_{};
  std::deque<ArrowSchema> fields_;
  std::vector<ArrowSchema*> children_;
};

// Reads every text of an array, so that a sanitizer sees all of it, and gives the array back.
// Returns the bytes of its columns.
size_t consume(const Schema& schema, ArrowArray& array) {
  size_t bytes = 0;
  for (int64_t i = 0; i < array.n_children; ++i) {
    const ArrowArray& column = *array.children[i];
    demand(column.length == array.length, "all columns are equally long");
    const Type type = schema.type(i);
    const bool is_wide =
        type == Type::kLongText || type == Type::kInt64 || type == Type::kTime;
    bytes += static_cast<size_t>(column.length) * (is_wide ? 8 : 4);
    const ArrowArray& texts = type == Type::kWord ? *column.dictionary : column;
    if (texts.n_buffers != 3) continue;
    const char* const offsets = static_cast<const char*>(texts.buffers[1]);
    const size_t size =
        type == Type::kLongText
            ? static_cast<size_t>(load<int64_t>(offsets + 8 * texts.length))
            : static_cast<size_t>(load<int32_t>(offsets + 4 * texts.length));
    demand(is_utf8({static_cast<const char*>(texts.buffers[2]), size}), "texts are UTF-8");
    bytes += size;
    for (int64_t row = 0; type == Type::kWord && row < column.length; ++row) {
      const int32_t index = load<int32_t>(static_cast<const char*>(column.buffers[1]) + 4 * row);
      demand(index == 0 || (index > 0 && index < texts.length), "an index is one of a word");
    }
  }
  array.release(&array);
  return bytes;
}

// A request that is always taken: one sound record, which nothing that comes after may change.
const std::string& sound_request(Signal signal) {
  static const std::string span = [] {
    const std::string record =
        "\x0a\x10traceidtraceid!!\x12\x08spanid!!\x4a\x0c\x0a\x04tool\x12\x04\x0a\x02ok";
    const auto field = [](int number, const std::string& text) {
      return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(text.size())} + text;
    };
    return field(1, field(2, field(2, record)));
  }();
  static const std::string log = std::string("\x0a\x09\x12\x07\x12\x05\x1a\x03xyz");
  return signal == kTraces ? span : log;
}

// A builder that is told that all was judged: has the same rows of what was, and survives the rest.
void check_judged(Signal signal, const Schema& schema, const Text& body, bool is_sound, size_t rows,
                  size_t bytes) {
  RowBuilder builder(signal, true, schema.get(), Hasher(0x5EED));
  const Text sound{sound_request(signal).data(), sound_request(signal).size()};
  ArrowArray array{};
  try {
    builder.feed(sound, 1);
    builder.feed(body, 2);
    builder.feed(sound, 3);
    builder.take(&array);
  } catch (const Malformed&) {
    demand(!is_sound, "what was judged can be decoded");
    return;
  }
  if (!is_sound) {  // its texts may be no UTF-8
    array.release(&array);
    return;
  }
  demand(static_cast<size_t>(array.length) == rows, "what was judged has the same rows");
  const size_t consumed = consume(schema, array);
  demand(bytes == 0 || consumed == bytes, "what was judged has the same columns");
}

template <typename Record>
void check(Signal signal, const Text& body, const Limits& low, bool in_parts) {
  static const Schema schema(signal);
  static RowBuilder builder(signal, false, schema.get(), Hasher(0x5EED));
  const auto judge = [&](const Limits& limits, Judge<Record>& verdict) {
    try {
      Parser<Purpose::kJudge>(limits).template request<Record>(Reader(body.data, body.size),
                                                               verdict);
      return true;
    } catch (const Malformed&) {
    } catch (const TooMany&) {
    }
    return false;
  };
  Judge<Record> all(kNoLimits), some(low);
  const bool is_request = judge(kNoLimits, all);
  if (judge(low, some)) {
    demand(is_request && some.accepted() <= all.accepted(), "limits only take away");
  }

  const Text sound{sound_request(signal).data(), sound_request(signal).size()};
  builder.feed(sound, 1);
  bool is_taken = true;
  try {
    builder.feed(body, 2);
  } catch (const Malformed&) {
    is_taken = false;
  }
  demand(is_taken == is_request, "what is accepted can be decoded");
  builder.feed(sound, 3);
  const size_t rows = builder.rows();
  demand(rows == 2 + (is_taken ? all.accepted() : 0), "what is accepted is stored");
  size_t weight = 0;
  for (size_t bit = size_t{1} << 40; bit > 0; bit /= 2) {
    if (builder.full_part(SIZE_MAX, weight + bit) > 0) weight += bit;
  }
  size_t bytes = 0, decoded = 0;
  std::vector<std::unique_ptr<ArrowArray>> parts;
  if (in_parts) {
    builder.take_sorted(rows / 2, 2, [&](size_t) {
      return parts.emplace_back(std::make_unique<ArrowArray>()).get();
    });
  }
  builder.take(parts.emplace_back(std::make_unique<ArrowArray>()).get());
  demand(builder.rows() == 0, "all rows were taken");
  for (const auto& part : parts) {
    decoded += static_cast<size_t>(part->length);
    bytes += consume(schema, *part);
  }
  demand(decoded == rows, "every row is decoded once");
  // Words that are in several parts were weighed once.
  if (!in_parts) demand(bytes <= weight, "nothing becomes more than its weight");
  check_judged(signal, schema, body, is_taken, rows, in_parts ? 0 : bytes);
}

Limits low_limits(unsigned choice) {
  Limits limits = kNoLimits;
  uint64_t* const each[] = {&limits.records, &limits.messages, &limits.attributes, &limits.events,
                            &limits.links, &limits.record_messages, &limits.value_bytes,
                            &limits.record_bytes, &limits.context_bytes};
  constexpr uint64_t kLow[] = {2, 20, 2, 2, 2, 9, 20, 800, 300};
  if (choice < 9) *each[choice] = kLow[choice];
  return limits;
}

}  // namespace
}  // namespace toolverdict

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace toolverdict;
  if (size == 0) return 0;
  const Text body{reinterpret_cast<const char*>(data) + 1, size - 1};
  const Limits low = low_limits(data[0] >> 1 & 15);
  const bool in_parts = (data[0] & 32) == 0;
  if ((data[0] & 1) == 0) {
    check<Span>(kTraces, body, low, in_parts);
  } else {
    check<LogRecord>(kLogs, body, low, in_parts);
  }
  return 0;
}
