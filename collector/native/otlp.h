// OTLP export requests: the one walk that judges them and reads their records.
//
// opentelemetry-proto 1.9. A request is walked from its first to its last byte: each record is read
// into a small tree, judged, and given to a visitor before the next one is read.
// What the visitor does not want is checked all the same but not kept (Purpose), so intake and
// decoding take and refuse the very same bytes.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "wire.h"

namespace toolverdict {

// The request holds more than it may.
enum class TooMany { kRecords, kMessages };

// limits.py, Limits: of a request, and of each of its records.
struct Limits {
  uint64_t records;
  uint64_t messages;  // of any kind, and items of lists of strings
  uint64_t attributes;
  uint64_t events;
  uint64_t links;
  uint64_t record_messages;
  uint64_t value_bytes;
  uint64_t record_bytes;
  uint64_t context_bytes;
};

constexpr Limits kNoLimits{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
                           UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

// How many bytes are below 0x20, in steps that fit the lanes of any vector unit.
inline uint64_t low_bytes(const Text& text) {
  uint64_t count = 0;
  size_t at = 0;
  while (at < text.size) {
    const size_t end = std::min(text.size, at + 255);
    unsigned char some = 0;
    for (; at < end; ++at) some += static_cast<unsigned char>(text.data[at]) < 0x20;
    count += some;
  }
  return count;
}

// The most that wire bytes become as columns of text: see weights.py, which says why.
constexpr uint64_t kRowWeight = 512;
constexpr uint64_t kContextWeight = 256;
constexpr uint64_t kItemWeight = 100;  // of an event or a link
constexpr uint64_t kMostOfAByte = 8;
inline uint64_t weight_of(const Text& wire) { return 2 * wire.size + 6 * low_bytes(wire); }

// Memory for the tree of one record: given out piece by piece, taken back all at once.
class Arena {
 public:
  template <typename T>
  T* make() {
    static_assert(std::is_trivially_destructible_v<T> && sizeof(T) % alignof(void*) == 0);
    if (left_ < sizeof(T)) grow();
    T* const made = new (at_) T();
    at_ += sizeof(T);
    left_ -= sizeof(T);
    return made;
  }

  void reset() {
    if (blocks_.empty()) return;
    blocks_.resize(1);  // the first stays, so that ordinary records never allocate
    at_ = blocks_.front().get();
    left_ = kBlockBytes;
  }

 private:
  static constexpr size_t kBlockBytes = 64 * 1024;

  void grow() {
    blocks_.push_back(std::make_unique<char[]>(kBlockBytes));
    at_ = blocks_.back().get();
    left_ = kBlockBytes;
  }

  std::vector<std::unique_ptr<char[]>> blocks_;
  char* at_ = nullptr;
  size_t left_ = 0;
};

// A list in the order of the wire, linked through T::next.
template <typename T>
struct List {
  T* first = nullptr;
  T* last = nullptr;

  void append(T* item) {
    (first == nullptr ? first : last->next) = item;
    last = item;
  }
};

struct KeyValue;
struct Key;  // what is known of an attribute key: json.h

struct Value {
  enum Kind : unsigned char { kNothing, kString, kBool, kInt, kDouble, kArray, kPairs, kBytes };

  Kind kind = kNothing;
  union {
    int64_t integer;  // kBool and kInt
    double number;
    Text text;             // kString and kBytes
    List<KeyValue> items;  // kArray (items without a key) and kPairs
  };

  Value() : integer(0) {}

  void become_integer(Kind as, int64_t what) {
    kind = as;
    integer = what;
  }
  void become_number(double what) {
    kind = kDouble;
    number = what;
  }
  void become_text(Kind as, Text what) {
    kind = as;
    new (&text) Text(what);
  }
  // A list that comes right after its like goes on with it.
  void become_list(Kind as) {
    if (kind == as) return;
    kind = as;
    new (&items) List<KeyValue>();
  }
};

struct KeyValue {
  Text key;
  Value value;
  KeyValue* next = nullptr;
  Key* known = nullptr;
};

struct TextItem {
  Text text;
  TextItem* next = nullptr;
};

struct EntityRef {
  Text schema_url, type;
  List<TextItem> id_keys, description_keys;
  EntityRef* next = nullptr;
};

// What an owner of records says of itself.
struct Owner {
  uint64_t weight = kContextWeight;
  uint64_t attribute_count = 0;

  bool is_over(const Limits& limits) const {
    return attribute_count > limits.attributes || weight > limits.context_bytes;
  }
};

struct Resource : Owner {
  List<KeyValue> attributes;
  List<EntityRef> entity_refs;
  uint32_t dropped_attributes_count = 0;
};

struct Scope : Owner {
  Text name, version;
  List<KeyValue> attributes;
  uint32_t dropped_attributes_count = 0;
};

struct Event {
  uint64_t time_unix_nano = 0;
  Text name;
  List<KeyValue> attributes;
  Event* next = nullptr;
  uint32_t dropped_attributes_count = 0;
};

struct Link {
  Text trace_id, span_id, trace_state;
  List<KeyValue> attributes;
  Link* next = nullptr;
  uint32_t dropped_attributes_count = 0;
  uint32_t flags = 0;
};

constexpr size_t kTraceIdBytes = 16;
constexpr size_t kSpanIdBytes = 8;

inline bool is_zero(const Text& id) {
  for (size_t i = 0; i < id.size; ++i) {
    if (id.data[i] != 0) return false;
  }
  return true;
}

// Reasons are indices of the tuples of texts in validate.py, and behind them of those in limits.py.
constexpr int kSound = -1;
enum OverLimit : int {
  kManyAttributes = 100, kManyEvents, kManyLinks, kManyMessages, kLongValue, kLargeRecord,
  kLargeScope, kLargeResource
};

// What a record holds, counted while it is read, but for the messages only by who needs it.
struct Amounts {
  uint64_t messages = 0;
  uint64_t events = 0;
  uint64_t links = 0;
  uint64_t attributes = 0;  // of the span, event, link or log record that has most
  size_t longest = 0;       // text or bytes

  uint64_t weight(const Text& wire) const {
    return kRowWeight + kItemWeight * (events + links) + weight_of(wire);
  }
};

struct Span {
  Text trace_id, span_id, parent_span_id, trace_state, name, status_message;
  uint64_t start_time_unix_nano = 0;
  uint64_t end_time_unix_nano = 0;
  List<KeyValue> attributes;
  List<Event> events;
  List<Link> links;
  uint32_t flags = 0;
  int32_t kind = 0;
  int32_t status_code = 0;
  uint32_t dropped_attributes_count = 0;
  uint32_t dropped_events_count = 0;
  uint32_t dropped_links_count = 0;
  bool has_late_event = false;
  int link_fault = kSound;  // of the first link that has one

  // validate.py, span_fault
  int fault() const {
    if (trace_id.size != kTraceIdBytes || is_zero(trace_id)) return 0;
    if (span_id.size != kSpanIdBytes || is_zero(span_id)) return 1;
    if (parent_span_id.size != 0 && parent_span_id.size != kSpanIdBytes) return 2;
    if (start_time_unix_nano > INT64_MAX) return 3;
    if (end_time_unix_nano > INT64_MAX) return 4;
    if (has_late_event) return 5;
    return link_fault;
  }
  static int fault_of_link(const Link& link) {
    if (link.trace_id.size != 0 && link.trace_id.size != kTraceIdBytes) return 6;
    if (link.span_id.size != 0 && link.span_id.size != kSpanIdBytes) return 7;
    return kSound;
  }
  int warning() const { return kSound; }
};

struct LogRecord {
  Text trace_id, span_id, severity_text, event_name;
  uint64_t time_unix_nano = 0;
  uint64_t observed_time_unix_nano = 0;
  Value body;
  List<KeyValue> attributes;
  bool has_body = false;
  int32_t severity_number = 0;
  uint32_t dropped_attributes_count = 0;
  uint32_t flags = 0;

  // validate.py, log_fault and log_warning
  int fault() const {
    if (time_unix_nano > INT64_MAX) return 0;
    if (observed_time_unix_nano > INT64_MAX) return 1;
    return kSound;
  }
  int warning() const {
    if (trace_id.size != 0 && trace_id.size != kTraceIdBytes) return 0;
    if (span_id.size != 0 && span_id.size != kSpanIdBytes) return 1;
    return kSound;
  }
};

// What a walk is for.
enum class Purpose {
  kJudge,  // nothing is kept
  kIndex,  // what resources and scopes say is kept, of records only what is judged
  kLocate,  // as kIndex for what was judged before: attributes and texts are not looked into
  kDecode,  // all is kept; texts were checked by the walk before
  kMeasure  // nothing is kept, the amounts are counted
};

// Reads messages. A message that comes twice in a singular field is merged with the first, of other
// singular fields the last one stays, as protobuf demands. `depth` is how many levels may follow.
template <Purpose kPurpose>
class Parser {
 public:
  explicit Parser(Limits limits) : left_(limits) {}

  // Walks a request of spans or log records.
  //
  // Visitor: record(const Record&, Text bytes, const Amounts&) for each, then
  // end_scope(const Scope&, Text schema_url) and end_resource(const Resource&, Text schema_url), for
  // what a scope or a resource says of itself may stand behind its records. A record is there until
  // the visitor returns.
  template <typename Record, typename Visitor>
  void request(Reader in, Visitor& visitor) {
    while (!in.done()) {
      const uint32_t tag = in.tag();
      if (tag == tag_of(1, kBytes)) {
        resource_records<Record>(message(in, kMaxDepth), visitor, kMaxDepth - 1);
      } else {
        in.skip(tag, kMaxDepth);
      }
    }
  }

  // Reads one record that a walk has found. It is there until the next one is read.
  template <typename Record>
  Record record(const Text& bytes) {
    current_ = &records_;
    records_.reset();
    const uint64_t left = left_.messages;
    amounts_ = Amounts();
    Record record;
    parse(Reader(bytes.data, bytes.size), record, kRecordDepth);
    amounts_.messages = left - left_.messages;
    return record;
  }

  // Of the record that was read last.
  const Amounts& amounts() const { return amounts_; }

 private:
  static constexpr bool kCountsItems = kPurpose == Purpose::kIndex ||
                                       kPurpose == Purpose::kLocate ||
                                       kPurpose == Purpose::kMeasure;
  static constexpr int kRecordDepth = kMaxDepth - 3;  // below request, resource and scope

  // ResourceSpans and ResourceLogs
  template <typename Record, typename Visitor>
  void resource_records(Reader in, Visitor& visitor, int depth) {
    context_.reset();
    Resource resource;
    Text schema_url;
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(1, kBytes): {
          current_ = &context_;
          const Reader body = message(in, depth);
          resource.weight += weight_of(body.rest());
          parse_resource(body, resource, depth - 1);
          break;
        }
        case tag_of(2, kBytes):
          scope_records<Record>(message(in, depth), visitor, depth - 1);
          break;
        case tag_of(3, kBytes):
          schema_url = text(in);
          resource.weight += weight_of(schema_url);
          break;
        default:
          in.skip(tag, depth);
      }
    }
    visitor.end_resource(resource, schema_url);
  }

  // ScopeSpans and ScopeLogs
  template <typename Record, typename Visitor>
  void scope_records(Reader in, Visitor& visitor, int depth) {
    Scope scope;
    Text schema_url;
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(1, kBytes): {
          current_ = &context_;
          const Reader body = message(in, depth);
          scope.weight += weight_of(body.rest());
          parse_scope(body, scope, depth - 1);
          break;
        }
        case tag_of(2, kBytes): {
          if (left_.records-- == 0) throw TooMany::kRecords;
          const Text bytes = message(in, depth).rest();
          const Record read = record<Record>(bytes);
          visitor.record(read, bytes, amounts_);
          break;
        }
        case tag_of(3, kBytes):
          schema_url = text(in);
          scope.weight += weight_of(schema_url);
          break;
        default:
          in.skip(tag, depth);
      }
    }
    visitor.end_scope(scope, schema_url);
  }

  void parse(Reader in, Span& span, int depth) {
    uint64_t attributes = 0;
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(1, kBytes):
          span.trace_id = bytes(in);
          break;
        case tag_of(2, kBytes):
          span.span_id = bytes(in);
          break;
        case tag_of(3, kBytes):
          span.trace_state = text(in);
          break;
        case tag_of(4, kBytes):
          span.parent_span_id = bytes(in);
          break;
        case tag_of(5, kBytes):
          span.name = text(in);
          break;
        case tag_of(6, kVarint):
          span.kind = static_cast<int32_t>(in.varint());
          break;
        case tag_of(7, kFixed64):
          span.start_time_unix_nano = in.fixed64();
          break;
        case tag_of(8, kFixed64):
          span.end_time_unix_nano = in.fixed64();
          break;
        case tag_of(9, kBytes):
          parse_pair(in, span.attributes, depth);
          ++attributes;
          break;
        case tag_of(10, kVarint):
          span.dropped_attributes_count = static_cast<uint32_t>(in.varint());
          break;
        case tag_of(11, kBytes):
          parse_event(in, span, depth);
          break;
        case tag_of(12, kVarint):
          span.dropped_events_count = static_cast<uint32_t>(in.varint());
          break;
        case tag_of(13, kBytes):
          parse_link(in, span, depth);
          break;
        case tag_of(14, kVarint):
          span.dropped_links_count = static_cast<uint32_t>(in.varint());
          break;
        case tag_of(15, kBytes):
          parse_status(message(in, depth), span, depth - 1);
          break;
        case tag_of(16, kFixed32):
          span.flags = in.fixed32();
          break;
        default:
          in.skip(tag, depth);
      }
    }
    note_attributes(attributes);
  }

  void parse(Reader in, LogRecord& record, int depth) {
    uint64_t attributes = 0;
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(1, kFixed64):
          record.time_unix_nano = in.fixed64();
          break;
        case tag_of(2, kVarint):
          record.severity_number = static_cast<int32_t>(in.varint());
          break;
        case tag_of(3, kBytes):
          record.severity_text = text(in);
          break;
        case tag_of(5, kBytes):
          record.has_body = true;
          parse_value(message(in, depth), record.body, depth - 1);
          break;
        case tag_of(6, kBytes):
          parse_pair(in, record.attributes, depth);
          ++attributes;
          break;
        case tag_of(7, kVarint):
          record.dropped_attributes_count = static_cast<uint32_t>(in.varint());
          break;
        case tag_of(8, kFixed32):
          record.flags = in.fixed32();
          break;
        case tag_of(9, kBytes):
          record.trace_id = bytes(in);
          break;
        case tag_of(10, kBytes):
          record.span_id = bytes(in);
          break;
        case tag_of(11, kFixed64):
          record.observed_time_unix_nano = in.fixed64();
          break;
        case tag_of(12, kBytes):
          record.event_name = text(in);
          break;
        default:
          in.skip(tag, depth);
      }
    }
    note_attributes(attributes);
  }

  void parse_status(Reader in, Span& span, int depth) {
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(2, kBytes):
          span.status_message = text(in);
          break;
        case tag_of(3, kVarint):
          span.status_code = static_cast<int32_t>(in.varint());
          break;
        default:
          in.skip(tag, depth);
      }
    }
  }

  void parse_event(Reader& outer, Span& span, int outer_depth) {
    Reader in = message(outer, outer_depth);
    const int depth = outer_depth - 1;
    Event scratch;
    Event& event = add(span.events, scratch);
    uint64_t attributes = 0;
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(1, kFixed64):
          event.time_unix_nano = in.fixed64();
          break;
        case tag_of(2, kBytes):
          event.name = text(in);
          break;
        case tag_of(3, kBytes):
          parse_pair(in, event.attributes, depth);
          ++attributes;
          break;
        case tag_of(4, kVarint):
          event.dropped_attributes_count = static_cast<uint32_t>(in.varint());
          break;
        default:
          in.skip(tag, depth);
      }
    }
    if constexpr (kCountsItems) ++amounts_.events;
    note_attributes(attributes);
    span.has_late_event |= event.time_unix_nano > INT64_MAX;
  }

  void parse_link(Reader& outer, Span& span, int outer_depth) {
    Reader in = message(outer, outer_depth);
    const int depth = outer_depth - 1;
    Link scratch;
    Link& link = add(span.links, scratch);
    uint64_t attributes = 0;
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(1, kBytes):
          link.trace_id = bytes(in);
          break;
        case tag_of(2, kBytes):
          link.span_id = bytes(in);
          break;
        case tag_of(3, kBytes):
          link.trace_state = text(in);
          break;
        case tag_of(4, kBytes):
          parse_pair(in, link.attributes, depth);
          ++attributes;
          break;
        case tag_of(5, kVarint):
          link.dropped_attributes_count = static_cast<uint32_t>(in.varint());
          break;
        case tag_of(6, kFixed32):
          link.flags = in.fixed32();
          break;
        default:
          in.skip(tag, depth);
      }
    }
    if constexpr (kCountsItems) ++amounts_.links;
    note_attributes(attributes);
    if (span.link_fault == kSound) span.link_fault = Span::fault_of_link(link);
  }

  void parse_resource(Reader in, Resource& resource, int depth) {
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(1, kBytes):
          parse_pair(in, resource.attributes, depth);
          ++resource.attribute_count;
          break;
        case tag_of(2, kVarint):
          resource.dropped_attributes_count = static_cast<uint32_t>(in.varint());
          break;
        case tag_of(3, kBytes):
          parse_entity_ref(message(in, depth), resource, depth - 1);
          break;
        default:
          in.skip(tag, depth);
      }
    }
  }

  void parse_entity_ref(Reader in, Resource& resource, int depth) {
    EntityRef scratch;
    EntityRef& entity = add(resource.entity_refs, scratch);
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(1, kBytes):
          entity.schema_url = text(in);
          break;
        case tag_of(2, kBytes):
          entity.type = text(in);
          break;
        case tag_of(3, kBytes):
          parse_text_item(in, entity.id_keys);
          break;
        case tag_of(4, kBytes):
          parse_text_item(in, entity.description_keys);
          break;
        default:
          in.skip(tag, depth);
      }
    }
  }

  void parse_text_item(Reader& in, List<TextItem>& items) {
    count_message();
    TextItem scratch;
    add(items, scratch).text = text(in);
  }

  void parse_scope(Reader in, Scope& scope, int depth) {
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(1, kBytes):
          scope.name = text(in);
          break;
        case tag_of(2, kBytes):
          scope.version = text(in);
          break;
        case tag_of(3, kBytes):
          parse_pair(in, scope.attributes, depth);
          ++scope.attribute_count;
          break;
        case tag_of(4, kVarint):
          scope.dropped_attributes_count = static_cast<uint32_t>(in.varint());
          break;
        default:
          in.skip(tag, depth);
      }
    }
  }

  void parse_pair(Reader& outer, List<KeyValue>& pairs, int outer_depth) {
    if (passes_over()) {
      outer.bytes();
      return;
    }
    Reader in = message(outer, outer_depth);
    const int depth = outer_depth - 1;
    KeyValue scratch;
    KeyValue& pair = add(pairs, scratch);
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(1, kBytes):
          pair.key = text(in);
          break;
        case tag_of(2, kBytes):
          parse_value(message(in, depth), pair.value, depth - 1);
          break;
        default:
          in.skip(tag, depth);
      }
    }
  }

  // AnyValue: whatever member of the oneof comes last stays; an array or a list of pairs that comes
  // right after its like is merged with it.
  void parse_value(Reader in, Value& value, int depth) {
    if (passes_over()) return;
    while (!in.done()) {
      switch (const uint32_t tag = in.tag()) {
        case tag_of(1, kBytes):
          value.become_text(Value::kString, text(in));
          break;
        case tag_of(2, kVarint):
          value.become_integer(Value::kBool, in.varint() != 0);
          break;
        case tag_of(3, kVarint):
          value.become_integer(Value::kInt, static_cast<int64_t>(in.varint()));
          break;
        case tag_of(4, kFixed64):
          value.become_number(in.float64());
          break;
        case tag_of(5, kBytes):
          value.become_list(Value::kArray);
          parse_array(message(in, depth), value.items, depth - 1);
          break;
        case tag_of(6, kBytes):
          value.become_list(Value::kPairs);
          parse_pairs(message(in, depth), value.items, depth - 1);
          break;
        case tag_of(7, kBytes):
          value.become_text(Value::kBytes, bytes(in));
          break;
        case tag_of(8, kVarint):  // string_value_strindex, which belongs to the profiling signal
          in.varint();
          value.become_integer(Value::kNothing, 0);
          break;
        default:
          in.skip(tag, depth);
      }
    }
  }

  void parse_array(Reader in, List<KeyValue>& items, int depth) {
    while (!in.done()) {
      const uint32_t tag = in.tag();
      if (tag == tag_of(1, kBytes)) {
        const Reader item = message(in, depth);
        KeyValue scratch;
        parse_value(item, add(items, scratch).value, depth - 1);
      } else {
        in.skip(tag, depth);
      }
    }
  }

  void parse_pairs(Reader in, List<KeyValue>& pairs, int depth) {
    while (!in.done()) {
      const uint32_t tag = in.tag();
      if (tag == tag_of(1, kBytes)) {
        parse_pair(in, pairs, depth);
      } else {
        in.skip(tag, depth);
      }
    }
  }

  // The message in the field whose tag was read.
  Reader message(Reader& in, int depth) {
    if (depth == 0) throw Malformed{};
    count_message();
    const Text body = in.bytes();
    return {body.data, body.size};
  }

  void count_message() {
    if (left_.messages-- == 0) throw TooMany::kMessages;
  }

  void note_attributes(uint64_t attributes) {
    if constexpr (kPurpose == Purpose::kMeasure) {
      amounts_.attributes = std::max(amounts_.attributes, attributes);
    }
  }

  // Whether what is inside the attributes of a record is for a later walk to read.
  bool passes_over() const { return kPurpose == Purpose::kLocate && current_ == &records_; }

  Text text(Reader& in) {
    constexpr bool kIsChecked = kPurpose == Purpose::kJudge || kPurpose == Purpose::kIndex;
    return kIsChecked ? in.string() : bytes(in);
  }

  Text bytes(Reader& in) {
    const Text bytes = in.bytes();
    if constexpr (kPurpose == Purpose::kMeasure) {
      amounts_.longest = std::max(amounts_.longest, bytes.size);
    }
    return bytes;
  }

  // A new item of a list; one that nobody will look at is `scratch`.
  template <typename T>
  T& add(List<T>& list, T& scratch) {
    if (kPurpose == Purpose::kJudge || kPurpose == Purpose::kMeasure ||
        ((kPurpose == Purpose::kIndex || kPurpose == Purpose::kLocate) && current_ == &records_)) {
      return scratch;
    }
    T* const item = current_->make<T>();
    list.append(item);
    return *item;
  }

  Limits left_;
  Amounts amounts_;
  Arena context_;  // resource and scope
  Arena records_;
  Arena* current_ = nullptr;
};

// What intake says of a request.
template <typename Record>
class Judge {
 public:
  // Reason and how many records it hit, in the order in which the reasons were met first.
  using Counts = std::vector<std::pair<int, uint64_t>>;
  // What is over a limit, by its number among its like in the request.
  using Numbers = std::vector<uint64_t>;

  explicit Judge(const Limits& limits)
      : limits_(limits),
        most_items_(std::min({limits.attributes, limits.events, limits.links,
                              limits.record_messages})) {}

  void record(const Record& record, const Text& bytes, const Amounts& amounts) {
    const uint64_t number = records_++;
    if (const int fault = record.fault(); fault != kSound) {
      count(rejected, fault);
    } else if (const int excess = excess_of(bytes, amounts.messages); excess != kSound) {
      count(rejected, excess);
      over_records.push_back(number);
    } else {
      ++in_scope_.accepted;
      if (const int warning = record.warning(); warning != kSound) {
        count(in_scope_.warnings, warning);
      }
    }
  }
  // Records of an owner that cannot be stored cannot be, either.
  void end_scope(const Scope& scope, const Text&) {
    close(in_scope_, in_resource_, scope.is_over(limits_), kLargeScope, over_scopes, scopes_++);
  }
  void end_resource(const Resource& resource, const Text&) {
    close(in_resource_, all_, resource.is_over(limits_), kLargeResource, over_resources,
          resources_++);
  }

  uint64_t accepted() const { return all_.accepted; }
  const Counts& warnings() const { return all_.warnings; }
  Counts rejected;
  Numbers over_records, over_scopes, over_resources;

 private:
  struct Tally {
    uint64_t accepted = 0;
    Counts warnings;
  };

  int excess_of(const Text& bytes, uint64_t messages) {
    // Nearly all records are too small to be over any limit.
    if (messages <= most_items_ && bytes.size <= limits_.value_bytes &&
        kRowWeight + kItemWeight * messages + kMostOfAByte * bytes.size <= limits_.record_bytes) {
      return kSound;
    }
    measure_.template record<Record>(bytes);
    const Amounts& amounts = measure_.amounts();
    if (amounts.attributes > limits_.attributes) return kManyAttributes;
    if (amounts.events > limits_.events) return kManyEvents;
    if (amounts.links > limits_.links) return kManyLinks;
    if (amounts.messages > limits_.record_messages) return kManyMessages;
    if (amounts.longest > limits_.value_bytes) return kLongValue;
    return amounts.weight(bytes) > limits_.record_bytes ? kLargeRecord : kSound;
  }

  void close(Tally& inner, Tally& outer, bool is_over, int reason, Numbers& over, uint64_t number) {
    if (is_over) {
      over.push_back(number);
      if (inner.accepted > 0) count(rejected, reason, inner.accepted);
    } else {
      outer.accepted += inner.accepted;
      for (const auto& [warning, times] : inner.warnings) count(outer.warnings, warning, times);
    }
    inner.accepted = 0;
    inner.warnings.clear();
  }

  static void count(Counts& counts, int reason, uint64_t times = 1) {
    for (auto& [known, number] : counts) {
      if (known == reason) {
        number += times;
        return;
      }
    }
    counts.emplace_back(reason, times);
  }

  const Limits limits_;
  const uint64_t most_items_;
  Parser<Purpose::kMeasure> measure_{kNoLimits};
  Tally in_scope_, in_resource_, all_;
  uint64_t records_ = 0, scopes_ = 0, resources_ = 0;
};

}  // namespace toolverdict
