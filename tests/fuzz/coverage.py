"""Coverage-guided: libFuzzer finds bodies that reach new code, then both decoders are asked.

    python -m tests.fuzz.coverage --seconds 900
    python -m tests.fuzz.coverage --seconds 60 --corpus DIR     goes on from what is in DIR

The native decoder is compiled with clang, ASan and UBSan and run by itself (native_decoder.cpp),
some thousand bodies a second. Every body that reached code no other had is then given to the native
decoder as installed and to the referee, as decoders.py does. Ends with the first difference or
failure; libFuzzer leaves the input that made it in the folder it names.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.fuzz.decoders import ROOT, Comparison, logs, traces

from toolverdict.collector.limits import Limits
from toolverdict.collector.signals import Signal

LOW = (2, 20, 2, 2, 2, 9, 20, 800, 300)
"""The low value of each limit, as native_decoder.cpp has it."""
SEEDS = 200
MAX_BYTES = 2_000


def main() -> None:
    """Build, fuzz, compare; exit code 1 on a difference or failure, 3 without clang."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="of libFuzzer")
    parser.add_argument("--corpus", type=Path, help="folder of inputs, kept afterwards")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    options = parser.parse_args()
    compiler = os.environ.get("CLANGXX", "clang++")
    if shutil.which(compiler) is None:
        sys.exit(_say(f"{compiler} was not found; install clang, or name it in CLANGXX", 3))
    with tempfile.TemporaryDirectory() as folder:
        corpus = options.corpus or Path(folder, "corpus")
        corpus.mkdir(parents=True, exist_ok=True)
        _write_seeds(Random(options.seed), corpus)
        fuzzer = _build(compiler, Path(folder))
        command = [
            *(str(fuzzer), str(corpus), f"-max_total_time={options.seconds}"),
            *(
                f"-seed={options.seed}",
                f"-max_len={MAX_BYTES}",
                "-timeout=10",
                "-rss_limit_mb=2048",
            ),
            *(f"-artifact_prefix={tempfile.gettempdir()}/", "-print_final_stats=1", "-verbosity=0"),
        ]
        if subprocess.run(command, check=False).returncode:
            sys.exit(1)
        sys.exit(_compare(sorted(corpus.iterdir())))


def _build(compiler: str, folder: Path) -> Path:
    fuzzer = folder / "native_decoder"
    subprocess.run(
        [
            *(compiler, "-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror"),
            *("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"),
            f"-I{ROOT / 'collector/native'}",
            *(str(ROOT / "tests/fuzz/native_decoder.cpp"), "-o", str(fuzzer)),
        ],
        check=True,
    )
    return fuzzer


def _write_seeds(rng: Random, corpus: Path) -> None:
    for number in range(SEEDS):
        choice = rng.randrange(64)
        request = (logs if choice & 1 else traces)(rng)
        body = request.SerializeToString()[: MAX_BYTES - 1]
        (corpus / f"seed-{number}").write_bytes(bytes([choice]) + body)


def _compare(files: list[Path]) -> int:
    rng = Random(1)
    comparison = Comparison(
        {
            Signal.TRACES: traces(rng).SerializeToString(),
            Signal.LOGS: logs(rng).SerializeToString(),
        }
    )
    taken = 0
    for file in files:
        data = file.read_bytes()
        if not data:
            continue
        signal = Signal.LOGS if data[0] & 1 else Signal.TRACES
        python, native = comparison.of(signal, data[1:], _limits(data[0] >> 1 & 15))
        if python != native:
            kept = Path(tempfile.gettempdir(), "decoders-differ.bin")
            kept.write_bytes(data)
            return _say(f"{signal.name}, {kept}:\n{python}\n{native}", 1)
        taken += python.is_taken
    return _say(f"{len(files)} inputs that reached new code, {taken} decoded; no difference", 0)


def _limits(choice: int) -> Limits:
    given = [10**9] * len(Limits._fields)
    if choice < len(given):
        given[choice] = LOW[choice]
    return Limits(*given)


def _say(text: str, code: int) -> int:
    sys.stdout.write(f"{text}\n")
    return code


if __name__ == "__main__":
    main()
