"""The cache of compiled code."""

from llmsim.engine import jit
from llmsim.engine.events import run_events


def test_compiled_code_is_kept_only_while_all_its_files_stay_as_they_are(tmp_path, monkeypatch):
    assert run_events._cache._cache_file._source_stamp == jit._sources()
    (tmp_path / "jit.py").write_text("a", encoding="utf-8")
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "jit.py"))
    before = jit._sources()
    (tmp_path / "callee.py").write_text("b", encoding="utf-8")
    assert jit._sources() != before
