from __future__ import annotations

from pathlib import Path

import pytest

from services.verifier import image
from services.verifier.jail import JailUnavailable


def test_it_is_the_same_each_time_and_another_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        first = image.image()
    except JailUnavailable as error:
        pytest.skip(str(error))
    assert image.image() == first
    assert len(first) == 16
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho gcc 99\n")
    compiler.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        assert image.image() != first
    with monkeypatch.context() as patched:
        patched.setattr(image, "version", lambda name: "0")
        assert image.image() != first
    (tmp_path / "init.c").write_text("other")
    with monkeypatch.context() as patched:
        patched.setattr(image, "INSIDE", tmp_path)
        assert image.image() != first
    assert image.image() == first
