"""``llmsim figures``: draws what build.py lists."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_draws_the_figures_that_are_named(llmsim, tmp_path):
    shutil.copy(ROOT / "figures" / "build.py", tmp_path)
    ran = llmsim(f"figures ring-timeline leaf-spine --folder {tmp_path} --suffix svg --json")
    assert ran.code == 0
    assert set(ran.json) == {"ring-timeline", "leaf-spine"}
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == ["leaf-spine.svg", "ring-timeline.svg"]
    assert ran.json["ring-timeline"]["data"]["makespan_s"] > 0


def test_mistakes_are_one_line(refused, tmp_path):
    shutil.copy(ROOT / "figures" / "build.py", tmp_path)
    assert "no build.py" in refused(f"figures --folder {tmp_path / 'none'}")
    assert "no figure 'ring'" in refused(f"figures ring --folder {tmp_path}")
    assert "docx" in refused(f"figures ring-timeline --folder {tmp_path} --suffix docx")
