// Rows of the lake: records of otlp.h to columns in the order of an Arrow schema.
//
// A request that comes is only indexed: where its records are and how they sort. They are decoded
// when their order is known, each to its place, as moving wide rows about costs more than a look at
// their keys.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"

namespace toolverdict {

// The schema and this code do not belong together; the text is the column at fault.
struct SchemaMismatch {
  std::string column;
};

// The columns that this code fills by itself, by name. All others of the schema of spans are
// promoted attributes, so a new one of those takes no change here.
struct Columns {
  Column *trace_id, *span_id, *parent_span_id, *trace_state, *flags, *name, *kind;
  Column *start_time, *end_time, *start_time_unix_nano, *end_time_unix_nano;
  Column *status_code, *status_message, *attributes, *dropped_attributes_count;
  Column *events, *dropped_events_count, *links, *dropped_links_count;
  Column *time, *observed_time, *time_unix_nano, *observed_time_unix_nano;
  Column *severity_number, *severity_text, *event_name, *body;
  Column *resource_attributes, *resource_dropped_attributes_count, *resource_entity_refs;
  Column *resource_schema_url, *scope_name, *scope_version, *scope_attributes;
  Column *scope_dropped_attributes_count, *scope_schema_url, *service_name;
  Column* received_time_unix_nano;
};

constexpr Text kServiceName{"service.name", 12};

enum Signal : int { kTraces = 1, kLogs = 2 };

struct ColumnSpec {
  std::string_view name;
  Type type;
  int signals;
  Column* Columns::* place;
};

constexpr int kBoth = kTraces | kLogs;

constexpr ColumnSpec kColumns[] = {
    {"trace_id", Type::kText, kBoth, &Columns::trace_id},
    {"span_id", Type::kText, kBoth, &Columns::span_id},
    {"parent_span_id", Type::kText, kTraces, &Columns::parent_span_id},
    {"trace_state", Type::kWord, kTraces, &Columns::trace_state},
    {"flags", Type::kUint32, kBoth, &Columns::flags},
    {"name", Type::kWord, kTraces, &Columns::name},
    {"kind", Type::kInt32, kTraces, &Columns::kind},
    {"start_time", Type::kTime, kTraces, &Columns::start_time},
    {"end_time", Type::kTime, kTraces, &Columns::end_time},
    {"start_time_unix_nano", Type::kInt64, kTraces, &Columns::start_time_unix_nano},
    {"end_time_unix_nano", Type::kInt64, kTraces, &Columns::end_time_unix_nano},
    {"status_code", Type::kInt32, kTraces, &Columns::status_code},
    {"status_message", Type::kText, kTraces, &Columns::status_message},
    {"attributes", Type::kLongText, kBoth, &Columns::attributes},
    {"dropped_attributes_count", Type::kUint32, kBoth, &Columns::dropped_attributes_count},
    {"events", Type::kLongText, kTraces, &Columns::events},
    {"dropped_events_count", Type::kUint32, kTraces, &Columns::dropped_events_count},
    {"links", Type::kLongText, kTraces, &Columns::links},
    {"dropped_links_count", Type::kUint32, kTraces, &Columns::dropped_links_count},
    {"time", Type::kTime, kLogs, &Columns::time},
    {"observed_time", Type::kTime, kLogs, &Columns::observed_time},
    {"time_unix_nano", Type::kInt64, kLogs, &Columns::time_unix_nano},
    {"observed_time_unix_nano", Type::kInt64, kLogs, &Columns::observed_time_unix_nano},
    {"severity_number", Type::kInt32, kLogs, &Columns::severity_number},
    {"severity_text", Type::kWord, kLogs, &Columns::severity_text},
    {"event_name", Type::kWord, kLogs, &Columns::event_name},
    {"body", Type::kLongText, kLogs, &Columns::body},
    {"resource_attributes", Type::kWord, kBoth, &Columns::resource_attributes},
    {"resource_dropped_attributes_count", Type::kUint32, kBoth,
     &Columns::resource_dropped_attributes_count},
    {"resource_entity_refs", Type::kWord, kBoth, &Columns::resource_entity_refs},
    {"resource_schema_url", Type::kWord, kBoth, &Columns::resource_schema_url},
    {"scope_name", Type::kWord, kBoth, &Columns::scope_name},
    {"scope_version", Type::kWord, kBoth, &Columns::scope_version},
    {"scope_attributes", Type::kWord, kBoth, &Columns::scope_attributes},
    {"scope_dropped_attributes_count", Type::kUint32, kBoth,
     &Columns::scope_dropped_attributes_count},
    {"scope_schema_url", Type::kWord, kBoth, &Columns::scope_schema_url},
    {"service_name", Type::kWord, kBoth, &Columns::service_name},
    {"received_time_unix_nano", Type::kInt64, kBoth, &Columns::received_time_unix_nano},
};

// The type of a column from its format string in the Arrow C data interface.
inline Type type_of(const ArrowSchema& field) {
  const std::string_view format = field.format;
  if (field.dictionary != nullptr) {
    if (format == "i" && std::string_view(field.dictionary->format) == "u") return Type::kWord;
  } else if (format == "u") {
    return Type::kText;
  } else if (format == "U") {
    return Type::kLongText;
  } else if (format == "I") {
    return Type::kUint32;
  } else if (format == "i") {
    return Type::kInt32;
  } else if (format == "l") {
    return Type::kInt64;
  } else if (format == "tsu:UTC") {
    return Type::kTime;
  }
  throw SchemaMismatch{field.name};
}

// What all records of a resource, or of a scope, have in common: words of some columns.
template <size_t kWords>
struct Context {
  std::array<Text, kWords> words;  // null without data; in the request, or in `own`
  std::array<int32_t, kWords> indices;  // of the words in the dictionaries of `indexed_for`
  uint64_t indexed_for = 0;             // the table of these dictionaries
  std::unique_ptr<char[]> own;
  uint32_t dropped_attributes_count = 0;

  void set(size_t word, const Text& text) {
    words[word] = text.data == nullptr ? Text{"", 0} : text;
  }
};

enum ResourceWord { kAttributesOfResource, kEntityRefs, kSchemaOfResource, kService, kResourceWords };
enum ScopeWord { kScopeName, kScopeVersion, kAttributesOfScope, kSchemaOfScope, kScopeWords };

struct ResourceContext : Context<kResourceWords> {};

struct ScopeContext : Context<kScopeWords> {
  size_t resource = 0;
  int64_t received_unix_nano = 0;
};

// A record that was indexed. Big-endian ids as numbers sort as their hex digits do.
struct Entry {
  Text bytes;
  size_t scope = 0;
  uint64_t weight = 0;
  uint64_t trace_id_high = 0;
  uint64_t trace_id_low = 0;
  uint64_t span_id = 0;  // of log records 0: they do not sort by it
  int64_t time = 0;
  bool has_trace_id = false;

  uint64_t bucket(uint64_t buckets) const { return has_trace_id ? trace_id_low % buckets : 0; }
};

// Takes the requests of one signal and has the columns of their sound records.
class RowBuilder {
 public:
  // `judged` says that intake has judged each request that will be fed. What is wrong with a record
  // all the same is then told when it is taken, if it is no protobuf, and never, if it is no UTF-8.
  RowBuilder(Signal signal, bool judged, const ArrowSchema& schema, Hasher hasher)
      : signal_(signal), judged_(judged), keys_(hasher), writer_(keys_) {
    columns_.reserve(static_cast<size_t>(schema.n_children));  // they must not move
    for (int64_t i = 0; i < schema.n_children; ++i) {
      const ArrowSchema& field = *schema.children[i];
      Column& column = columns_.emplace_back(type_of(field), hasher);
      const std::string_view name = field.name;
      if (!place(name, column)) promote(name, column);
    }
    for (const ColumnSpec& spec : kColumns) {
      if ((spec.signals & signal) != 0 && at_.*spec.place == nullptr) {
        throw SchemaMismatch{std::string(spec.name)};
      }
    }
  }

  // Records that wait to be taken.
  size_t rows() const { return entries_.size(); }

  // How many of the first records are so many rows, or of so much weight; 0 when all of them are
  // neither.
  size_t full_part(size_t rows, uint64_t weight) const {
    if (entries_.size() < rows && weight_ < weight) return 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < entries_.size(); ++i) {
      sum += entries_[i].weight;
      if (i + 1 == rows || sum >= weight) return i + 1;
    }
    return 0;
  }

  // Indexes the records of one request; all of them, or none when it throws. The body has to stay
  // where it is, and as it is, until they are taken.
  void feed(const Text& body, int64_t received_unix_nano) {
    const size_t entries = entries_.size(), scopes = scopes_.size(), resources = resources_.size();
    const uint64_t weight = weight_;
    scope_begin_ = resource_begin_ = entries;
    received_ = received_unix_nano;
    forget_keys_when_full();
    try {
      const Reader in(body.data, body.size);
      if (judged_) {
        index(locate_, in);
      } else {
        index(index_, in);
      }
    } catch (...) {
      entries_.resize(entries);
      scopes_.resize(scopes);
      resources_.resize(resources);
      weight_ = weight;
      throw;
    }
  }

  // All records in the order of arrival, as an Arrow array of structs.
  void take(ArrowArray* array) {
    std::vector<size_t> order(entries_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    decode(order, array);
    forget(entries_.size());
  }

  // The first `count` records as the lake has them: `part(bucket)` gives the place for the array of
  // every bucket that has any, in which they are sorted; equal ones stay in the order of arrival.
  template <typename Part>
  void take_sorted(size_t count, size_t buckets, Part part) {
    count = std::min(count, entries_.size());
    struct Key {
      uint64_t high;
      size_t entry;
    };
    std::vector<std::vector<Key>> members(buckets);
    for (size_t i = 0; i < count; ++i) {
      members[entries_[i].bucket(buckets)].push_back({entries_[i].trace_id_high, i});
    }
    std::vector<size_t> order;
    for (size_t bucket = 0; bucket < buckets; ++bucket) {
      std::vector<Key>& keys = members[bucket];
      if (keys.empty()) continue;
      std::sort(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
        const Entry &x = entries_[a.entry], &y = entries_[b.entry];
        if (x.has_trace_id != y.has_trace_id) return x.has_trace_id;  // null comes last
        if (a.high != b.high) return a.high < b.high;
        if (x.trace_id_low != y.trace_id_low) return x.trace_id_low < y.trace_id_low;
        if (x.time != y.time) return x.time < y.time;
        if (x.span_id != y.span_id) return x.span_id < y.span_id;
        return a.entry < b.entry;
      });
      order.clear();
      for (const Key& key : keys) order.push_back(key.entry);
      decode(order, part(bucket));
    }
    forget(count);
  }

  // The visitor of the parser that indexes.
  void record(const Span& span, const Text& bytes, const Amounts& amounts) {
    if (span.fault() == kSound) {
      add(bytes, amounts, span.trace_id, static_cast<int64_t>(span.start_time_unix_nano))
          .span_id = big_endian(span.span_id.data);
    }
  }
  void record(const LogRecord& record, const Text& bytes, const Amounts& amounts) {
    if (record.fault() == kSound) {
      add(bytes, amounts, record.trace_id, static_cast<int64_t>(record.time_unix_nano));
    }
  }
  // What scopes and resources say of themselves is kept only when they have records.
  void end_scope(const Scope& scope, const Text& schema_url) {
    if (!begins_at(scope_begin_, scope)) return;
    ScopeContext& context = scopes_.emplace_back();
    context.resource = first_resource_ + resources_.size();  // which the end of it will add
    context.received_unix_nano = received_;
    context.dropped_attributes_count = scope.dropped_attributes_count;
    context.set(kScopeName, scope.name);
    context.set(kScopeVersion, scope.version);
    context.set(kSchemaOfScope, schema_url);
    scratch_.truncate(0);
    writer_.attributes(scratch_, scope.attributes);
    own(context, {{kAttributesOfScope, 0, scratch_.size()}});
  }
  void end_resource(const Resource& resource, const Text& schema_url) {
    if (!begins_at(resource_begin_, resource)) return;
    ResourceContext& context = resources_.emplace_back();
    context.dropped_attributes_count = resource.dropped_attributes_count;
    context.set(kSchemaOfResource, schema_url);
    scratch_.truncate(0);
    const bool repeats = writer_.resolve(resource.attributes);
    const bool as_pairs = writer_.pairs(scratch_, resource.attributes, repeats, JsonWriter::all);
    const size_t end = scratch_.size();
    const KeyValue* pair = as_pairs ? nullptr : resource.attributes.first;
    for (; pair != nullptr; pair = pair->next) {
      if (pair->value.kind == Value::kString && pair->key == kServiceName) {
        context.set(kService, pair->value.text);
      }
    }
    if (resource.entity_refs.first == nullptr) {
      own(context, {{kAttributesOfResource, 0, end}});
    } else {
      writer_.entity_refs(scratch_, resource.entity_refs);
      own(context, {{kAttributesOfResource, 0, end}, {kEntityRefs, end, scratch_.size()}});
    }
  }

 private:
  template <typename Walk>
  void index(Walk& walk, const Reader& in) {
    if (signal_ == kTraces) {
      walk.template request<Span>(in, *this);
    } else {
      walk.template request<LogRecord>(in, *this);
    }
  }

  bool place(std::string_view name, Column& column) {
    for (const ColumnSpec& spec : kColumns) {
      if (spec.name == name && (spec.signals & signal_) != 0) {
        if (spec.type != column.type()) throw SchemaMismatch{std::string(name)};
        at_.*spec.place = &column;
        return true;
      }
    }
    return false;
  }

  void promote(std::string_view name, Column& column) {
    const Type type = column.type();
    if (signal_ != kTraces ||
        (type != Type::kText && type != Type::kLongText && type != Type::kWord)) {
      throw SchemaMismatch{std::string(name)};
    }
    keys_.promote({name.data(), name.size()}, &column);
  }

  // In hex; null when absent, of another length or all zero.
  void append_id(Column* column, const Text& id, size_t size) {
    if (id.size != size || is_zero(id)) return;
    append_hex(column->open_text(rows_), id);
    column->close_text();
  }

  void append_time(Column* microseconds, Column* nanoseconds, uint64_t unix_nano) {
    const auto time = static_cast<int64_t>(unix_nano);  // below 2^63: the record is sound
    nanoseconds->append_number(rows_, time);
    if (time != 0) microseconds->append_number(rows_, time / 1000);
  }

  // Whether a scope or a resource has records, the first of which takes its weight, too.
  bool begins_at(size_t& begin, const Owner& owner) {
    const bool has_records = begin < entries_.size();
    if (has_records) {
      entries_[begin].weight += owner.weight;
      weight_ += owner.weight;
      begin = entries_.size();
    }
    return has_records;
  }

  // A word of a context and where its text is in `scratch_`.
  struct OwnWord {
    size_t word, begin, end;
  };

  template <size_t kWords>
  void own(Context<kWords>& context, std::initializer_list<OwnWord> words) {
    context.own = std::make_unique<char[]>(scratch_.size());
    std::memcpy(context.own.get(), scratch_.data(), scratch_.size());
    for (const auto& [word, begin, end] : words) {
      context.words[word] = {context.own.get() + begin, end - begin};
    }
  }

  Entry& add(const Text& bytes, const Amounts& amounts, const Text& trace_id, int64_t time) {
    Entry& entry = entries_.emplace_back();
    entry.bytes = bytes;
    entry.scope = first_scope_ + scopes_.size();  // which the end of the scope will add
    entry.weight = amounts.weight(bytes);
    weight_ += entry.weight;
    entry.time = time;
    entry.has_trace_id = trace_id.size == kTraceIdBytes && !is_zero(trace_id);
    if (entry.has_trace_id) {
      entry.trace_id_high = big_endian(trace_id.data);
      entry.trace_id_low = big_endian(trace_id.data + 8);
    }
    return entry;
  }

  static uint64_t big_endian(const char* bytes) {
    return __builtin_bswap64(load<uint64_t>(bytes));
  }

  // The rows of these entries, in this order, as an Arrow array of structs.
  void decode(const std::vector<size_t>& order, ArrowArray* array) {
    ++table_;
    constexpr size_t kSample = 1024;
    constexpr size_t kAhead = 2;
    for (rows_ = 0; rows_ < order.size(); ++rows_) {
      if (rows_ == kSample) {
        for (Column& column : columns_) column.expect(order.size());
      }
      forget_keys_when_full();
      if (rows_ + kAhead < order.size()) prefetch(entries_[order[rows_ + kAhead]].bytes);
      const Entry& entry = entries_[order[rows_]];
      if (signal_ == kTraces) {
        append(decode_.template record<Span>(entry.bytes));
      } else {
        append(decode_.template record<LogRecord>(entry.bytes));
      }
      append_context(scopes_[entry.scope - first_scope_]);
    }
    auto owned = std::make_unique<Owned>();
    owned->buffers.emplace_back();
    for (Column& column : columns_) {
      column.pad(rows_);
      owned->children.push_back(std::make_unique<ArrowArray>());
      column.move_to(owned->children.back().get());
    }
    Owned::give(std::move(owned), array, rows_, 0);
  }

  // Asks for a record before it is read: in the order of the lake none is near the one before it.
  static void prefetch(const Text& bytes) {
    constexpr size_t kLine = 64, kMost = 4096;
    for (size_t at = 0; at < std::min(bytes.size, kMost); at += kLine) {
      __builtin_prefetch(bytes.data + at);
    }
  }

  void append(const Span& span) {
    const size_t row = rows_;
    append_id(at_.trace_id, span.trace_id, kTraceIdBytes);
    append_id(at_.span_id, span.span_id, kSpanIdBytes);
    append_id(at_.parent_span_id, span.parent_span_id, kSpanIdBytes);
    at_.trace_state->append_text(row, span.trace_state);
    at_.flags->append_number(row, span.flags);
    at_.name->append_text(row, span.name);
    at_.kind->append_number(row, span.kind);
    append_time(at_.start_time, at_.start_time_unix_nano, span.start_time_unix_nano);
    append_time(at_.end_time, at_.end_time_unix_nano, span.end_time_unix_nano);
    at_.status_code->append_number(row, span.status_code);
    at_.status_message->append_text(row, span.status_message);
    append_promoting(span.attributes);
    at_.dropped_attributes_count->append_number(row, span.dropped_attributes_count);
    if (span.events.first != nullptr) {
      writer_.events(at_.events->open_text(row), span.events);
      at_.events->close_text();
    }
    at_.dropped_events_count->append_number(row, span.dropped_events_count);
    if (span.links.first != nullptr) {
      writer_.links(at_.links->open_text(row), span.links);
      at_.links->close_text();
    }
    at_.dropped_links_count->append_number(row, span.dropped_links_count);
  }
  void append(const LogRecord& record) {
    const size_t row = rows_;
    append_id(at_.trace_id, record.trace_id, kTraceIdBytes);
    append_id(at_.span_id, record.span_id, kSpanIdBytes);
    append_time(at_.time, at_.time_unix_nano, record.time_unix_nano);
    append_time(at_.observed_time, at_.observed_time_unix_nano, record.observed_time_unix_nano);
    at_.severity_number->append_number(row, record.severity_number);
    at_.severity_text->append_text(row, record.severity_text);
    at_.event_name->append_text(row, record.event_name);
    if (record.has_body) {
      writer_.value(at_.body->open_text(row), record.body);
      at_.body->close_text();
    }
    writer_.attributes(at_.attributes->open_text(row), record.attributes);
    at_.attributes->close_text();
    at_.dropped_attributes_count->append_number(row, record.dropped_attributes_count);
    at_.flags->append_number(row, record.flags);
  }

  void append_context(ScopeContext& scope) {
    ResourceContext& resource = resources_[scope.resource - first_resource_];
    append_words(scope, {at_.scope_name, at_.scope_version, at_.scope_attributes,
                         at_.scope_schema_url});
    append_words(resource, {at_.resource_attributes, at_.resource_entity_refs,
                            at_.resource_schema_url, at_.service_name});
    at_.scope_dropped_attributes_count->append_number(rows_, scope.dropped_attributes_count);
    at_.resource_dropped_attributes_count->append_number(rows_, resource.dropped_attributes_count);
    at_.received_time_unix_nano->append_number(rows_, scope.received_unix_nano);
  }

  template <size_t kWords>
  void append_words(Context<kWords>& context, const std::array<Column*, kWords>& columns) {
    if (context.indexed_for != table_) {
      context.indexed_for = table_;
      for (size_t i = 0; i < kWords; ++i) {
        const Text& word = context.words[i];
        if (word.data != nullptr) context.indices[i] = columns[i]->index_of(word);
      }
    }
    for (size_t i = 0; i < kWords; ++i) {
      if (context.words[i].data != nullptr) columns[i]->append_number(rows_, context.indices[i]);
    }
  }

  // Forgets the first entries, and the contexts that no other needs.
  void forget(size_t count) {
    for (size_t i = 0; i < count; ++i) weight_ -= entries_[i].weight;
    forget_first(entries_, count);
    const size_t scopes = entries_.empty() ? scopes_.size() : entries_.front().scope - first_scope_;
    first_scope_ += forget_first(scopes_, scopes);
    const size_t resources =
        scopes_.empty() ? resources_.size() : scopes_.front().resource - first_resource_;
    first_resource_ += forget_first(resources_, resources);
  }
  template <typename T>
  static size_t forget_first(std::vector<T>& items, size_t count) {
    items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

  // Between two records no tree has keys that were resolved.
  void forget_keys_when_full() {
    if (keys_.is_full()) keys_.forget();
  }

  // Promoted attributes to their columns, the others to JSON.
  void append_promoting(const List<KeyValue>& attributes) {
    const bool repeats = writer_.resolve(attributes);
    const auto stays = [&](const KeyValue& pair) {
      return repeats || pair.value.kind != Value::kString || pair.known == nullptr ||
             pair.known->column == nullptr;
    };
    for (const KeyValue* pair = attributes.first; pair != nullptr; pair = pair->next) {
      if (!stays(*pair)) pair->known->column->append_text(rows_, pair->value.text);
    }
    writer_.pairs(at_.attributes->open_text(rows_), attributes, repeats, stays);
    at_.attributes->close_text();
  }

  Signal signal_;
  bool judged_;
  std::vector<Column> columns_;
  Columns at_{};
  Keys keys_;
  JsonWriter writer_;
  // The log holds only what was judged before it was written: nothing is limited here.
  Parser<Purpose::kIndex> index_{kNoLimits};
  Parser<Purpose::kLocate> locate_{kNoLimits};
  Parser<Purpose::kDecode> decode_{kNoLimits};
  std::vector<Entry> entries_;  // in the order of arrival
  std::vector<ScopeContext> scopes_;
  std::vector<ResourceContext> resources_;
  size_t first_scope_ = 0;     // the numbers of the first ones that were not forgotten
  size_t first_resource_ = 0;
  size_t scope_begin_ = 0;     // the first entry of the scope that is being indexed
  size_t resource_begin_ = 0;  // and of the resource
  uint64_t weight_ = 0;        // of all entries
  int64_t received_ = 0;
  uint64_t table_ = 0;  // the number of the table that is being made
  size_t rows_ = 0;     // which it has
  Buffer scratch_;
};

}  // namespace toolverdict
