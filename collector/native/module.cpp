// The native decoder of toolverdict.collector, as a module of CPython. toolverdict.collector.native
// wraps it; decode.py, in pure Python on the official protobuf, is its referee.
//
//   wire.h     the wire format of protobuf
//   otlp.h     requests: walked, judged, read record by record
//   json.h     attribute values as JSON text
//   columns.h  columns that grow, and the Arrow C data interface
//   rows.h     records to the columns of the lake's schema
//   json_request.h  requests that came as JSON, to the wire format
//
// Nothing here keeps state between calls but a RowBuilder, and no exception leaves this file.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <random>

#include "json_request.h"
#include "rows.h"

namespace toolverdict {
namespace {

// A body of this size is worth letting other threads run meanwhile; for smaller ones, getting the
// interpreter back may take longer than the work.
constexpr Py_ssize_t kReleaseBytes = 64 * 1024;

PyObject* malformed_error = nullptr;
PyObject* too_many_records_error = nullptr;
PyObject* too_many_messages_error = nullptr;

// Runs work without the interpreter where that pays, and turns what it throws into an exception of
// Python. Returns whether it went well.
template <typename Work>
bool run(bool release, Work work) {
  enum { kFine, kMalformed, kRecords, kMessages, kFull, kMemory, kOther } outcome = kFine;
  PyThreadState* const state = release ? PyEval_SaveThread() : nullptr;
  try {
    work();
  } catch (const Malformed&) {
    outcome = kMalformed;
  } catch (const TooMany& kind) {
    outcome = kind == TooMany::kRecords ? kRecords : kMessages;
  } catch (const ColumnFull&) {
    outcome = kFull;
  } catch (const std::bad_alloc&) {
    outcome = kMemory;
  } catch (...) {
    outcome = kOther;
  }
  if (state != nullptr) PyEval_RestoreThread(state);
  switch (outcome) {
    case kFine:
      return true;
    case kMalformed:
      PyErr_SetNone(malformed_error);
      break;
    case kRecords:
      PyErr_SetNone(too_many_records_error);
      break;
    case kMessages:
      PyErr_SetNone(too_many_messages_error);
      break;
    case kFull:
      PyErr_SetString(PyExc_OverflowError, "a column of text exceeds 2 GiB");
      break;
    case kMemory:
      PyErr_NoMemory();
      break;
    case kOther:
      PyErr_SetString(PyExc_SystemError, "the native decoder failed");
  }
  return false;
}

// A Python object's bytes while this lives.
class View {
 public:
  View() = default;
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  ~View() {
    if (buffer.obj != nullptr) PyBuffer_Release(&buffer);
  }
  Text text() const {
    return {static_cast<const char*>(buffer.buf), static_cast<size_t>(buffer.len)};
  }
  Py_buffer buffer{};
};

bool is_signal(int signal) {
  if (signal == kTraces || signal == kLogs) return true;
  PyErr_Format(PyExc_ValueError, "no such signal: %d", signal);
  return false;
}

// Lists of Python.
PyObject* item_of(uint64_t number) { return PyLong_FromUnsignedLongLong(number); }
PyObject* item_of(const std::pair<int, uint64_t>& count) {
  return Py_BuildValue("(iK)", count.first, static_cast<unsigned long long>(count.second));
}

template <typename T>
PyObject* list_of(const std::vector<T>& items) {
  PyObject* const list = PyList_New(static_cast<Py_ssize_t>(items.size()));
  for (size_t i = 0; list != nullptr && i < items.size(); ++i) {
    PyObject* const item = item_of(items[i]);
    if (item == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), item);
  }
  return list;
}

template <typename Record>
PyObject* judge_records(const View& body, Limits limits) {
  Judge<Record> judge(limits);
  const bool fine = run(body.buffer.len >= kReleaseBytes, [&] {
    Parser<Purpose::kJudge>(limits).template request<Record>(
        Reader(body.text().data, body.text().size), judge);
  });
  if (!fine) return nullptr;
  return Py_BuildValue("(KNN(NNN))", static_cast<unsigned long long>(judge.accepted()),
                       list_of(judge.rejected), list_of(judge.warnings()),
                       list_of(judge.over_records), list_of(judge.over_scopes),
                       list_of(judge.over_resources));  // null when one of the lists is
}

PyObject* judge(PyObject*, PyObject* arguments) {
  int signal;
  View body;
  std::array<unsigned long long, 9> given;
  if (!PyArg_ParseTuple(arguments, "iy*(KKKKKKKKK)", &signal, &body.buffer, &given[0], &given[1],
                        &given[2], &given[3], &given[4], &given[5], &given[6], &given[7],
                        &given[8]) ||
      !is_signal(signal)) {
    return nullptr;
  }
  const Limits limits{given[0], given[1], given[2], given[3], given[4],
                      given[5], given[6], given[7], given[8]};
  return signal == kTraces ? judge_records<Span>(body, limits)
                           : judge_records<LogRecord>(body, limits);
}

PyObject* protobuf_of_tree(PyObject*, PyObject* arguments) {
  PyObject *tree, *plan;
  if (!PyArg_ParseTuple(arguments, "OO!", &tree, &PyDict_Type, &plan)) return nullptr;
  TreeWriter writer;
  try {
    writer.message(tree, plan, kMaxDepth);
  } catch (const Unusual&) {
    PyErr_Clear();
    Py_RETURN_NONE;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
  return PyBytes_FromStringAndSize(writer.bytes().data(),
                                   static_cast<Py_ssize_t>(writer.bytes().size()));
}

constexpr Py_ssize_t kMaxBuckets = 256;  // lake/layout.py

constexpr char kSchemaCapsule[] = "arrow_schema";
constexpr char kArrayCapsule[] = "arrow_array";

struct RowBuilderObject {
  PyObject_HEAD
  std::unique_ptr<RowBuilder> builder;
  std::vector<std::unique_ptr<View>> bodies;  // in which the builder will read
  bool is_busy;
};

uint64_t seed_of_process() {
  static const uint64_t seed = [] {
    std::random_device device;
    return static_cast<uint64_t>(device()) << 32 | device();
  }();
  return seed;
}

PyObject* builder_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  int signal, judged;
  PyObject* capsule;
  if (!PyArg_ParseTuple(arguments, "ipO", &signal, &judged, &capsule) || !is_signal(signal)) {
    return nullptr;
  }
  const void* const schema = PyCapsule_GetPointer(capsule, kSchemaCapsule);
  if (schema == nullptr) return nullptr;
  PyObject* const self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  auto* const object = reinterpret_cast<RowBuilderObject*>(self);
  new (&object->builder) std::unique_ptr<RowBuilder>();
  new (&object->bodies) std::vector<std::unique_ptr<View>>();
  object->is_busy = false;
  std::string mismatch;
  const bool fine = run(false, [&] {
    try {
      object->builder = std::make_unique<RowBuilder>(
          static_cast<Signal>(signal), judged != 0,
          *static_cast<const ArrowSchema*>(schema), Hasher(seed_of_process()));
    } catch (const SchemaMismatch& error) {
      mismatch = error.column;
    }
  });
  if (!mismatch.empty()) {
    PyErr_Format(PyExc_ValueError, "the decoder was built for another schema: column %s",
                 mismatch.c_str());
  }
  if (!fine || !mismatch.empty()) {
    Py_DECREF(self);
    return nullptr;
  }
  return self;
}

void builder_dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  auto* const object = reinterpret_cast<RowBuilderObject*>(self);
  object->builder.~unique_ptr();
  object->bodies.~vector();
  type->tp_free(self);
  Py_DECREF(type);
}

// The builder of an object, or null when a second thread calls or an earlier call broke it.
RowBuilder* claim(RowBuilderObject* object) {
  if (object->is_busy || object->builder == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "the builder is in use by another thread, or broken");
    return nullptr;
  }
  object->is_busy = true;
  return object->builder.get();
}

PyObject* builder_feed(PyObject* self, PyObject* arguments) {
  auto body = std::make_unique<View>();
  long long received;
  if (!PyArg_ParseTuple(arguments, "y*L", &body->buffer, &received)) return nullptr;
  if (!body->buffer.readonly) {
    PyErr_SetString(PyExc_TypeError, "the body is read again later: it must be read-only");
    return nullptr;
  }
  auto* const object = reinterpret_cast<RowBuilderObject*>(self);
  RowBuilder* const builder = claim(object);
  if (builder == nullptr) return nullptr;
  const bool fine = run(body->buffer.len >= kReleaseBytes, [&] {
    object->bodies.reserve(object->bodies.size() + 1);
    builder->feed(body->text(), received);
  });
  if (fine) object->bodies.push_back(std::move(body));
  object->is_busy = false;
  if (!fine) return nullptr;
  Py_RETURN_NONE;
}

void release_capsule(PyObject* capsule) {
  const std::unique_ptr<ArrowArray> array(
      static_cast<ArrowArray*>(PyCapsule_GetPointer(capsule, kArrayCapsule)));
  if (array->release != nullptr) array->release(array.get());  // nobody took it
}

// An array as a capsule, which owns it then.
PyObject* capsule_of(std::unique_ptr<ArrowArray> array) {
  PyObject* const capsule = PyCapsule_New(array.get(), kArrayCapsule, release_capsule);
  if (capsule == nullptr) {
    array->release(array.get());
  } else {
    array.release();
  }
  return capsule;
}

// Takes rows out of a builder without the interpreter. What goes wrong leaves some columns moved,
// others not: the builder is of no use then.
template <typename Work>
bool take(RowBuilderObject* object, RowBuilder* builder, Work work) {
  const bool fine = run(true, work);
  object->is_busy = false;
  if (!fine) object->builder.reset();
  if (!fine || builder->rows() == 0) object->bodies.clear();
  return fine;
}

PyObject* builder_take(PyObject* self, PyObject*) {
  auto* const object = reinterpret_cast<RowBuilderObject*>(self);
  RowBuilder* const builder = claim(object);
  if (builder == nullptr) return nullptr;
  auto array = std::make_unique<ArrowArray>();
  if (!take(object, builder, [&] { builder->take(array.get()); })) return nullptr;
  return capsule_of(std::move(array));
}

PyObject* builder_take_sorted(PyObject* self, PyObject* arguments) {
  Py_ssize_t rows, buckets;
  if (!PyArg_ParseTuple(arguments, "nn", &rows, &buckets)) return nullptr;
  if (rows < 0 || buckets < 1 || buckets > kMaxBuckets) {
    PyErr_SetString(PyExc_ValueError, "no such number of rows or buckets");
    return nullptr;
  }
  auto* const object = reinterpret_cast<RowBuilderObject*>(self);
  RowBuilder* const builder = claim(object);
  if (builder == nullptr) return nullptr;
  std::vector<std::pair<size_t, std::unique_ptr<ArrowArray>>> parts;
  bool fine = take(object, builder, [&] {
    const auto part = [&](size_t bucket) {
      return parts.emplace_back(bucket, std::make_unique<ArrowArray>()).second.get();
    };
    builder->take_sorted(static_cast<size_t>(rows), static_cast<size_t>(buckets), part);
  });
  PyObject* const list = fine ? PyList_New(0) : nullptr;
  for (auto& [bucket, array] : parts) {
    if (list == nullptr) {
      if (array->release != nullptr) array->release(array.get());
      continue;
    }
    PyObject* const capsule = capsule_of(std::move(array));
    PyObject* const item =
        capsule == nullptr ? nullptr
                           : Py_BuildValue("(nO)", static_cast<Py_ssize_t>(bucket), capsule);
    fine = item != nullptr && PyList_Append(list, item) == 0 && fine;
    Py_XDECREF(item);
    Py_XDECREF(capsule);
  }
  if (fine && list != nullptr) return list;
  Py_XDECREF(list);
  return nullptr;
}

PyObject* builder_full_part(PyObject* self, PyObject* arguments) {
  Py_ssize_t rows;
  unsigned long long weight;
  if (!PyArg_ParseTuple(arguments, "nK", &rows, &weight)) return nullptr;
  if (rows < 1) {
    PyErr_SetString(PyExc_ValueError, "a part has a row at least");
    return nullptr;
  }
  auto* const object = reinterpret_cast<RowBuilderObject*>(self);
  RowBuilder* const builder = claim(object);
  if (builder == nullptr) return nullptr;
  object->is_busy = false;
  return PyLong_FromSize_t(builder->full_part(static_cast<size_t>(rows), weight));
}

PyObject* builder_rows(PyObject* self, void*) {
  RowBuilder* const builder = claim(reinterpret_cast<RowBuilderObject*>(self));
  if (builder == nullptr) return nullptr;
  reinterpret_cast<RowBuilderObject*>(self)->is_busy = false;
  return PyLong_FromSize_t(builder->rows());
}

PyMethodDef builder_methods[] = {
    {"feed", builder_feed, METH_VARARGS,
     "feed(body, received_unix_nano): add the rows of a request; all of them or, when it is "
     "malformed, none. The body is read again by take()."},
    {"take", builder_take, METH_NOARGS,
     "take(): the rows as a capsule of an ArrowArray; the builder is empty then."},
    {"full_part", builder_full_part, METH_VARARGS,
     "full_part(rows, weight): how many of the first rows are so many, or of so much weight; 0 "
     "when all of them are neither."},
    {"take_sorted", builder_take_sorted, METH_VARARGS,
     "take_sorted(rows, buckets): the first so many rows as a list of (bucket, capsule of an "
     "ArrowArray), sorted as the lake sorts."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef builder_properties[] = {
    {"num_rows", builder_rows, nullptr, "Rows that were not taken yet.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot builder_slots[] = {
    {Py_tp_doc, const_cast<char*>("RowBuilder(signal, judged, schema): schema is a capsule of "
                                  "the signal's ArrowSchema.")},
    {Py_tp_new, reinterpret_cast<void*>(builder_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(builder_dealloc)},
    {Py_tp_methods, builder_methods},
    {Py_tp_getset, builder_properties},
    {0, nullptr},
};

PyType_Spec builder_spec = {
    "toolverdict.collector._decode.RowBuilder",
    sizeof(RowBuilderObject),
    0,
    Py_TPFLAGS_DEFAULT,
    builder_slots,
};

PyMethodDef functions[] = {
    {"judge", judge, METH_VARARGS,
     "judge(signal, body, limits): (accepted, rejected, warnings, over), with limits as a tuple "
     "like limits.Limits. Rejected and warnings are lists of (reason, count) in the order in which "
     "the reasons were met; over are three lists with the numbers of the records, scopes and "
     "resources that are over a limit."},
    {"protobuf_of_tree", protobuf_of_tree, METH_VARARGS,
     "protobuf_of_tree(tree, plan): the message that a JSON tree is, as bytes of protobuf, or None "
     "when something in it is unusual or wrong."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_decode", "OTLP requests judged and decoded to Arrow columns.", -1,
    functions,             nullptr,   nullptr, nullptr, nullptr,
};

// Adds a new exception to the module; the module and `place` both hold it.
bool add_error(PyObject* module, const char* name, PyObject*& place) {
  const std::string full = std::string("toolverdict.collector._decode.") + name;
  place = PyErr_NewException(full.c_str(), nullptr, nullptr);
  return place != nullptr && PyModule_AddObjectRef(module, name, place) == 0;
}

}  // namespace
}  // namespace toolverdict

PyMODINIT_FUNC PyInit__decode(void) {
  using namespace toolverdict;
  PyObject* const module = PyModule_Create(&definition);
  if (module == nullptr) return nullptr;
  PyObject* const type = PyType_FromSpec(&builder_spec);
  const bool fine = type != nullptr && PyModule_AddObjectRef(module, "RowBuilder", type) == 0 &&
                    add_error(module, "Malformed", malformed_error) &&
                    add_error(module, "TooManyRecords", too_many_records_error) &&
                    add_error(module, "TooManyMessages", too_many_messages_error);
  Py_XDECREF(type);
  if (!fine) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
