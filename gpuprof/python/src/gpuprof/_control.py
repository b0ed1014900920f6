"""Windows of recording in this process, through the socket of the injection library."""

import json
import os
import socket
import struct
import subprocess
import tempfile
import threading

from . import _files

_PROTOCOL = 1
_LONGEST_ANSWER = 64 << 10
_PATIENCE = 30.0
_RUN = "GPUPROF_RUN"
_INJECTED = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


class GpuprofError(RuntimeError):
    """The injection library cannot do it, or is not there."""


def _process():
    """The name of this process in files: its id and its start."""
    with open("/proc/self/stat", "rb") as file:
        # The name of the program may have blanks and brackets.
        fields = file.read().rpartition(b")")[2].split()
    return f"{os.getpid()}-{int(fields[19])}"


def _folders():
    user = os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isabs(runtime):
        yield os.path.join(runtime, "gpuprof")
    yield f"/run/user/{user}/gpuprof"
    yield f"/tmp/gpuprof-{user}"


def _connect():
    """A connection to the library in this process."""
    name = f"{_process()}.sock"
    for path in _folders():
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if os.fstat(folder).st_uid != os.geteuid():
                continue
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(_PATIENCE)
            try:
                # By the descriptor: a path may be too long for a socket, or become another's.
                connection.connect(f"/proc/self/fd/{folder}/{name}")
            except OSError:
                connection.close()
                continue
        finally:
            os.close(folder)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", credentials)[0] == os.getpid():
            return connection
        connection.close()
    if os.environ.get(_RUN):
        why = _reason() or "CUDA is not initialised yet, or recording failed: see `gpuprof list`"
    else:
        why = (
            "start it with `gpuprof run --start wait -- python ...`, or call gpuprof.inject() "
            "before the first use of CUDA"
        )
    raise GpuprofError(f"process {os.getpid()} has no injection library that listens: {why}")


def _reason():
    """Why the library does not record this process, from its manifest."""
    try:
        with open(os.path.join(os.environ[_RUN], f"process-{_process()}.json"), encoding="utf-8") as file:
            return json.load(file).get("reason")
    except (OSError, ValueError):
        return None


def _request(request):
    """The answer to one request."""
    line = json.dumps({"protocol": _PROTOCOL, "request": request}).encode() + b"\n"
    with _connect() as connection:
        try:
            connection.sendall(line)
            answer = b""
            while not answer.endswith(b"\n") and len(answer) <= _LONGEST_ANSWER:
                part = connection.recv(1 << 12)
                if not part:
                    break
                answer += part
            answered = json.loads(answer)
        except (OSError, ValueError) as error:
            raise GpuprofError(f"the injection library did not answer `{request}`: {error}") from error
    if answered.get("protocol") != _PROTOCOL:
        raise GpuprofError("the injection library is of another version of gpuprof")
    if "error" in answered:
        raise GpuprofError(f"`{request}` was refused: {answered['error']}")
    return answered["answer"]


class Profile:
    """A window of recording, and the recording that it is in."""

    def __init__(self):
        self._path = None

    @property
    def path(self):
        """The path of the recording of this process, with this and all other windows."""
        if self._path is None:
            raise GpuprofError("the window has not been opened")
        return self._path

    def _answered(self, answer):
        process = answer["process"]
        name = f"process-{process['pid']}-{process['start']}"
        if process.get("image"):
            name += f"-{process['image']}"
        self._path = os.path.join(answer["run"], f"{name}.gpuprof")

    def report(self, *options):
        """The text of ``gpuprof report``, of all windows of this process until now."""
        return self.run("report", *options)

    def run(self, command, *options):
        """The output of another command of gpuprof on the recording, such as ``diagnose``."""
        environment = {key: value for key, value in os.environ.items() if key not in _INJECTED}
        ran = subprocess.run(
            [_files.program(), command, *options, self.path],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        if ran.returncode != 0:
            raise GpuprofError(f"gpuprof {command} {self.path}: {ran.stderr.strip()}")
        return ran.stdout


class profile:
    """Records while the block runs: ``with gpuprof.profile() as p: ...``.

    All threads of this process are recorded. Where recording was on before, it stays on. Blocks may be nested, and overlap on
    several threads: recording ends with the last. The end of a block waits until the file has its work, but not for the GPU:
    synchronise before it, as for every measurement.
    """

    _lock = threading.Lock()
    _open = 0
    _was_on = False

    def __init__(self):
        self._profile = Profile()

    def __enter__(self):
        with profile._lock:
            answer = _request("on")
            if profile._open == 0:
                profile._was_on = not answer.get("changed", False)
            profile._open += 1
        self._profile._answered(answer)
        return self._profile

    def __exit__(self, *error):
        with profile._lock:
            profile._open -= 1
            if profile._open == 0 and not profile._was_on:
                _request("off")
            _request("snapshot")
        return False


def inject(folder=None, *, sample=None, nvml=False, sample_devices=None, memory_records=False, unified_memory=False):
    """Has CUDA and NVTX load the injection library in this process; returns the run folder.

    For notebooks and other programs that ``gpuprof run`` cannot start. It sets variables of the environment, which count if
    CUDA was not used before, and which children inherit. Recording waits for ``profile()``. ``folder`` is made if it is
    missing; without one it is a new folder for temporary files, which stays. The others are options of ``gpuprof run``, as
    ``sample="memory,pcie"``, ``sample_devices="0,1"``. The library checks them: ``profile()`` raises its reason to refuse
    one. A recording has its samples when the process has ended.
    """
    for variable in _INJECTED:
        if os.environ.get(variable):
            raise GpuprofError(f"{variable} is set: a process has one tool of this kind")
    path = _files.library()
    if folder is None:
        folder = tempfile.mkdtemp(prefix="gpuprof-", suffix=".gpurun")
    else:
        os.makedirs(folder, exist_ok=True)
    folder = os.path.realpath(folder)
    os.environ[_RUN] = folder
    options = ["start=wait"]
    if sample is not None:
        options.append("sample=" + sample.replace(",", "+"))
    if nvml:
        options.append("nvml=clocks")
    if sample_devices is not None:
        options.append("devices=" + sample_devices.replace(",", "+"))
    memory = [kind for kind, is_on in (("allocations", memory_records), ("managed", unified_memory)) if is_on]
    if memory:
        options.append("memory=" + "+".join(memory))
    os.environ["GPUPROF_OPTIONS"] = ",".join(options)
    for variable in _INJECTED:
        os.environ[variable] = path
    return folder
