"""Calls in Python source that trust their input: which are reported, as what, and which are not."""

from __future__ import annotations

import pytest

from rlverify.pickles import NotScannedError
from rlverify.scan import python_source
from rlverify.scan.findings import RULES, ScanFinding
from rlverify.scan.python_source import findings_of_source

REPORTED = {
    # alias forms
    "import torch\ntorch.load(f)": ("torch-load", "warning"),
    "import torch as t\nt.load(f, weights_only=False)": ("torch-load", "error"),
    "from torch import load\nload(f)": ("torch-load", "warning"),
    "from torch import serialization as s\ns.load(f)": ("torch-load", "warning"),
    "import torch.serialization\ntorch.serialization.load(f)": ("torch-load", "warning"),
    "import torch\ntorch.load(f, weights_only=trusted)": ("torch-load", "warning"),
    "import torch\ntorch.load(f, weights_only=None)": ("torch-load", "error"),
    "import torch\ntorch.load(f, **options)": ("torch-load", "warning"),
    "import torch\nload = torch.load\nload(f)": ("torch-load", "warning"),
    "import pickle\npickle.load(f)": ("pickle-load", "error"),
    "from pickle import loads as l\nl(b)": ("pickle-load", "error"),
    "from pickle import *\nloads(b)": ("pickle-load", "error"),
    "import pickle\npickle.Unpickler(f).load()": ("pickle-load", "error"),
    "def f():\n    import pickle as p\n    return p.loads(b)": ("pickle-load", "error"),
    "try:\n    import cPickle as pickle\nexcept ImportError:\n    import pickle\npickle.load(f)": (
        "pickle-load",
        "error",
    ),
    "import cloudpickle\ncloudpickle.loads(b)": ("pickle-load", "error"),
    "import dill\ndill.load(f)": ("pickle-load", "error"),
    "import shelve\nshelve.open(f)": ("pickle-load", "error"),
    "import pandas as pd\npd.read_pickle(f)": ("pickle-load", "error"),
    "import joblib\njoblib.load(f)": ("joblib-load", "error"),
    "import yaml\nyaml.unsafe_load(f)": ("yaml-load", "error"),
    "import yaml\nyaml.load(f, Loader=yaml.UnsafeLoader)": ("yaml-load", "error"),
    "from yaml import Loader, load\nload(f, Loader)": ("yaml-load", "error"),
    "import yaml\nyaml.load(f)": ("yaml-load", "warning"),
    "import numpy as np\nnp.load(f, allow_pickle=True)": ("numpy-load", "error"),
    "import numpy as np\nnp.load(f, None, True)": ("numpy-load", "error"),
    "import numpy as np\nnp.load(f, allow_pickle=flag)": ("numpy-load", "warning"),
    "from stable_baselines3.common.vec_env import VecNormalize\nVecNormalize.load(f, env)": (
        "vecnormalize-load",
        "error",
    ),
    "from stable_baselines3 import PPO\nPPO.load(f)": ("model-load", "error"),
    "import stable_baselines3 as sb3\nsb3.SAC.load(f)": ("model-load", "error"),
    "from sb3_contrib import TQC as T\nT.load(f)": ("model-load", "error"),
    "from sb3_contrib.ppo_recurrent import RecurrentPPO\nRecurrentPPO.load(f)": ("model-load", "error"),
    'from stable_baselines3 import PPO\nmodel = PPO("MlpPolicy", env)\nmodel.load(f)': ("model-load", "error"),
    'from stable_baselines3 import PPO\nmodel: PPO = PPO("MlpPolicy", env)\nmodel.load(f)': ("model-load", "error"),
    "from stable_baselines3.common.save_util import load_from_zip_file\nload_from_zip_file(f)": ("model-load", "error"),
    "model.load_replay_buffer(f)": ("model-load", "error"),
}
SAFE = [
    "import torch\ntorch.load(f, weights_only=1)",
    "import torch\ntorch.load(f, weights_only=True)",
    "import numpy as np\nnp.load(f)",
    "import numpy as np\nnp.load(f, allow_pickle=False)",
    "import numpy as np\nnp.load(f, None, False)",
    "import json\njson.load(f)",
    "import yaml\nyaml.safe_load(f)",
    "import yaml\nyaml.load(f, Loader=yaml.CSafeLoader)",
    "import yaml\nyaml.load_all(f, yaml.FullLoader)",
    "load(f)",
    "def load(f): ...\nload(f)",
    "from mine import load\nload(f)",
    "from .pickle import loads\nloads(b)",
    "model.load(f)",
    "import pickle\npickle.dumps(x)",
    "import pickle\ncopy = pickle.loads(pickle.dumps(x))",
    "from stable_baselines3 import PPO\nclass Mine(PPO):\n    def load(self): ...\nMine.load(f)",
    "from stable_baselines3.common.utils import get_schedule_fn\nget_schedule_fn.load(f)",
    "import pickle\nclass Safe(pickle.Unpickler):\n    def find_class(self, m, n): ...\nSafe(f).load()",
    'text = "pickle.load(f)"  # pickle.load(f)',
]


def found(source: str) -> list[ScanFinding]:
    return list(findings_of_source(source.encode(), "x.py"))


@pytest.mark.parametrize("source", REPORTED)
def test_a_call_that_trusts_its_input_is_reported_once(source: str) -> None:
    rule, severity = REPORTED[source]
    line = source.count("\n") + 1
    assert [(each.rule, each.severity, each.line, each.path) for each in found(source)] == [
        (rule, severity, line, "x.py")
    ]
    assert found(source)[0].remedy == RULES[rule].remedy


@pytest.mark.parametrize("source", SAFE)
def test_a_safe_call_is_not_reported(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize("rule", sorted({rule for rule, _ in REPORTED.values()}))
def test_without_its_rule_no_call_of_it_is_reported(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [source for source, (of, _) in REPORTED.items() if of == rule]
    for name, function in list(python_source.LOADING_FUNCTIONS.items()):
        if function.rule == rule:
            monkeypatch.delitem(python_source.LOADING_FUNCTIONS, name)  # type: ignore[arg-type]
    if rule in ("model-load", "vecnormalize-load"):
        monkeypatch.setattr(python_source, "is_model_class", lambda _: False)
        monkeypatch.setattr(python_source, "_REPLAY_BUFFER", "")
    assert [each for source in sources for each in found(source)] == []


def test_every_rule_of_calls_has_a_case() -> None:
    of_calls = {each for each in RULES if each.endswith("-load")}
    assert {rule for rule, _ in REPORTED.values()} == of_calls


def test_the_message_says_since_when_the_default_is_safe() -> None:
    (missing,) = found("import torch\ntorch.load(f)")
    (false,) = found("import torch\ntorch.load(f, weights_only=False)")
    assert "unless torch is 2.6 or newer" in missing.message
    assert "2.6" not in false.message
    assert "weights_only=False" in false.message


def test_findings_are_in_the_order_of_the_lines() -> None:
    source = "import pickle, torch\nx = [\n    torch.load(a),\n    pickle.load(b),\n]\npickle.load(c)\n"
    assert [(each.line, each.rule) for each in found(source)] == [
        (3, "torch-load"),
        (4, "pickle-load"),
        (6, "pickle-load"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "pickle.load(f)  # rlverify: trusted written by this process",
        "pickle.load(f)  # noqa: S301  # rlverify: trusted written by this process",
        "pickle.load(  # rlverify: trusted ours\n    f\n)",
        "pickle.load(\n    f\n)  # rlverify: trusted ours",
    ],
)
def test_a_comment_with_a_reason_accepts_a_call(line: str) -> None:
    assert found(f"import pickle\n{line}\n") == []


@pytest.mark.parametrize("comment", ["# rlverify: trusted", "# rlverify: trusted   ", "# rlverify: trusted:"])
def test_a_comment_without_a_reason_accepts_nothing(comment: str) -> None:
    (finding,) = found(f"import pickle\npickle.load(f)  {comment}\n")
    assert finding.remedy.startswith("the comment `# rlverify: trusted` needs a reason")


@pytest.mark.parametrize(
    "source",
    [
        "import pickle\n# rlverify: trusted ours\npickle.load(f)\n",
        'import pickle\npickle.load("# rlverify: trusted ours")\n',
        "import pickle\npickle.load(f)  # rlverify: distrusted ours\n",
        "import pickle\npickle.load(f)  # trusted ours\n",
    ],
)
def test_other_comments_and_texts_accept_nothing(source: str) -> None:
    assert [each.rule for each in found(source)] == ["pickle-load"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"def f(:\n", "not Python 3: .*line 1"),
        (b"print 'x'\n", "not Python 3"),
        (b"x = '\xff'\n", "not text"),
        (b"# coding: nonsense\n", "not text"),
        (b"x = 1\0\n", "null bytes"),
        (b"(" * 100_000, "parsed|not Python 3"),
        (b"x = " + b"-" * 100_000 + b"1", "parsed|not Python 3"),
    ],
    ids=["syntax", "python 2", "bytes", "encoding", "null", "brackets", "depth"],
)
def test_source_that_cannot_be_parsed_is_one_error(content: bytes, reason: str) -> None:
    with pytest.raises(NotScannedError, match=reason):
        list(findings_of_source(content, "x.py"))


def test_the_source_raises_no_warnings_here() -> None:
    assert found("x = '\\d' is '\\d'\n") == []


def test_another_encoding_is_read() -> None:
    content = "# coding: latin-1\nimport pickle\nx = 'é'; pickle.load(f)\n".encode("latin-1")
    assert [each.line for each in findings_of_source(content, "x.py")] == [3]
