"""A GGUF file of a small model as a directory in bfloat16 and as a GGUF file in bfloat16: `convert.py FROM DIRECTORY TO`."""

from __future__ import annotations

import sys
from pathlib import Path


def to_directory(source: Path, directory: Path) -> None:
    """Write the model as Hugging Face lays it out."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    place = {"gguf_file": source.name}
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        **place,
    )
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(model.config, name):
            delattr(model.config, name)
    model.to(torch.bfloat16).save_pretrained(directory)
    AutoTokenizer.from_pretrained(source.parent, **place).save_pretrained(directory)
    (directory / "done").touch()


def to_gguf(source: Path, target: Path) -> None:
    """Write the same file with every matrix in bfloat16."""
    import gguf

    reader = gguf.GGUFReader(str(source))
    field = reader.get_field("general.architecture")
    writer = gguf.GGUFWriter(str(target), str(field.contents()))
    own = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture")
    for name, value in reader.fields.items():
        if name not in own and name != "general.file_type":
            kind = value.types[0]
            of = value.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, value.contents(), kind, of)
    narrow = gguf.GGMLQuantizationType.BF16
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, gguf.quantize(values, narrow), raw_dtype=narrow)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    to_directory(Path(sys.argv[1]), Path(sys.argv[2]))
    to_gguf(Path(sys.argv[1]), Path(sys.argv[3]))
