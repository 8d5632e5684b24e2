from __future__ import annotations

import subprocess
import sys

import pytest

import anchorcontext


def test_every_public_name_resolves() -> None:
    for name in anchorcontext.__all__:
        assert getattr(anchorcontext, name).__module__.startswith("anchorcontext.")
        assert name in dir(anchorcontext)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'anchorcontext' has no attribute 'regster'"):
        _ = anchorcontext.regster


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, anchorcontext; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_plans_need_no_transformers() -> None:
    code = (
        "import sys, anchorcontext as a; a.plan_context(a.WindowLayout([3, 4]), 2).row_order(0); "
        "print('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
