import json

import pytest

from annotated import results


def test_a_record_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RECORDED", tmp_path)
    (tmp_path / "imports.json").write_text(json.dumps({"question": "imports"}))
    assert results.recorded("imports") == {"question": "imports"}
    with pytest.raises(FileNotFoundError, match="'decode' is not recorded; there is imports"):
        results.recorded("decode")
