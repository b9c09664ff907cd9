"""The records that `decoder.cpp` reads, field by field as there."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p


class LinearRecord(ctypes.Structure):
    """`Linear` of layers.h."""

    _fields_ = [
        ("kind", c_int32),
        ("n", c_int32),
        ("k", c_int32),
        ("reserved", c_int32),
        ("weight", c_void_p),
        ("scale", c_void_p),
        ("sum", c_void_p),
        ("bias", c_void_p),
    ]


class LayerRecord(ctypes.Structure):
    """`Layer` of decoder.cpp."""

    _fields_ = [
        ("attention_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("feed_forward_norm", c_void_p),
        ("qkv", LinearRecord),
        ("out", LinearRecord),
        ("gate_up", LinearRecord),
        ("down", LinearRecord),
        ("window", c_int64),
    ]


class ModelRecord(ctypes.Structure):
    """`Model` of decoder.cpp."""

    _fields_ = [
        ("layers", c_int32),
        ("hidden", c_int32),
        ("intermediate", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("width", c_int32),
        ("eps", c_float),
        ("wide", c_int32),
        ("embedding", c_void_p),
        ("norm", c_void_p),
        ("layer", POINTER(LayerRecord)),
        ("head", LinearRecord),
    ]


class StepRecord(ctypes.Structure):
    """`Step` of decoder.cpp."""

    _fields_ = [
        ("tokens", c_int64),
        ("requests", c_int64),
        ("samples", c_int64),
        ("pages", c_int64),
        ("page_size", c_int64),
        ("turned", c_int64),
        ("token_ids", c_void_p),
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("rows", c_void_p),
        ("offsets", c_void_p),
        ("lengths", c_void_p),
        ("page_table", c_void_p),
        ("rotary", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("logits", c_void_p),
        ("hidden", c_void_p),
        ("vocabulary", c_int64),
        ("ids", c_void_p),
        ("columns", c_void_p),
    ]


SIZES = tuple(
    ctypes.sizeof(record) for record in (LinearRecord, LayerRecord, ModelRecord, StepRecord)
)
