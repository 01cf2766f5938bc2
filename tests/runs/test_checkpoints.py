"""A damaged checkpoint is not used, and a failed write leaves earlier checkpoints intact."""

import errno
import json

import pytest
import torch

from rgcn.errors import DataError
from rgcn.runs.checkpoints import Checkpoints
from rgcn.training.fitting import TrainingState


def state(step, best=None):
    generator = torch.Generator().manual_seed(step)
    tensors = {"network/w": torch.rand(5, generator=generator), "random/own": torch.arange(3, dtype=torch.uint8)}
    if best is not None:
        tensors["best/w"] = torch.full((5,), float(best))
    score = None if best is None else 0.5
    values = {"steps_taken": step, "best": {"score": score, "step": best or 0, "waited": 1}, "device": "cpu"}
    return TrainingState(tensors, values)


def assert_same(ours, theirs):
    assert ours.values == theirs.values
    assert ours.tensors.keys() == theirs.tensors.keys()
    assert all(torch.equal(ours.tensors[name], theirs.tensors[name]) for name in ours.tensors)


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints", keep_last=2)


def test_the_last_checkpoint_is_restored(checkpoints):
    assert checkpoints.newest() is None
    for step in (9, 10, 999_999_999, 1_000_000_000):  # by number, not by name
        checkpoints.save(state(step, best=7))
        assert_same(checkpoints.newest(), state(step, best=7))


def test_only_the_newest_are_kept_and_the_best_weights_they_need(checkpoints):
    for step, best in ((1, 1), (2, 1), (3, 3), (4, 3)):
        checkpoints.save(state(step, best))
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == [
        "best-000000003.safetensors",
        "step-000000003.json",
        "step-000000003.safetensors",
        "step-000000004.json",
        "step-000000004.safetensors",
    ]


def test_best_weights_that_did_not_change_are_not_written_again(checkpoints):
    checkpoints.save(state(5, best=5))
    written = (checkpoints.folder / "best-000000005.safetensors").stat().st_mtime_ns
    checkpoints.save(state(6, best=5))
    assert (checkpoints.folder / "best-000000005.safetensors").stat().st_mtime_ns == written


@pytest.mark.parametrize("victim", ["step-000000002.safetensors", "step-000000002.json", "best-000000002.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "gone"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(checkpoints, victim, damage):
    checkpoints.save(state(1, best=1))
    checkpoints.save(state(2, best=2))
    path = checkpoints.folder / victim
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "gone":
        path.unlink()
    else:
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes({"cut": content[:middle], "flipped": flipped, "emptied": b""}[damage])
    if victim.endswith("json") and damage == "gone":  # the checkpoint is missing, which gives no warning
        assert_same(checkpoints.newest(), state(1, best=1))
        return
    with pytest.warns(UserWarning, match="step-000000002 cannot be used"):
        assert_same(checkpoints.newest(), state(1, best=1))


def test_checkpoints_of_a_newer_version_are_refused(checkpoints):
    checkpoints.save(state(1))
    path = checkpoints.folder / "step-000000001.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    with pytest.warns(UserWarning, match="newer rgcn"):
        assert checkpoints.newest() is None


@pytest.mark.parametrize("keep_last", [1, 2])
def test_after_damage_new_checkpoints_stay_although_their_steps_are_lower(checkpoints, keep_last):
    checkpoints.keep_last = keep_last
    for step in (1900, 2000):
        checkpoints.save(state(step, best=50))
    for path in checkpoints.folder.glob("*.safetensors"):
        path.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="cannot be used"):
        assert checkpoints.newest() is None
    for step in (100, 200, 300):
        checkpoints.save(state(step, best=50))  # the same best step as in the damaged ones is written again
        assert_same(checkpoints.newest(), state(step, best=50))


def test_reading_does_not_disturb_a_writer(checkpoints):
    checkpoints.save(state(1))
    being_written = checkpoints.folder / ".writing-step-000000002.safetensors.abc"
    being_written.write_bytes(b"half")
    assert_same(checkpoints.newest(), state(1))
    assert being_written.exists()


@pytest.mark.parametrize("failing", ["tensors", "values"])
def test_a_full_disk_is_reported_and_leaves_the_last_checkpoint(checkpoints, monkeypatch, failing):
    checkpoints.save(state(1, best=1))

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    name = "rgcn.system.atomic_files.write_atomically"
    target = "rgcn.runs.checkpoints.write_tensors" if failing == "tensors" else name
    monkeypatch.setattr(target, full)
    with pytest.raises(DataError, match=r"No space left on device.*step 1 is intact"):
        checkpoints.save(state(2, best=2))
    monkeypatch.undo()
    assert_same(checkpoints.newest(), state(1, best=1))
    assert not list(checkpoints.folder.glob(".*"))


def test_files_of_a_killed_writer_are_removed(checkpoints):
    checkpoints.save(state(1))
    (checkpoints.folder / "step-000000002.safetensors").write_bytes(b"whole, but its values were never written")
    assert_same(checkpoints.newest(), state(1))
    checkpoints.save(state(3))
    assert sorted(p.name for p in checkpoints.folder.glob("*2*")) == []
