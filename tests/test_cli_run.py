"""`adaptive-eager run` and `report`: the program runs as under `python`, then its launches are told."""

import json
import os

import pytest

PROBE = """
import sys
print([sys.argv[1:], sys.path[0], __name__, __file__, __package__, __spec__ and __spec__.name, "torch" in sys.modules])
"""
WORK = """
import torch
x = torch.ones(4, device="neuron")
for _ in range(5):
    x = x * 2 + 1
    x.sum().item()
print("done")
"""


@pytest.fixture
def program(tmp_path):
    def write(text: str, name: str = "program.py") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def test_script_sees_what_python_gives_it(cli, python, program) -> None:
    path = program(PROBE)
    for args in ([], ["a", "--report", "-o", "--", "x"]):
        assert cli("run", path, *args).stdout == python(path, *args).stdout
        assert cli("run", "--", path, *args).stdout == python(path, *args).stdout


def test_module_sees_what_python_gives_it(cli, python, program, monkeypatch, tmp_path) -> None:
    program(PROBE, "package/__main__.py")
    program("", "package/__init__.py")
    program(PROBE, "package/part.py")
    monkeypatch.chdir(tmp_path)
    for name in ("package", "package.part"):
        assert cli("run", "-m", name, "a", "--report").stdout == python("-m", name, "a", "--report").stdout


def test_folder_runs_its_main(cli, python, program, tmp_path) -> None:
    program(PROBE, "package/__main__.py")
    folder = str(tmp_path / "package")
    assert cli("run", folder, "a").stdout == python(folder, "a").stdout


def test_code_sees_what_python_gives_it(cli, python) -> None:
    code = "import sys; print(sys.argv, repr(sys.path[0]), __name__, '__file__' in globals())"
    assert cli("run", "-c", code, "a", "-f").stdout == python("-c", code, "a", "-f").stdout


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit(7)",
        "import sys; sys.exit('bye')",
        "import sys; sys.exit()",
        "raise SystemExit(-1)",
        "def f():\n    raise ValueError('boom')\nf()",
        "import sys\nsys.excepthook = lambda *e: print('hook', e[0].__name__)\n1 / 0",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e",
        "syntax error(",
    ],
)
def test_exit_status_and_output_are_the_scripts_own(cli, python, program, code: str) -> None:
    path = program(code)
    ours, plain = cli("run", path), python(path)
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert ours.stderr == plain.stderr


def test_interrupt_exits_with_130(cli, program) -> None:
    done = cli("run", program("print('before', flush=True)\nraise KeyboardInterrupt"))
    assert (done.returncode, done.stdout) == (130, "before\n")
    assert "script.py" not in done.stderr


def test_spawned_processes_find_the_scripts_main(cli, program) -> None:
    text = """
import multiprocessing
class Box: pass
def make(x): return Box()
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(type(pool.map(make, [1])[0]) is Box)
"""
    assert cli("run", program(text)).stdout == "True\n"


def test_mode_is_set_for_the_program(cli) -> None:
    code = "import adaptive_eager, os; print(adaptive_eager.mode(), os.environ['NEURON_EAGER'])"
    for mode in ("eager", "adaptive"):
        assert cli("run", "--mode", mode, "-c", code).stdout.split() == [mode, mode]


def test_report_goes_to_stderr_and_leaves_stdout_to_the_program(cli, program) -> None:
    done = cli("run", "--mode", "adaptive", "--report", program(WORK), NO_COLOR="1")
    assert (done.returncode, done.stdout) == (0, "done\n")
    first = done.stderr.splitlines()[0]
    assert first.startswith("launches ") and " eager -> " in first and "cache hits" in first and "top flush" in first
    assert "Why regions ended" in done.stderr and "value_read" in done.stderr
    assert "\x1b" not in done.stderr


def test_report_fits_a_narrow_terminal(cli, program) -> None:
    done = cli("run", "--mode", "adaptive", "--report", program(WORK), COLUMNS="40")
    assert all(len(line) <= 40 for line in done.stderr.splitlines()[1:])


def test_report_of_a_failing_program_keeps_its_status(cli, program) -> None:
    done = cli("run", "--report", program(WORK + "raise SystemExit(9)"))
    assert done.returncode == 9 and "launches " in done.stderr


def test_recording_is_versioned_and_reported(cli, program, tmp_path) -> None:
    file = tmp_path / "run.json"
    done = cli("run", "--mode", "adaptive", "-o", file, program(WORK), "a")
    assert done.returncode == 0 and f"wrote {file}" in done.stderr
    data = json.loads(file.read_text())
    assert data["schema_version"] == 1 and data["mode"] == "adaptive" and data["command"][1:] == ["a"]
    assert data["stats"]["launches"] > 0
    assert cli("report", file).stdout.startswith("launches ")
    assert json.loads(cli("report", "--format", "json", file).stdout) == data


def test_recording_is_not_overwritten_without_force(cli, program, tmp_path) -> None:
    file = tmp_path / "run.json"
    file.write_text("precious")
    path = program(WORK)
    done = cli("run", "-o", file, path)
    assert (done.returncode, done.stdout, file.read_text()) == (1, "", "precious")
    assert "-f overwrites it" in done.stderr
    done = cli("run", "-q", "-f", "-o", file, path)
    assert (done.returncode, done.stderr) == (0, "") and json.loads(file.read_text())
    assert sorted(os.listdir(tmp_path)) == ["program.py", "run.json"]


def test_file_lands_where_the_program_was_started(cli, program, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    cli("run", "-o", "run.json", program(WORK + "import os; os.chdir('/')"))
    assert (tmp_path / "run.json").is_file()


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["run"], 2, "a SCRIPT, -m MODULE or -c CODE is needed"),
        (["run", "-m"], 2, "is needed"),
        (["run", "--mode", "fast", "x.py"], 2, "invalid choice"),
        (["nothing"], 2, "invalid choice"),
        (["run", "/no/such.py"], 1, "cannot read /no/such.py: No such file or directory"),
        (["run", "-m", "no_such_module"], 1, "no module named no_such_module"),
        (["run", "-o", "/no/such/folder/x", "-c", "1"], 1, "/no/such/folder is not a folder"),
        (["run", "--report", "-c", "1"], 1, "did not import torch"),
        (["report", "/no/such.json"], 1, "cannot read /no/such.json"),
        (["report", __file__], 1, "is not a file that `run -o` wrote"),
    ],
)
def test_wrong_use_is_one_sentence_on_stderr(cli, args: list[str], status: int, words: str) -> None:
    done = cli(*args)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr and "Traceback" not in done.stderr


def test_other_schema_version_is_refused(cli, tmp_path) -> None:
    (tmp_path / "run.json").write_text('{"schema_version": 99}')
    done = cli("report", tmp_path / "run.json")
    assert done.returncode == 1 and "schema_version 99, expected 1" in done.stderr
