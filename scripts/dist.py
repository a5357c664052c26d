#!/usr/bin/env python3
"""Installs Gyre, or packs it for machines that have neither Go nor a compiler. `make install` and `make dist` build first and run this.

    scripts/dist.py install PREFIX    PREFIX/bin/gyre, PREFIX/lib/gyre/*.so, PREFIX/share/gyre/{README.md,configs,docs,licences,scripts,sbom.spdx.json}
    scripts/dist.py dist              dist/gyre-VERSION-linux-x86_64.tar.gz, a wheel of the same, SHA256SUMS
    scripts/dist.py version           the version: a tag, or what CHANGELOG.md names next with the commit's count and id

Built twice from one commit the archives hold the same bytes: their times are the commit's, their entries are sorted.
"""
import base64, datetime, gzip, hashlib, io, json, os, pathlib, platform, re, shutil, subprocess, sys, tarfile, tempfile, zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "installed"
# What a CPU build of libtorch loads. The CUDA halves of the wheel stay away; cudart and cupti are linked by torch_cpu itself.
LIBRARIES = ["libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13"]
COMPILER_LIBRARIES = ["libstdc++.so.6", "libgcc_s.so.1"]  # so that a system without a C++ runtime will do


def run(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def fail(message):
    sys.exit(f"dist: error: {message}")


def version():
    """A tag vX.Y.Z, or X.Y.Z.devN+gCOMMIT where X.Y.Z is the first version in CHANGELOG.md (PEP 440 orders both)."""
    exact = subprocess.run(["git", "describe", "--tags", "--exact-match", "--match", "v*"], cwd=ROOT, capture_output=True, text=True)
    if exact.returncode == 0:
        return exact.stdout.strip()[1:]
    upcoming = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    if not upcoming:
        fail("CHANGELOG.md has no heading '## X.Y.Z'")
    return f"{upcoming[1]}.dev{run('git', 'rev-list', '--count', 'HEAD')}+g{run('git', 'rev-parse', '--short=9', 'HEAD')}"


def torch_root():
    cache = (ROOT / "build" / "CMakeCache.txt").read_text()
    # the folder that CMake linked against, which `make setup` wrote down
    named = re.search(r"^LIBTORCH:\w+=(.+)$", cache, re.M)
    return pathlib.Path(named[1] if named else (ROOT / "build" / "libtorch.path").read_text().strip())


def compiler_library(name):
    path = subprocess.run([os.environ.get("CXX", "c++"), f"-print-file-name={name}"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    if not os.path.isabs(path):
        fail(f"the compiler does not know where {name} is")
    return pathlib.Path(path).resolve()


def stage(prefix):
    """Lays out PREFIX. Libraries are stripped of symbols that only debuggers read: a fifth of libtorch."""
    libraries, torch = prefix / "lib" / "gyre", torch_root()
    shutil.rmtree(libraries, ignore_errors=True)
    for folder in (prefix / "bin", libraries, prefix / "share" / "gyre" / "licences"):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy2(BUILT / "gyre", prefix / "bin" / "gyre.new")
    os.replace(prefix / "bin" / "gyre.new", prefix / "bin" / "gyre")  # also while an older one runs
    sources = {"libgyre.so": BUILT / "libgyre.so"}
    for name in LIBRARIES:
        for folder in (torch / "lib", torch.parent / "nvidia" / "cu13" / "lib"):
            if (folder / name).exists():
                sources[name] = folder / name
    if "libtorch_cpu.so" not in sources:
        fail(f"{torch}/lib has no libtorch_cpu.so: run make setup")
    sources |= {name: compiler_library(name) for name in COMPILER_LIBRARIES}
    for name, source in sources.items():
        target = libraries / name
        shutil.copyfile(source, target)
        target.chmod(0o755)
        subprocess.run(["strip", "--strip-unneeded", target], check=True)
    shared = prefix / "share" / "gyre"
    shutil.rmtree(shared / "configs", ignore_errors=True)
    shutil.copytree(ROOT / "configs", shared / "configs", ignore=shutil.ignore_patterns("*.go"))
    shutil.rmtree(shared / "docs", ignore_errors=True)
    shutil.copytree(ROOT / "docs", shared / "docs", ignore=shutil.ignore_patterns("*.go", "LOG.md"))
    shutil.copy2(ROOT / "README.md", shared / "README.md")
    (shared / "scripts").mkdir(exist_ok=True)
    for pattern in ("remote_*.py", "*_sink.py", "reward_command.py"):  # programs that a configuration starts
        for script in ROOT.glob(f"scripts/{pattern}"):
            shutil.copy2(script, shared / "scripts" / script.name)
    licences(shared / "licences", torch)
    (prefix / "share" / "gyre" / "sbom.spdx.json").write_text(json.dumps(sbom(sorted(sources), torch), indent=1) + "\n")


def modules():
    """The Go modules in the binary: (path, version)."""
    lines = run("go", "version", "-m", str(BUILT / "gyre")).splitlines()
    return [(f[1], f[2]) for f in (line.split() for line in lines) if len(f) >= 3 and f[0] == "dep"]


def licences(folder, torch):
    """Copies the licence of everything that is packed."""
    shutil.copyfile(ROOT / "LICENSE", folder / "gyre.txt")
    wanted = dict(modules())
    for line in run("go", "list", "-m", "-f", "{{.Path}}\t{{.Dir}}", "all").splitlines():
        path, _, where = line.partition("\t")
        if path not in wanted or not where:
            continue
        texts = sorted(p for p in pathlib.Path(where).iterdir() if re.match(r"(?i)(licen[cs]e|copying|notice)", p.name) and p.is_file())
        if not texts:
            fail(f"the module {path} has no licence file in {where}")
        (folder / (path.replace("/", "_") + ".txt")).write_bytes(b"\n".join(p.read_bytes() for p in texts))
    for package in ("torch", "nvidia_cuda_runtime", "nvidia_cuda_cupti"):
        texts = sorted(p for info in torch.parent.glob(f"{package}-*.dist-info") for p in info.rglob("*") if re.match(r"(?i)(licen[cs]e|notice)", p.name) and p.is_file())
        if not texts:
            fail(f"no licence of {package} beside {torch}: GYRE_LICENCES=1 scripts/setup.sh fetches them")
        (folder / f"{package}.txt").write_bytes(b"\n".join(p.read_bytes() for p in texts))
    for candidate in ("/usr/share/doc/libstdc++6/copyright", "/usr/share/licenses/libstdc++/COPYING.RUNTIME", "/usr/share/licenses/gcc-libs/RUNTIME.LIBRARY.EXCEPTION"):
        if os.path.exists(candidate):
            shutil.copyfile(candidate, folder / "libstdc++.txt")
            break
    else:
        fail("the licence of libstdc++ is not among the system's documents")


def sbom(libraries, torch):
    """An SPDX 2.3 document of what is packed."""
    number = (torch.parent / "torch" / "version.py")
    torch_version = re.search(r"__version__ = '([^']+)'", number.read_text())[1] if number.exists() else re.search(r"libtorch-([\d.]+)", str(torch) + " libtorch-0")[1]
    packages = [("gyre", version(), "Apache-2.0"), ("pytorch", torch_version, "BSD-3-Clause"), ("nvidia-cuda-runtime", "13.0.96", "NOASSERTION"),
                ("nvidia-cuda-cupti", "13.0.85", "NOASSERTION"), ("gcc-runtime", platform.libc_ver()[1] and run("c++", "-dumpfullversion"), "GPL-3.0-or-later WITH GCC-exception-3.1")]
    packages += [(path, v, "NOASSERTION") for path, v in modules()]
    entries = [{"SPDXID": f"SPDXRef-{i}", "name": name, "versionInfo": v, "licenseConcluded": licence, "licenseDeclared": licence, "downloadLocation": "NOASSERTION",
                "copyrightText": "NOASSERTION", "filesAnalyzed": False} for i, (name, v, licence) in enumerate(packages)]
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"gyre-{version()}",
            "documentNamespace": f"https://spdx.org/spdxdocs/gyre-{version()}", "comment": "libraries: " + ", ".join(libraries),
            "creationInfo": {"created": datetime.datetime.fromtimestamp(epoch(), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: scripts/dist.py"]},
            "packages": entries,
            "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-0"}] +
                             [{"spdxElementId": "SPDXRef-0", "relationshipType": "CONTAINS", "relatedSpdxElement": e["SPDXID"]} for e in entries[1:]]}


def epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct"))


def files(prefix):
    return sorted(p for p in prefix.rglob("*") if p.is_file())


def tarball(prefix, path, top):
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=epoch()) as packed, tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        for file in files(prefix):
            info = tarfile.TarInfo(f"{top}/{file.relative_to(prefix)}")
            info.size, info.mtime, info.mode = file.stat().st_size, epoch(), 0o755 if os.access(file, os.X_OK) else 0o644
            with open(file, "rb") as content:
                tar.addfile(info, content)


def glibc(prefix):
    """The newest version of glibc that something packed asks for."""
    needed = set()
    for file in files(prefix):
        if file.name == "gyre" or ".so" in file.name:
            needed |= {int(m) for m in re.findall(r"GLIBC_2\.(\d+)", run("readelf", "-V", str(file)))}
    return max(needed)


def wheel(prefix, folder):
    """The same files as data of a wheel: pip puts bin/gyre and lib/gyre into the environment's folders of those names."""
    v, machine = version(), platform.machine()
    tag, info = f"py3-none-manylinux_2_{glibc(prefix)}_{machine}", f"gyre-{v}.dist-info"
    path, record = folder / f"gyre-{v}-{tag}.whl", []
    when = datetime.datetime.fromtimestamp(max(epoch(), 315532800), datetime.timezone.utc).timetuple()[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as z:
        def add(name, content, mode=0o644):
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            z.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}")
        for file in files(prefix):
            inside = file.relative_to(prefix)
            kind = f"scripts/{inside.name}" if inside.parts[0] == "bin" else f"data/{inside}"
            add(f"gyre-{v}.data/{kind}", file.read_bytes(), 0o755 if os.access(file, os.X_OK) else 0o644)
        add(f"{info}/METADATA", f"Metadata-Version: 2.4\nName: gyre\nVersion: {v}\nSummary: Reinforcement learning of language-model agents, with gradient analysis\n"
            f"License-Expression: Apache-2.0\nRequires-Python: >=3.8\n".encode())
        add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: gyre-dist\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
        z.writestr(zipfile.ZipInfo(f"{info}/RECORD", when), "\n".join(record + [f"{info}/RECORD,,"]) + "\n")
    return path


def dist():
    top = f"gyre-{version()}-linux-{platform.machine()}"
    out = ROOT / "dist"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder)
        stage(prefix)
        archive = out / f"{top}.tar.gz"
        tarball(prefix, archive, top)
        packed = [archive, wheel(prefix, out)]
        print(f"{'MB':>7}  installed")
        for file in sorted(files(prefix), key=lambda p: -p.stat().st_size)[:9]:
            print(f"{file.stat().st_size / 1e6:7.1f}  {file.relative_to(prefix)}")
        print(f"{sum(f.stat().st_size for f in files(prefix)) / 1e6:7.1f}  all of it")
    sums = "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in packed)
    (out / "SHA256SUMS").write_text(sums)
    for path in packed:
        print(f"{path.stat().st_size / 1e6:7.1f}  dist/{path.name}")


def main(arguments):
    match arguments:
        case ["version"]:
            print(version())
        case ["install", prefix]:
            stage(pathlib.Path(prefix).expanduser().absolute())
            print(f"installed: {prefix}/bin/gyre")
        case ["dist"]:
            dist()
        case _:
            sys.exit(__doc__)


main(sys.argv[1:])
