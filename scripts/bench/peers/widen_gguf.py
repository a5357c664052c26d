"""Writes a GGUF file again with all tensors in f32, so that llama.cpp computes with the very weights that the other programs hold, or with
its matrices in f16.

    widen_gguf.py SOURCE.gguf TARGET.gguf [f32|f16]        needs the packages gguf and numpy
"""
import os
import sys

import gguf
import numpy as np


def main(source, target, dtype="f32"):
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture").contents()
    part = target + ".part"
    writer = gguf.GGUFWriter(part, architecture)
    # The writer makes the first two by itself, and the tensors are no longer quantised.
    made = ("general.architecture", "general.file_type", "general.quantization_version")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in made:
            continue
        kind, *inner = field.types
        writer.add_key_value(name, field.contents(), kind, sub_type=inner[-1] if inner else None)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if dtype == "f32" else gguf.LlamaFileType.MOSTLY_F16)
    for tensor in reader.tensors:
        matrix = len(tensor.shape) > 1
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(np.float16 if matrix and dtype == "f16" else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, target)
    print(f"{target}: {len(reader.tensors)} tensors in {dtype}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["f32"], ["f16"]):
        sys.exit(__doc__)
    main(*sys.argv[1:])
