# SPDX-License-Identifier: Apache-2.0
"""`truestep dtypes` as a user runs it: piped, as JSON, without torch."""

import json
import os
import subprocess
import sys

from support import warm


def dtypes(*arguments, **settings):
    return warm.run("-m", "truestep", "dtypes", *arguments, **settings)


def test_json_is_one_document():
    result = dtypes("--json", "--time", "--size", "4")
    document = json.loads(result.stdout)
    assert (result.returncode, result.stderr, document["schema_version"]) == (0, "", 1)
    assert document["matmul_size"] == 4
    assert {row["name"] for row in document["dtypes"]} > {"float32", "float8_e5m2", "uint16"}


def test_the_screen_of_80_columns_has_no_control_codes_when_piped():
    result = dtypes(env={**os.environ, "COLUMNS": "80"})
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "torch.cuda.HalfTensor" in result.stdout


def test_a_size_that_can_not_be_is_a_usage_error():
    for size in ("0", "many"):
        result = dtypes("--time", "--size", size)
        assert (result.returncode, result.stdout) == (2, "")
        assert "size" in result.stderr


def test_without_torch_it_ends_with_3_and_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None; from truestep.cli.main import main; main()"
    command = [sys.executable, "-c", code, "dtypes"]  # one that has torch already would be no test
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout) == (3, "")
    assert "pip install 'truestep[torch]'" in result.stderr
