// Requests that came as JSON: what the JSON library made of them, to the wire format of protobuf.
//
// Only what clients send every day is read here. Whatever is rarer or wrong is left to
// otlp_json.py, which is the referee, too, and has the words for it.
#pragma once

#include <Python.h>

#include <charconv>
#include <system_error>

#include "columns.h"

namespace toolverdict {

// Something that otlp_json.py has to look at.
struct Unusual {};

// How a value of a field is read; otlp_json.py gives them by these numbers.
enum FieldKind : long {
  kOtherField, kMessageField, kStringField, kBoolField, kInt32Field, kInt64Field, kUint32Field,
  kFixed32Field, kFixed64Field, kDoubleField, kIdField
};

// Writes objects of Python as messages. A plan is a dict of the fields of a message by their names,
// each as (number, kind, whether it is repeated, plan of its message or None).
class TreeWriter {
 public:
  // Throws Unusual; an exception of Python may be set then, which is of no account.
  void message(PyObject* tree, PyObject* plan, int depth) {
    if (depth == 0 || !PyDict_CheckExact(tree)) throw Unusual{};
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(tree, &at, &key, &value)) {
      PyObject* const field = PyDict_GetItemWithError(plan, key);
      if (field == nullptr || value == Py_None) continue;
      const long number = PyLong_AsLong(PyTuple_GET_ITEM(field, 0));
      const long kind = PyLong_AsLong(PyTuple_GET_ITEM(field, 1));
      PyObject* const child = PyTuple_GET_ITEM(field, 3);
      if (PyTuple_GET_ITEM(field, 2) != Py_True) {
        write(number, kind, child, value, depth);
        continue;
      }
      if (!PyList_CheckExact(value)) throw Unusual{};
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i) {
        write(number, kind, child, PyList_GET_ITEM(value, i), depth);
      }
    }
  }

  const Buffer& bytes() const { return out_; }

 private:
  void write(long number, long kind, PyObject* child, PyObject* value, int depth) {
    const auto field = static_cast<uint32_t>(number);
    switch (kind) {
      case kMessageField: {
        varint(tag_of(field, kBytes));
        const size_t start = out_.size() + 1;
        out_.append_repeated<char>(0, 1);
        if (value != Py_None) message(value, child, depth - 1);
        close(start);
        return;
      }
      case kStringField: {
        if (!PyUnicode_CheckExact(value)) throw Unusual{};
        text(field, utf8(value));
        return;
      }
      case kIdField:
        varint(tag_of(field, kBytes));
        identifier(value);
        return;
      case kBoolField:
        if (!PyBool_Check(value)) throw Unusual{};
        varint(tag_of(field, kVarint));
        varint(value == Py_True);
        return;
      case kInt32Field:
      case kInt64Field: {
        const int64_t integer = signed_integer(value);
        if (kind == kInt32Field && integer != static_cast<int32_t>(integer)) throw Unusual{};
        varint(tag_of(field, kVarint));
        varint(static_cast<uint64_t>(integer));
        return;
      }
      case kUint32Field:
      case kFixed32Field:
      case kFixed64Field: {
        const uint64_t integer = unsigned_integer(value);
        if (kind != kFixed64Field && integer > UINT32_MAX) throw Unusual{};
        if (kind == kUint32Field) {
          varint(tag_of(field, kVarint));
          varint(integer);
        } else if (kind == kFixed32Field) {
          varint(tag_of(field, kFixed32));
          out_.append_value(static_cast<uint32_t>(integer));
        } else {
          varint(tag_of(field, kFixed64));
          out_.append_value(integer);
        }
        return;
      }
      case kDoubleField:
        if (!PyFloat_CheckExact(value)) throw Unusual{};
        varint(tag_of(field, kFixed64));
        out_.append_value(PyFloat_AS_DOUBLE(value));
        return;
      default:
        throw Unusual{};
    }
  }

  void varint(uint64_t value) {
    char* to = out_.reserve(10);
    const char* const start = to;
    for (; value > 0x7F; value >>= 7) *to++ = static_cast<char>(value | 0x80);
    *to++ = static_cast<char>(value);
    out_.wrote(static_cast<size_t>(to - start));
  }

  // Puts the length before a message that begins at `start`, where one byte is free for it.
  void close(size_t start) {
    size_t size = out_.size() - start;
    const size_t length = size;
    size_t more = 0;
    for (size_t rest = length >> 7; rest > 0; rest >>= 7) ++more;
    if (more > 0) {
      out_.append_repeated<char>(0, more);
      std::memmove(out_.data() + start + more, out_.data() + start, length);
    }
    char* to = out_.data() + start - 1;
    for (; size > 0x7F; size >>= 7) *to++ = static_cast<char>(size | 0x80);
    *to = static_cast<char>(size);
  }

  void text(uint32_t field, const Text& text) {
    varint(tag_of(field, kBytes));
    varint(text.size);
    out_.append(text);
  }

  static Text utf8(PyObject* value) {
    Py_ssize_t size;
    const char* const data = PyUnicode_AsUTF8AndSize(value, &size);
    if (data == nullptr) throw Unusual{};
    return {data, static_cast<size_t>(size)};
  }

  // An id in hex. One that is not becomes a byte, which no id is: just that record is rejected.
  void identifier(PyObject* value) {
    if (!PyUnicode_CheckExact(value)) throw Unusual{};
    const Text hex = utf8(value);
    varint(hex.size / 2);
    for (size_t i = 0; i + 1 < hex.size; i += 2) {
      const int high = digit(hex.data[i]), low = digit(hex.data[i + 1]);
      if (high < 0 || low < 0) throw Unusual{};
      out_.append_value(static_cast<char>(high << 4 | low));
    }
    if (hex.size % 2 != 0) throw Unusual{};
  }
  static int digit(char character) {
    if (character >= '0' && character <= '9') return character - '0';
    if (character >= 'a' && character <= 'f') return character - 'a' + 10;
    if (character >= 'A' && character <= 'F') return character - 'A' + 10;
    return -1;
  }

  // 64-bit integers are text in the JSON of protobuf.
  static int64_t signed_integer(PyObject* value) {
    if (PyLong_CheckExact(value)) {
      const long long integer = PyLong_AsLongLong(value);
      if (integer == -1 && PyErr_Occurred() != nullptr) throw Unusual{};
      return integer;
    }
    return parsed<int64_t>(value);
  }
  static uint64_t unsigned_integer(PyObject* value) {
    if (PyLong_CheckExact(value)) {
      const unsigned long long integer = PyLong_AsUnsignedLongLong(value);
      if (integer == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) {
        throw Unusual{};
      }
      return integer;
    }
    return parsed<uint64_t>(value);
  }
  template <typename T>
  static T parsed(PyObject* value) {
    if (!PyUnicode_CheckExact(value)) throw Unusual{};
    const Text digits = utf8(value);
    const char* const end = digits.data + digits.size;
    T integer;
    const auto [stop, error] = std::from_chars(digits.data, end, integer);
    if (error != std::errc() || stop != end || digits.size > 20) throw Unusual{};
    return integer;
  }

  Buffer out_;
};

}  // namespace toolverdict
