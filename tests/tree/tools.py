"""The programs of tools/ as modules."""

import importlib.machinery
import importlib.util
import sys
from unittest import mock

from metadata import ROOT


def load(name):
    """The program tools/NAME, read anew, and without a compiled copy beside it."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "tools" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    with mock.patch.object(sys, "dont_write_bytecode", True):
        loader.exec_module(module)
    return module
